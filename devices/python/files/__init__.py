"""A person's SQLite files: of one device, and of a wallet."""
