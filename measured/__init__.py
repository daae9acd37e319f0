"""Measured runs, read and laid beside predictions."""
