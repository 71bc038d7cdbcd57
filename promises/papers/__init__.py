"""The papers of a data protection officer, and the texts that they are made of."""
