"""Tables, pictures and documents of the commands."""
