"""Recorded calls run again: the operators of a meaning on real tensors, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ....ir.graph import Node
from ....ir.meaning import Argument, In, Out, Step
from ....ir.sizes.expr import Expr
from ....ir.types import DType
from ..call import NotComputedError

_WHOLE = {
    DType.INT64: torch.int64, DType.INT32: torch.int64, DType.INT16: torch.int64, DType.INT8: torch.int64,
    DType.UINT8: torch.int64, DType.BOOL: torch.bool,
}  # fmt: skip
_RANDOM = ("bernoulli", "rand", "randn", "uniform", "normal", "exponential", "native_dropout")


def real_dtype(dtype: DType) -> torch.dtype:
    """Return the type that references compute in for a type of the graph: float64 for all that is floating."""
    return _WHOLE.get(dtype, torch.complex128 if dtype is DType.COMPLEX64 else torch.float64)


def run_program(node: Node, inputs: Sequence[Tensor], sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
    """Run a node's recorded program; `sizes` are the numbers of the symbols that its arguments speak of.

    NotComputedError where the node was not recorded, draws random numbers, or calls an operator of ours.
    """
    meaning = node.meaning
    if meaning is None:
        raise NotComputedError(f"'{node.op}' at '{node.scope or 'the top'}' has no recorded call")
    made: list[object] = []

    def tensor(given: In | Out) -> Tensor:
        found = inputs[given.index] if isinstance(given, In) else made[given.step]
        if isinstance(found, tuple | list) and isinstance(given, Out):
            found = found[given.part]
        if not isinstance(found, Tensor):
            raise NotComputedError(f"'{node.op}' at '{node.scope or 'the top'}' reads what is no tensor")
        return torch.view_as_complex(found.contiguous()) if isinstance(given, In) and given.pairs else found

    def real(given: Argument) -> object:
        if isinstance(given, In | Out):
            return tensor(given)
        if isinstance(given, Expr):
            return int(given.evaluate({k: float(v) for k, v in sizes.items()}))
        if isinstance(given, DType):
            return real_dtype(given)
        return [real(g) for g in given] if isinstance(given, tuple) else given

    for step in meaning.steps:
        made.append(_called(step, {name: real(value) for name, value in step.arguments}))
    found = (tensor(o) for o in meaning.outputs)
    return tuple(torch.view_as_real(f).contiguous() if f.is_complex() else f for f in found)


def _called(step: Step, arguments: Mapping[str, object]) -> object:
    space, name, *overload = step.operator.split(".")
    plain = name.removesuffix("_") if not name.endswith("__") else name
    if space != "aten":
        raise NotComputedError(f"'{step.operator}' has no reference implementation")
    if plain in _RANDOM and arguments.get("p") != 0.0:
        raise NotComputedError(f"'{step.operator}' draws random numbers")
    packet = getattr(torch.ops.aten, plain if hasattr(torch.ops.aten, plain) else name)
    chosen = overload[0] if overload else "default"
    operator = getattr(packet, chosen if chosen in packet.overloads() else packet.overloads()[0])
    names = {a.name for a in operator._schema.arguments}
    given = {k: v for k, v in arguments.items() if k in names and k not in ("pin_memory", "non_blocking")}
    result = operator(**_filled(operator, given))
    return _widened(result)


def _filled(operator: torch._ops.OpOverload, given: dict[str, object]) -> dict[str, object]:
    """Arguments that are required and were not recorded, because they were None."""
    for a in operator._schema.arguments:
        if a.name not in given and not a.has_default_value():
            given[a.name] = None
    return given


def _widened(result: object) -> object:
    """Results of operators that make their own type (a range, a cast) in the type of references."""
    if isinstance(result, tuple | list):
        return tuple(_widened(r) for r in result)
    if not isinstance(result, Tensor):
        return result
    if result.is_floating_point():
        return result.double()
    return result.long() if not result.is_complex() and result.dtype is not torch.bool else result


__all__ = ["real_dtype", "run_program"]
