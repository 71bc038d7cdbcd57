"""Measurements of the project itself: audits of the claimed privacy loss, and benchmarks beside other libraries."""
