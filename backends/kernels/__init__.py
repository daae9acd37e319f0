"""Kernel time models, one file a class of ops: sizes, a chip and constants to seconds, all vectorised."""
