"""Traces of the profiler of PyTorch (Kineto): read in a stream, kernels with the operators that launched them."""
