"""Kernels of a trace matched to the nodes of a prediction: by shape, class, name and order."""
