"""Reads the reports topics in chunks, unpacks compressed batches within bounds, and keeps the consumer in its group.

A second client checks whether the broker serves others.
"""
