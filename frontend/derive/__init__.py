"""The training graph of a forward graph: loss and backward nodes by one rule an op, without the code that ran it."""

from .training import forward_of, training

__all__ = ["forward_of", "training"]
