"""Patterns of single steps in a flat graph, each put together to the operator it is."""

from .recognise import recognise

__all__ = ["recognise"]
