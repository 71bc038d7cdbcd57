"""Reads the reports topics in chunks, and keeps the consumer in its group.

A second client checks whether the broker serves others.
"""
