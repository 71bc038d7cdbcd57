"""Bounds of what a mechanism's reports reveal: losses, evidence, chances of a right guess."""
