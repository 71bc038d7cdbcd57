"""The live page: its server, its table without JavaScript, and its static files."""
