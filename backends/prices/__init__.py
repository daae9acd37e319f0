"""Prices: what wafers, packages, memories, servers, networks and facilities cost, each number with its source."""
