"""Serving engines: one file an engine, and what their settings have in common."""
