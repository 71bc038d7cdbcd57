"""Reads the reports topic: Faust's consumer in chunks, bounded decompression, group membership, and a second client."""
