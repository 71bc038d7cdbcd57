"""The live page: its server and its static files."""
