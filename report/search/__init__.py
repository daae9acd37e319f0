"""What a search found: tables, the front, and why one plan beats another."""
