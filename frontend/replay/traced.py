"""A live `fx.GraphModule` and its example inputs to a program."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ...ir.errors import UnknownNameError, UsageError
from ...ir.sizes.expr import Dim, symbol
from ..example_inputs import Dynamic
from ..record.adapter import BufferAOTInput, ParamAOTInput, size_of
from .program import FixedInput, Held, HeldInput, Program, SizeInput, Source, TensorInput, hollow
from .sizes import BATCH, SEQ

_PLACED = (BATCH, SEQ)


def program_of(graph: fx.GraphModule, inputs: Sequence[object], dynamic: Dynamic, name: str) -> Program:
    """Return the program; UsageError when inputs and placeholders do not match."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    given = _flat(inputs)
    needed = [n for n in placeholders if not n.args]
    if not len(needed) <= len(given) <= len(placeholders):
        names = ", ".join(n.name for n in placeholders)
        raise UsageError(f"the graph takes {len(placeholders)} inputs ({names}), {len(given)} are given")
    for wanted in dynamic:
        if wanted not in {n.name for n in placeholders}:
            raise UnknownNameError.of("input of the graph", wanted, [n.name for n in placeholders])
    pairs = list(zip(placeholders, given, strict=False))
    held = {n: h for n, (key, value) in pairs if (h := _held(n, key, value)) is not None}
    is_open = not _has_values(graph)
    sources = [HeldInput(held[n][0]) if n in held else _source(n, v, dynamic, is_open) for n, (_, v) in pairs]
    sources += [FixedInput(_default(n)) for n in placeholders[len(given) :]]
    root = _joined(graph, hollow(dict(held.values()))) if held else graph
    return Program(name or type(graph).__name__, graph, root, tuple(sources))


def _flat(inputs: Sequence[object]) -> list[tuple[str, object]]:
    """Return leaves with the last text key on the way to each, empty where there is none."""
    leaves, _ = pytree.tree_flatten_with_path(tuple(inputs))
    found: list[tuple[str, object]] = []
    for path, leaf in leaves:
        keys = [k.key for k in path if isinstance(k, pytree.MappingKey) and isinstance(k.key, str)]
        found.append((".".join(keys) or f"parameter_{len(found)}", leaf))
    return found


def _has_values(graph: fx.GraphModule) -> bool:
    """Whether the graph was traced with values, so that sizes stand in it as numbers."""
    return any("val" in n.meta or "example_value" in n.meta for n in graph.graph.nodes if n.op == "call_function")


def _held(node: fx.Node, key: str, value: object) -> tuple[str, Held] | None:
    """Return the path of a parameter or buffer with what it is, None for what the caller gives."""
    told = node.meta.get("desc")  # what joint exports say of their inputs
    is_parameter = isinstance(value, nn.Parameter) or isinstance(told, ParamAOTInput)
    if not isinstance(value, Tensor) or not (is_parameter or isinstance(told, BufferAOTInput)):
        return None
    path = str(told.target) if isinstance(told, ParamAOTInput | BufferAOTInput) else key
    return path, Held(tuple(map(int, value.shape)), value.dtype, is_parameter)


def _source(node: fx.Node, value: object, dynamic: Dynamic, is_open: bool) -> Source:
    if isinstance(value, Tensor):
        recorded = node.meta.get("val", node.meta.get("example_value"))
        example = recorded if isinstance(recorded, Tensor) else value
        return TensorInput(node.name, _dims(node.name, example, dynamic.get(node.name), is_open), value.dtype)
    if isinstance(value, torch.SymInt):
        return SizeInput(size_of(value))
    if value is None or isinstance(value, bool | int | float | str):
        return FixedInput(value)
    raise UsageError(f"input '{node.name}' is a {type(value).__name__}; tensors and plain values are understood")


def _dims(name: str, example: Tensor, given: Sequence[str | None] | None, is_open: bool) -> tuple[Dim, ...]:
    sizes = tuple(size_of(s) for s in example.shape)
    if given is not None:
        if len(given) != len(sizes):
            raise UsageError(f"dims of '{name}' name {len(given)} dims, the example has {len(sizes)}")
        return tuple(size if word is None else symbol(word) for word, size in zip(given, sizes, strict=True))
    placed = is_open and not example.dtype.is_floating_point and len(sizes) > 1
    return tuple(symbol(_PLACED[k]) if placed and k < len(_PLACED) else d for k, d in enumerate(sizes))


def _default(node: fx.Node) -> bool | int | float | str | None:
    value = node.args[0]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UsageError(f"input '{node.name}' has a default that is no plain value; give it")


def _joined(graph: fx.GraphModule, held: nn.Module) -> nn.Module:
    """One module that holds what the graph holds and what is handed to it."""
    for name, child in graph.named_children():
        if name not in held._modules:
            held.add_module(name, child)
    for name, parameter in graph.named_parameters(recurse=False):
        held.register_parameter(name, parameter)
    for name, buffer in graph.named_buffers(recurse=False):
        held.register_buffer(name, buffer)
    return held


__all__ = ["program_of"]
