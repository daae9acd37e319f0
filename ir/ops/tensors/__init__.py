"""Ops on tensors: products, pointwise chains, norms, convolutions, views and lookups."""
