"""The estimator's process: surveys in turn, metrics."""
