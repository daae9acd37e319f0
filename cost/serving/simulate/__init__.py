"""Serving request by request: an engine's scheduler on tables of step times, event by event."""
