"""Real model code into ir.Graph."""

from .cache import GraphCache
from .huggingface.configs.models import config_of
from .loading import load, load_config

__all__ = ["GraphCache", "config_of", "load", "load_config"]
