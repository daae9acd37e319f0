"""What is alive to a program: an ExportedProgram, what Dynamo hands a backend, a GraphModule with example inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from ...ir.errors import NotUnderstoodError, UnknownNameError, UsageError
from ...ir.sizes.expr import Dim, symbol
from ..example_inputs import Dynamic
from ..record.adapter import BufferAOTInput, ParamAOTInput, size_of, storage_id
from ..runs.guards import SizeGuard, conditions
from .interpreter import plain_path
from .program import MOST_SIZE, FixedInput, HeldInput, HeldTensor, ReplayProgram, SizeInput, Source, TensorInput, hollow
from .sizes import BATCH, SEQ

_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_OURS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def exported_program(exported: ExportedProgram, name: str) -> ReplayProgram:
    """Return the program; NotUnderstoodError for inputs that are neither tensors nor plain values."""
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    specs = exported.graph_signature.input_specs
    held: dict[str, HeldTensor] = {}
    seen: dict[tuple[object, ...], str] = {}
    for spec in specs:
        if spec.kind in _HELD:
            tensor = _tensor(exported, spec)
            path = str(spec.target)
            first = seen.setdefault(_same(tensor, path), path)
            held[path] = HeldTensor(
                tuple(map(int, tensor.shape)),
                tensor.dtype,
                spec.kind is InputKind.PARAMETER,
                "" if first == path else first,
            )
    sources = tuple(_exported_source(spec, node) for spec, node in zip(specs, placeholders, strict=True))
    outputs = tuple(k for k, s in enumerate(exported.graph_signature.output_specs) if s.kind in _OURS)
    limits = {str(s): int(r.upper) for s, r in exported.range_constraints.items() if r.upper < MOST_SIZE}
    return ReplayProgram(name, exported.graph_module, hollow(held), sources, outputs, limits)


def _tensor(exported: ExportedProgram, spec: InputSpec) -> Tensor:
    found = exported.state_dict.get(str(spec.target))
    if found is None:
        found = exported.constants.get(str(spec.target))
    if not isinstance(found, Tensor):
        raise NotUnderstoodError(f"the exported program does not hold '{spec.target}', which its graph reads")
    return found


def _same(tensor: Tensor, path: str) -> tuple[object, ...]:
    """What two names of one tensor share; tensors without storage are told apart by their path."""
    try:
        return storage_id(tensor), tensor.storage_offset(), tuple(tensor.shape)
    except (NotImplementedError, RuntimeError):
        return (path,)


def _exported_source(spec: InputSpec, node: fx.Node) -> Source:
    if spec.kind in _HELD:
        return HeldInput(str(spec.target))
    if isinstance(spec.arg, ConstantArgument):
        return FixedInput(spec.arg.value)
    val = node.meta.get("val")
    if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument) and isinstance(val, Tensor):
        return tensor_input(node.name, val)
    if isinstance(val, int | torch.SymInt) and not isinstance(val, bool):
        return SizeInput(size_of(val))
    if val is None or isinstance(val, bool | float | str):
        return FixedInput(val)
    raise NotUnderstoodError(
        f"input '{node.name}' of the exported program is a {type(val).__name__}, neither a tensor nor a plain value"
    )


def tensor_input(name: str, val: Tensor) -> TensorInput:
    """Return an input as its example says: its open sizes keep the names that torch gave them."""
    dims: tuple[Dim, ...] = tuple(size_of(s) for s in val.shape)
    return TensorInput(name, dims, val.dtype)


def compiled_program(graph: fx.GraphModule, examples: Sequence[object], name: str) -> ReplayProgram:
    """Return the program of a graph that Dynamo made."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    held: dict[str, HeldTensor] = {}
    sources: list[Source] = []
    for node, example in zip(placeholders, examples, strict=True):
        path = _held_path(node, example)
        if path and isinstance(example, Tensor):
            held[path] = HeldTensor(tuple(map(int, example.shape)), example.dtype, isinstance(example, nn.Parameter))
            sources.append(HeldInput(path))
        else:
            sources.append(_compiled_source(node, example))
    root = hollow(held)
    for name, child in graph.named_children():
        root.add_module(name, child)
    asked, sizes = _asked(placeholders, examples)
    return ReplayProgram(name, graph, root, tuple(sources), asked=asked, examples=sizes)


def _asked(nodes: Sequence[fx.Node], examples: Sequence[object]) -> tuple[tuple[SizeGuard, ...], Mapping[str, int]]:
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


def _compiled_source(node: fx.Node, example: object) -> Source:
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


_PLACED = (BATCH, SEQ)


def traced_program(graph: fx.GraphModule, inputs: Sequence[object], dynamic: Dynamic, name: str) -> ReplayProgram:
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
    # In a graph that was traced with values, sizes stand as numbers.
    is_open = not any(
        "val" in n.meta or "example_value" in n.meta for n in graph.graph.nodes if n.op == "call_function"
    )
    sources = [HeldInput(held[n][0]) if n in held else _traced_source(n, v, dynamic, is_open) for n, (_, v) in pairs]
    sources += [FixedInput(_default(n)) for n in placeholders[len(given) :]]
    root = _joined(graph, hollow(dict(held.values()))) if held else graph
    return ReplayProgram(name or type(graph).__name__, graph, root, tuple(sources))


def _flat(inputs: Sequence[object]) -> list[tuple[str, object]]:
    """Return leaves with the last text key on the way to each, empty where there is none."""
    leaves, _ = pytree.tree_flatten_with_path(tuple(inputs))
    found: list[tuple[str, object]] = []
    for path, leaf in leaves:
        keys = [k.key for k in path if isinstance(k, pytree.MappingKey) and isinstance(k.key, str)]
        found.append((".".join(keys) or f"parameter_{len(found)}", leaf))
    return found


def _held(node: fx.Node, key: str, value: object) -> tuple[str, HeldTensor] | None:
    """Return the path of a parameter or buffer with what it is, None for what the caller gives."""
    told = node.meta.get("desc")  # what joint exports say of their inputs
    is_parameter = isinstance(value, nn.Parameter) or isinstance(told, ParamAOTInput)
    if not isinstance(value, Tensor) or not (is_parameter or isinstance(told, BufferAOTInput)):
        return None
    path = str(told.target) if isinstance(told, ParamAOTInput | BufferAOTInput) else key
    return path, HeldTensor(tuple(map(int, value.shape)), value.dtype, is_parameter)


def _traced_source(node: fx.Node, value: object, dynamic: Dynamic, is_open: bool) -> Source:
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
