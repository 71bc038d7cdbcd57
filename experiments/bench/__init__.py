"""The benchmarks: speed, accuracy, coverage, and the whole service."""
