"""Real model code into ir.Graph."""

from .cache import GraphCache
from .loading import load, load_config
from .models import config_of

__all__ = ["GraphCache", "config_of", "load", "load_config"]
