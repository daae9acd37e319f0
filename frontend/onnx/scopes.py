"""Names of nodes to module paths: what exporters write, made to look like paths of modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

import onnx

_SCOPES = "pkg.torch.onnx.name_scopes"
_NUMBERED = re.compile(r"[A-Za-z_]\w*\.[0-9]+(\.|$)")
# Modules are called in lower case, operators as classes are.
_OPERATOR = re.compile(r"[A-Z][A-Za-z0-9]*(_\w*)?")
_PARAMETER = re.compile(r"^(?P<path>.*\.[0-9]+(?:\.\w+)*?)(?:\.\w+)$")
_LAYER = re.compile(r"^(?P<path>(?:.*?\.)?(?P<number>[0-9]{1,9}))(?:\.|$)")
# What no path of modules has, and the text of a graph could not hold.
_STRANGE = re.compile(r"[^\w.\-]")
_MAX_TEXT = 4096


def scope_of(node: onnx.NodeProto) -> str:
    """Return the module path that a node's name tells, empty where it tells none.

    >>> scope_of(onnx.helper.make_node("MatMul", ["x"], ["y"], name="/model/layers.0/self_attn/q_proj/MatMul"))
    'model.layers.0.self_attn.q_proj'
    """
    return _STRANGE.sub("_", _told(node))


def _told(node: onnx.NodeProto) -> str:
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            return _from_metadata(entry.value)
    name = node.name
    if "/" in name:
        parts = [p for p in name.split("/") if p]
        if parts and (_OPERATOR.fullmatch(parts[-1]) or parts[-1].startswith(node.op_type)):
            parts = parts[:-1]
        return ".".join(parts)
    return name if _NUMBERED.search(name) and len(name) < _MAX_TEXT else ""


def _from_metadata(text: str) -> str:
    """A list of scopes from the outermost in, the node's own name last."""
    if len(text) > _MAX_TEXT:
        return ""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(found, list) or not all(isinstance(s, str) for s in found):
        return ""
    return str(found[-2]) if len(found) > 1 else ""


def scopes(nodes: Sequence[onnx.NodeProto], stored: Mapping[str, object]) -> list[str]:
    """Return a scope a node: by its name, else by the parameter it reads, which is called after its module.

    Where no node has a telling name, what reads no parameter belongs to the furthest layer that it reads from.
    """
    named = [scope_of(node) for node in nodes]
    return named if any(named) else _by_parameters(nodes, stored)


def _by_parameters(nodes: Sequence[onnx.NodeProto], stored: Mapping[str, object]) -> list[str]:
    made: list[str] = []
    layer: dict[str, tuple[int, str]] = {}
    for node in nodes:
        weights = [name for name in node.input if "." in name and name in stored]
        scope = next((s for name in weights if (s := _owner(name))), "")
        if not weights:
            scope = max((layer[name] for name in node.input if name in layer), default=(0, ""))[1]
        made.append(scope)
        found = _LAYER.match(scope)
        if found is not None:
            layer.update(dict.fromkeys(node.output, (int(found.group("number")), found.group("path"))))
    return made


def _owner(name: str) -> str:
    """Return the path of the module of a parameter.

    >>> _owner("model.layers.3.mlp.up.weight"), _owner("lm_head.weight")
    ('model.layers.3.mlp.up', '')
    """
    found = _PARAMETER.match(name.replace("/", ".").strip("."))
    return "" if found is None else _STRANGE.sub("_", found.group("path"))
