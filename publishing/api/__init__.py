"""The API: serves publications as JSON and CSV to the live page and to other programs."""
