"""Packages: what stands on them, how it is joined, and what is lost on the way."""
