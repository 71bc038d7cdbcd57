"""Devices in other languages, test vectors, and the check of a device. Not installed."""
