"""Other libraries, in an environment of their own, for the comparisons."""
