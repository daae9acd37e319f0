"""ONNX files into ir.Graph: read without weights, shapes resolved over symbols, operators as those of the IR."""

from .loading import load_onnx
from .reading import content_key

__all__ = ["content_key", "load_onnx"]
