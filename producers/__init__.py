"""Producers: simulated populations, sources of their true values, and sinks for their reports."""
