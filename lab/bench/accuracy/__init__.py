"""The accuracy benchmark: every estimator's errors on the same reports, over a grid of cells."""
