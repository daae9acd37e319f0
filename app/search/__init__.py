"""Recomputation and offload policies: the space of a search and its result."""
