"""Measurements of the project: audits of the claimed privacy losses, and benchmarks that include other libraries."""
