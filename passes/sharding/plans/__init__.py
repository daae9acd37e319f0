"""Tensor-parallel plans: ready-made, of the model, of a file, or found by trying."""
