"""Sizes and amounts as expressions over named symbols: polynomials, roundings, shares, and tables of many."""
