"""Adapters of low rank, and what is left of a graph whose other weights are frozen."""
