"""Algorithms of collectives, and which of them a level lets a collective use."""
