"""Chip designs, gathered and ranked."""
