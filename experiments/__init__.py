"""What the project measures of itself: audits of the privacy it claims, benchmarks beside other libraries."""
