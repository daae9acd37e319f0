"""A folded graph against what was recorded: the same operators as often, the same products, the same parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from torch import fx

from ..ir.errors import InternalError
from ..ir.expr import Dim, as_expr
from ..ir.graph import Graph, Node, Role, Value
from .adapter import FakeWorld
from .flat import Flat
from .fx_import import op_name

# Products of matrices, with the place of the left one among the arguments.
_PRODUCTS = {"aten.mm": 0, "aten.bmm": 0, "aten.addmm": 1, "aten.baddbmm": 1, "slipstick.step_product": 0}
_LENGTH = 96.0


def check_products(graph: fx.Graph, flat: Flat, world: FakeWorld) -> None:
    """Compare the products that ran, forward and backward, with those that were imported, before any is left out.

    Products of complex numbers are several of real ones, and are not compared.
    """
    nodes = [n for n in graph.nodes if n.op == "call_function" and op_name(n) in _PRODUCTS]
    if any(n.meta["val"].is_complex() for n in nodes):
        return
    ran = Counter((str(n.meta["phase"]), _ran(n, world)) for n in nodes)
    read = Counter((str(n.phase), _read(n, flat.values)) for n in flat.nodes if n.op == "matmul")
    if ran != read:
        (phase, size), times = next(iter(((ran - read) or (read - ran)).items()))
        raise InternalError(f"{times} products of {size:.4g} multiplications in {phase} are not read as they ran")


def _ran(node: fx.Node, world: FakeWorld) -> float:
    left = node.args[_PRODUCTS[op_name(node)]]
    assert isinstance(left, fx.Node)
    made, taken = node.meta["val"], left.meta["val"]
    return _numel([world.dim(s) for s in (*made.shape, taken.shape[-1])])


def _read(n: Node, values: Mapping[int, Value]) -> float:
    return _numel([*values[n.outputs[0]].type.dims, values[n.inputs[0]].type.dims[-1]])


def _numel(dims: Sequence[Dim]) -> float:
    sizes = (as_expr(d) for d in dims)
    return prod(float(s.evaluate(dict.fromkeys(s.symbols, _LENGTH))) for s in sizes)


def check_folding(graph: Graph, flat: Flat) -> None:
    """Compare operators and their result types, with how often each runs, and elements of parameters."""
    recorded = Counter(_said(n, flat.values) for n in flat.nodes)
    folded: Counter[tuple[object, ...]] = Counter()
    for region in graph.regions:
        for n in region.nodes:
            folded[_said(n, region.by_id)] += graph.counts[region.name]
    if recorded != folded:
        (phase, op, kind), times = next(iter(((recorded - folded) or (folded - recorded)).items()))
        raise InternalError(f"folding '{graph.name}' changes how often '{op}' to {kind} runs in {phase}, by {times}")
    held = {v.name: round(float(v.type.numel.evaluate({}))) for v in flat.values.values() if v.role is Role.PARAM}
    num = round(float(graph.num_parameters.evaluate({})))
    if num != sum(held.values()):
        raise InternalError(f"folding '{graph.name}' makes {num:,} parameters of {sum(held.values()):,}")


def _said(n: Node, values: Mapping[int, Value]) -> tuple[object, ...]:
    return n.phase, n.op, ", ".join(str(values[o].type) for o in n.outputs)


__all__ = ["check_folding", "check_products"]
