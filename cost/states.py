"""Parameters of a lowered graph with what a rank keeps of each: weight, gradient and optimizer state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ir.expr import Dim, Expr, as_expr, product, total
from ..ir.exprtable import ExprTable
from ..ir.graph import Graph, Phase, Region, Role, Value
from ..ir.ops.host import DOWN, UP, UPDATE
from ..ir.ops.pointwise import optimizer_state_bytes

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Held:
    """One parameter.

    Attributes:
        name: its path.
        regions: the regions that use it.
        each_layer: whether every run of its region has one of its own.
        states: bytes of weight, gradient and optimizer state on a rank.
    """

    name: str
    regions: tuple[str, ...]
    each_layer: bool
    states: tuple[Expr, Expr, Expr]


def held_parameters(graph: Graph) -> Iterable[Held]:
    """Yield every parameter once; a tied one names all regions that use it."""
    users: dict[tuple[str, str], list[tuple[Region, Value]]] = {}
    for region in graph.regions:
        for v in region.of_role(Role.PARAM):
            users.setdefault((region.name if "*" in v.name else "", v.name), []).append((region, v))
    for (layer, name), found in users.items():
        names = tuple(dict.fromkeys(r.name for r, _ in found))
        yield Held(name, names, bool(layer), (found[0][1].type.num_bytes, *_trained(found)))


def _trained(users: list[tuple[Region, Value]]) -> tuple[Expr, Expr]:
    """Bytes of the running gradient sum and of the states of the shard whose reduced gradient a rank holds."""
    for region, v in users:
        for param, grad in region.grads:
            if param == v.id:
                reduced = region.by_id[grad].type
                kept = region.by_id[_running_sum(region, grad)].type
                return kept.num_bytes, reduced.numel * optimizer_state_bytes(v.type.dtype)
    return as_expr(0), as_expr(0)


def _running_sum(region: Region, grad: int) -> int:
    """Return the value in which a gradient is summed over micro-batches; without one, the gradient itself."""
    value = grad
    while (node := region.producer.get(value)) is not None and node.phase is not Phase.BACKWARD:
        value = node.inputs[node.outputs.index(value)]
    return value if node is not None and node.op == "accumulate" else grad


def states_away(graph: Graph) -> tuple[bool, bool, bool]:
    """Return whether weights, gradients and optimizer states lie in host memory.

    Weights do where they are fetched before use, optimizer states where the host updates.
    """
    nodes = [(r, n) for r in graph.regions for n in r.nodes]
    fetched = any(r.by_id[i].role is Role.PARAM for r, n in nodes if n.op == UP for i in n.inputs)
    return fetched, False, any(n.op == UPDATE for _, n in nodes)


def copied_bytes(region: Region) -> Expr:
    """Return the bytes of what is kept for the backward phase in host memory."""
    copies = (region.by_id[o] for n in region.nodes if n.op == DOWN for o in n.outputs)
    return total(v.type.num_bytes for v in copies if v.saved)


@dataclass(frozen=True, slots=True)
class Placeholders:
    """Empty gradients that fused accumulation hands to autograd instead of real ones: one a shape of weight.

    Of an expert bank one expert's shape counts. Weights that are projected from the same input have one each, which is
    as much as one of their common shape. Source: TransformerEngine `pytorch/module/base.py`, `get_dummy_wgrad`.

    Attributes:
        sizes: bytes of each shape.
        needs: how many of a shape each region has, as (shape, region).
    """

    sizes: ExprTable
    needs: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, graph: Graph) -> Placeholders:
        """Find the gradients that share storage with their running sum."""
        shapes = [_added_in_place(r) for r in graph.regions]
        every = sorted({dims for s in shapes for dims in s}, key=str)
        sizes = [product(dims) * graph.dtype.num_bytes for dims in every]
        return cls(ExprTable.of(sizes or [as_expr(0)]), tuple(tuple(s[dims] for s in shapes) for dims in every))

    def total(
        self, sizes: Array, point: NDArray[np.intp], regions: Sequence[str], runs: Mapping[str, Array]
    ) -> Array | float:
        """Return bytes on a stage that runs some regions, plan by plan."""
        found: Array | float = 0.0
        for row, needs in zip(sizes, self.needs, strict=False):
            most = [num * np.minimum(runs[name], 1.0) for name, num in zip(regions, needs, strict=True) if name in runs]
            found = found + row[point] * np.maximum.reduce(most)
        return found


def _added_in_place(region: Region) -> Counter[tuple[Dim, ...]]:
    sums = ((region.by_id[n.inputs[0]], n.key) for n in region.nodes if n.op == "accumulate")
    return Counter(grad.type.dims[-2:] for grad, place in sums if grad.storage == place)
