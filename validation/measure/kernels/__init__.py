"""Kernels of the machine at hand, as real models run them."""
