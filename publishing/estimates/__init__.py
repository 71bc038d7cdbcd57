"""What is published of a step: estimates, intervals, changes."""
