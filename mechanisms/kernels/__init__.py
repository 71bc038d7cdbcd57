"""Packed bits, and the loops that Numba compiles."""
