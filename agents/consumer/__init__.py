"""Reads the reports topic in chunks, with bounded decompression, a check of the group membership and a second client."""
