"""Estimates into what people look at."""
