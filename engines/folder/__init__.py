"""The engine of one machine: one SQLite file in a folder has the log, the counts and the results."""
