"""Checks that users run: the privacy audit of mechanisms, and the conformance of foreign devices."""
