"""The estimates of ordered shares and of numbers."""
