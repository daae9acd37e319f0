"""Operators with a known meaning: attention, experts, norms, scans and loss as one node each."""
