"""The forms in which a model may be given: a name or config, a saved graph, a file of torch or ONNX, code."""

from __future__ import annotations

SAVED = (".graph", ".graph.gz")
ONNX = ".onnx"
SUFFIX = ".pt2"
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")


def has_config(model: str) -> bool:
    """Whether a model comes from a config, neither saved as a graph, nor exported, nor made by code."""
    return not model.endswith((*SAVED, ONNX, SUFFIX, *PICKLED)) and not names_factory(model)


def names_factory(model: str) -> bool:
    """Whether a model is made by code: `file.py:factory` or `pkg.mod:factory`."""
    where, colon, name = model.rpartition(":")
    return bool(colon) and bool(where) and name.isidentifier()
