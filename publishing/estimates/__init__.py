"""The publication of a step: estimates, intervals, changes."""
