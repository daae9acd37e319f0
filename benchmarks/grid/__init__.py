"""A wide grid of estimates, answered by two states of the code: what is refused now, and which numbers moved."""
