"""The forms in which a model may be given: a name or config, a saved graph, a file of torch or ONNX, code."""

from __future__ import annotations

from ..ir.records import dataclass


@dataclass(frozen=True, slots=True)
class ModelForm:
    """One way to give a model: how its text ends, and which words on inputs are read with it.

    Args:
        name: what such a model is called in errors.
        suffixes: how its file may end; none where the text is no file of that kind.
        reads: flags on inputs that have a meaning for it, without dashes.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()


SAVED = ModelForm("a saved graph", (".graph", ".graph.gz"))
ONNX = ModelForm("an ONNX file", (".onnx",), frozenset({"dim"}))
EXPORTED = ModelForm("an exported program", (".pt2",), frozenset({"dim"}))
PICKLED = ModelForm("a file of pickled weights", (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle"))
FACTORY = ModelForm("a factory", reads=frozenset({"input", "loss", "leaf", "kv-cache", "fixed"}))
CONFIG = ModelForm("a name or config", reads=frozenset({"images"}))

_BY_SUFFIX = {suffix: form for form in (SAVED, ONNX, EXPORTED, PICKLED) for suffix in form.suffixes}


def form_of(model: str) -> ModelForm:
    """Return the form of a model's text: by its suffix, else by the colon of a factory, else a name or config.

    >>> form_of("net.pt2").name, form_of("net.py:build").name, form_of("llama-3.1-8b").name
    ('an exported program', 'a factory', 'a name or config')
    """
    for suffix, form in _BY_SUFFIX.items():
        if model.endswith(suffix):
            return form
    where, _, function = model.rpartition(":")
    return FACTORY if where and function.isidentifier() else CONFIG


def has_config(model: str) -> bool:
    """Whether a model comes from a config, neither saved as a graph, nor exported, nor made by code."""
    return form_of(model) is CONFIG
