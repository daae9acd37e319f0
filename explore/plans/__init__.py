"""Spaces of plans: what may be chosen, and blocks of plans pruned and priced."""
