"""What may be chosen, in words or in a file, and what a search of it finds."""
