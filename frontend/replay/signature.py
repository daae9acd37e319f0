"""A live ExportedProgram to a program: what its signature says of every input; weights count by shape alone."""

from __future__ import annotations

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument

from ...ir.errors import NotUnderstoodError
from ...ir.sizes.expr import Dim
from ..record.adapter import size_of, storage_id
from .program import MOST_SIZE, FixedInput, Held, HeldInput, Program, SizeInput, Source, TensorInput, hollow

_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_OURS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def program_of(exported: ExportedProgram, name: str) -> Program:
    """Return the program; NotUnderstoodError for inputs that are neither tensors nor plain values."""
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    specs = exported.graph_signature.input_specs
    held: dict[str, Held] = {}
    seen: dict[tuple[object, ...], str] = {}
    for spec in specs:
        if spec.kind in _HELD:
            tensor = _tensor(exported, spec)
            path = str(spec.target)
            first = seen.setdefault(_same(tensor, path), path)
            held[path] = Held(
                tuple(map(int, tensor.shape)), tensor.dtype, spec.kind is InputKind.PARAMETER,
                "" if first == path else first,
            )  # fmt: skip
    sources = tuple(_source(spec, node) for spec, node in zip(specs, placeholders, strict=True))
    outputs = tuple(k for k, s in enumerate(exported.graph_signature.output_specs) if s.kind in _OURS)
    limits = {str(s): int(r.upper) for s, r in exported.range_constraints.items() if r.upper < MOST_SIZE}
    return Program(name, exported.graph_module, hollow(held), sources, outputs, limits)


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


def _source(spec: InputSpec, node: fx.Node) -> Source:
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


__all__ = ["program_of", "tensor_input"]
