"""Real model code into ir.Graph."""

from .cache import GraphCache
from .loading import load

__all__ = ["GraphCache", "load"]
