"""The advisor: which mechanism, privacy level and post-processing fit a question."""
