"""The adviser: finds a mechanism, a privacy level and a post-processing for a question."""
