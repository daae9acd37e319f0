"""Spaces of chip designs: their machines as columns, their money and time."""
