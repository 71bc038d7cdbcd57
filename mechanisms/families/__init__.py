"""The mechanisms, one module each, and their hash functions."""
