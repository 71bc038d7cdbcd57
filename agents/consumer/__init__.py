"""Reads the reports topic: Faust's consumer by chunks, bounded decompression, group membership, a second client."""
