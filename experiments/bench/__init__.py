"""The benchmarks: speed, accuracy, coverage, the whole service."""
