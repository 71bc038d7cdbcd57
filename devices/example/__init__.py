"""An example: a command-line tool that counts its own use."""
