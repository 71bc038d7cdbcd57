"""The estimator's process: surveys in turn, leases, metrics."""
