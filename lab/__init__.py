"""The laboratory: benchmarks, the papers reproduced, and other libraries."""
