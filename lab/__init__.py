"""The laboratory: the privacy audit, benchmarks, the papers reproduced, and other libraries."""
