"""The accuracy benchmark: the estimators' errors over a grid of cells."""
