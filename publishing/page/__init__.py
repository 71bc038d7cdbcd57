"""The live page: its server, the start page of several surveys, and its static files."""
