"""Reads the reports topic in chunks, with bounded decompression, and checks the consumer's membership and its view."""
