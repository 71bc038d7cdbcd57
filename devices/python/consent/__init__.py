"""The person's answer, and all that the device shows to the person: consent, question, preview and journal."""
