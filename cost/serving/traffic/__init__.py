"""Requests: their lengths, when they come, and traces of them from files."""
