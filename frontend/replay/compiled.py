"""What Dynamo hands a backend to a program: parameters and buffers are inputs there, known by where they were found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx, nn

from ..record.adapter import size_of
from ..runs.guards import Condition, conditions
from .interpreter import plain_path
from .program import FixedInput, Held, HeldInput, Program, SizeInput, Source, hollow
from .signature import tensor_input


def program_of(graph: fx.GraphModule, examples: Sequence[object], name: str) -> Program:
    """Return the program of a graph that Dynamo made."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    held: dict[str, Held] = {}
    sources: list[Source] = []
    for node, example in zip(placeholders, examples, strict=True):
        path = _held_path(node, example)
        if path and isinstance(example, Tensor):
            held[path] = Held(tuple(map(int, example.shape)), example.dtype, isinstance(example, nn.Parameter))
            sources.append(HeldInput(path))
        else:
            sources.append(_source(node, example))
    root = hollow(held)
    for name, child in graph.named_children():
        root.add_module(name, child)
    asked, sizes = _asked(placeholders, examples)
    return Program(name, graph, root, tuple(sources), asked=asked, examples=sizes)


def _asked(nodes: Sequence[fx.Node], examples: Sequence[object]) -> tuple[tuple[Condition, ...], Mapping[str, int]]:
    """What Dynamo has taken for true of the open sizes so far, by its own names of them, and their examples."""
    given = [n.meta.get("example_value", e) for n, e in zip(nodes, examples, strict=True)]
    sizes = [s for v in given for s in (v.shape if isinstance(v, Tensor) else (v,)) if isinstance(s, torch.SymInt)]
    hints = {s.node.expr: int(s.node.hint) for s in sizes if s.node.expr.is_Symbol and s.node.has_hint()}
    env = next((s.node.shape_env for s in sizes), None)
    if env is None:
        return (), {}
    return conditions(env, {s: str(s) for s in hints}), {str(s): hint for s, hint in hints.items()}


def _held_path(node: fx.Node, example: object) -> str:
    """Return the path of a parameter or buffer, empty for what the caller gives; Dynamo says how it found each."""
    name = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", "")
    source = str(name() if callable(name) else name)
    if not isinstance(example, nn.Parameter) and "_buffers[" not in source:
        return ""
    return plain_path(source) or node.name


def _source(node: fx.Node, example: object) -> Source:
    value = node.meta.get("example_value", example)
    is_number = getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
    if is_number and type(example) is Tensor and not example.dim():
        # A number of Python, as the `eps` of a norm.
        return FixedInput(example.item())
    if isinstance(value, Tensor):
        return tensor_input(re.sub(r"^l_(.*?)_*$", r"\1", node.name), value)
    if isinstance(value, torch.SymInt):
        return SizeInput(size_of(value))
    return FixedInput(value if isinstance(value, bool | int | float | str) else None)


__all__ = ["program_of"]
