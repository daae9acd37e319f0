"""Which data sets the constants of stacks were fitted to: of each, half of the configurations."""

from __future__ import annotations

# korthikanti2022_table5 is in no fit: all its rows judge.
FITTED: frozenset[str] = frozenset()
