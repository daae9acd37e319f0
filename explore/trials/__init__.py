"""Machines that an optimiser chooses, one batch after the other."""
