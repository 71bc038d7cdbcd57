"""The benchmarks: speed, memory, accuracy, coverage of intervals, and the costs of the whole service."""
