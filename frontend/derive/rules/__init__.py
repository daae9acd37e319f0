"""Backward rules, one an op."""
