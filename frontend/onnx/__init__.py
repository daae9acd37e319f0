"""ONNX files into ir.Graph: read without weights, shapes resolved over symbols, operators as those of the IR."""

from .files.reading import content_key
from .loading import load_onnx

__all__ = ["content_key", "load_onnx"]
