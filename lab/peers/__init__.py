"""Runs other libraries in a separate environment, for the comparisons."""
