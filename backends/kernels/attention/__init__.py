"""Kernels of attention: fused, over a cache, additive, and as separate kernels."""
