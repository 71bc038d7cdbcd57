"""The adviser compares mechanisms by exact numbers, and proposes a survey for a table of people."""
