"""Reads the reports topics in chunks, decompresses them within bounds, and keeps the consumer in its group.

A second client checks whether the broker serves others.
"""
