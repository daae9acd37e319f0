"""What a rank runs of a step, in the same words for both sides: messages, products, parameters; ours from a graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from slipstick.ir.graph import Graph, Node, Phase, Region, Role
from slipstick.ir.ops import OpCall, call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.sizes.expr import Dim, as_expr, product
from slipstick.ir.types import TensorType

BATCH, SEQ = 1, 64

T = TypeVar("T")
Message = tuple[str, int]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """One rank's step.

    Attributes:
        forward: messages of the forward phase: kind, and bytes of the full logical tensor.
        backward: those of the backward phase, reductions of gradients included.
        products: products of linear layers in both phases, as (m, n, k) of the local operands.
        parameters: elements of the local parameters.
    """

    forward: Counter[Message] = field(default_factory=Counter)
    backward: Counter[Message] = field(default_factory=Counter)
    products: Counter[Shape] = field(default_factory=Counter)
    parameters: Counter[int] = field(default_factory=Counter)


def ours(graph: Graph, degrees: dict[str, float], axes: Collection[str], rows_over: int = 0, once: bool = True) -> Ran:
    """Read a sharded graph at some degrees: messages over `axes`, with `once` also those that run once a step.

    Ours cuts flat buffers, FSDP2 rows: with `rows_over` shards, each tensor's rows are a multiple of them.
    """
    at = {"mbs": float(BATCH), "seq": float(SEQ), **degrees}
    ran = Ran()
    for region, node, count in _nodes(graph):
        if isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis in axes:
            message = node.op, _message(call_of(region, node), at, rows_over)
            if node.phase is Phase.FORWARD:
                ran.forward[message] += count
            elif once or node.phase is Phase.BACKWARD:
                ran.backward[message] += count
        elif node.op == "matmul" and _is_linear(region, node):
            for gemm in work_of(region, node).gemms:
                ran.products[tuple(_number(d, at) for d in (gemm.batch * gemm.m, gemm.n, gemm.k))] += count
    for region in graph.regions:
        for v in region.of_role(Role.PARAM):
            ran.parameters[_elements(v.type, at, 1 if rows_over else 0)] += graph.counts[region.name]
    return ran


def _message(call: OpCall, at: Mapping[str, float], rows_over: int) -> int:
    if not rows_over:
        return _number(message_bytes(call), at)
    whole = call.outputs if call.op == "all_gather" else call.inputs
    rows = 1 if call.op == "all_reduce" else rows_over
    return round(sum(_elements(t, at, rows) * t.dtype.num_bytes for t in whole))


def _elements(t: TensorType, at: Mapping[str, float], rows_over: int) -> int:
    """Elements of a tensor; with `rows_over` of one whose rows are filled up to a multiple."""
    if not rows_over or not t.rank:
        return _number(t.numel, at)
    rows, *rest = (float(as_expr(d).evaluate(at)) for d in t.dims)
    return round(math.ceil(rows / rows_over) * rows_over * math.prod(rest))


def _nodes(graph: Graph) -> Iterator[tuple[Region, Node, int]]:
    for region in graph.regions:
        for node in region.nodes:
            yield region, node, graph.counts[region.name]


def _is_linear(region: Region, node: Node) -> bool:
    """Whether a product has a tensor without tokens: a matrix of the model, or the gradient of one."""
    tensors = (region.by_id[i].type.dims for i in (*node.inputs[:2], *node.outputs))
    return any(not {"mbs", "seq"} & product(dims).symbols for dims in tensors)


def _number(dim: Dim, at: Mapping[str, float]) -> int:
    found = float(as_expr(dim).evaluate(at))
    if found != int(found):
        raise ValueError(f"{dim} is {found} at {at}")
    return int(found)


def differences(mine: Ran, theirs: Ran) -> dict[str, str]:
    """Return what differs by kind: what only ours has, then what only theirs has."""
    found = {
        "forward": _apart(mine.forward, theirs.forward),
        "backward": _apart(mine.backward, theirs.backward),
        "products": _apart(mine.products, theirs.products),
        "parameters": _apart(mine.parameters, theirs.parameters),
    }
    return {name: text for name, text in found.items() if text}


def _apart(mine: Counter[T], theirs: Counter[T]) -> str:
    return f"ours {_said(mine - theirs)}, theirs {_said(theirs - mine)}" if mine != theirs else ""


def _said(more: Counter[T]) -> str:
    items = [f"{count} x {key}" for key, count in more.items()]
    return "; ".join(items[:4]) + (f" and {len(items) - 4} more" if len(items) > 4 else "") if items else "nothing"
