"""Activation recomputation: what the forward phase does not keep, the backward phase computes again."""
