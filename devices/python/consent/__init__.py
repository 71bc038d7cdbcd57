"""What a person answered and sees: consent, question, preview and journal."""
