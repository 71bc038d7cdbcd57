"""The benchmarks: speed, accuracy, coverage, streams of changing values, detection of jumps, and the whole service."""
