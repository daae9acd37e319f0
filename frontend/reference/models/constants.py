"""Constants of a call that its op does not hold, and how much of a tensor a rank has."""

from __future__ import annotations

from ....ir.meaning import In
from ....ir.ops.base import A
from ....ir.placement import Shard
from ..call import Call


def attrs_of(call: Call, kind: type[A]) -> A:
    """Return the attributes of a call as the op's own type."""
    if not isinstance(call.node.attrs, kind):
        raise TypeError(f"{call.node.op} needs {kind.__name__}, has {type(call.node.attrs).__name__}")
    return call.node.attrs


def number(call: Call, name: str, default: float) -> float:
    """Return a recorded number (`scale`, `eps`, ..); the default where it was left out, or nothing was recorded."""
    return default if _is_unrecorded(call) else call.number(name, default)


def word(call: Call, name: str, default: str) -> str:
    """Return a recorded word (`style`, `act`, ..); the default where it was left out, or nothing was recorded."""
    return default if _is_unrecorded(call) else call.word(name, default)


def given(call: Call, name: str, default: int | None) -> int | None:
    """Return which input an optional tensor of the recorded call is, None where it was absent."""
    found = None if _is_unrecorded(call) else call.constant(name)
    if _is_unrecorded(call):
        return default
    return found.index if isinstance(found, In) else None


def operator(call: Call) -> str:
    """Return the recorded operator, such as `aten._log_softmax.default`; empty where nothing was recorded."""
    return "" if _is_unrecorded(call) or call.node.meaning is None else call.node.meaning.steps[0].operator


def share(call: Call, value: int, dim: int) -> tuple[int, int]:
    """Return which part of a dim of an input this rank has, and of how many."""
    index, count = 0, 1
    for axis, placement in call.sources[value].placements if call.sources else ():
        if isinstance(placement, Shard) and placement.dim == dim:
            index, count = index * call.degrees.get(axis, 1) + call.rank.get(axis, 0), count * call.degrees.get(axis, 1)
    return index, count


def _is_unrecorded(call: Call) -> bool:
    return call.node.meaning is None or not call.node.meaning.steps
