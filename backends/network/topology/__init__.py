"""Levels of a network, their topologies, and groups of ranks laid on them."""
