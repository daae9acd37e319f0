"""Placements of parameters and inputs into placements of every value, one rule an operator."""
