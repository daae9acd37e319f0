"""Parameters of a lowered graph with what a rank keeps of each: weight, gradient and optimizer state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from ...ir.graph import Graph, Phase, Region, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.optimizer import OptimizerAttrs, attrs_of, optimizer_state_bytes
from ...ir.ops.quantise import QuantiseAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_expr, product, total
from ...passes.gathers import saved_gathered


@dataclass(frozen=True, slots=True)
class HeldParameter:
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


def held_parameters(graph: Graph, kept: OptimizerAttrs | None = None) -> Iterable[HeldParameter]:
    """Yield every parameter once; a tied one names all regions that use it.

    `kept` are the types of optimizer states of a graph that has no update yet.
    """
    users: dict[tuple[str, str], list[tuple[Region, Value]]] = {}
    for region in graph.regions:
        for v in region.of_role(Role.PARAM):
            users.setdefault((region.name if "*" in v.name else "", v.name), []).append((region, v))
    for (layer, name), found in users.items():
        names = tuple(dict.fromkeys(r.name for r, _ in found))
        region, v = found[0]
        casts = (n.attrs for n in region.users.get(v.id, ()))
        freed = any(isinstance(attrs, QuantiseAttrs) and attrs.frees for attrs in casts)
        weight = as_expr(0) if freed else v.type.num_bytes
        yield HeldParameter(name, names, bool(layer), (weight, *_trained(tuple(found), kept)))


# Families of plans share most of their regions: each parameter of these is looked at once.
@lru_cache(maxsize=8192)
def _trained(users: tuple[tuple[Region, Value], ...], kept: OptimizerAttrs | None) -> tuple[Expr, Expr]:
    """Bytes of the running gradient sum and of the states of the shard whose reduced gradient a rank holds."""
    for region, v in users:
        for param, grad in region.grads:
            if param == v.id:
                reduced = region.by_id[grad].type
                summed = region.by_id[_running_sum(region, grad)].type
                # The types of states that a region's update names.
                states = optimizer_state_bytes(
                    v.type.dtype,
                    kept or next((attrs_of(n.attrs) for n in region.nodes if has(n, Trait.UPDATES)), OptimizerAttrs()),
                )
                return summed.num_bytes, reduced.numel * states
    return as_expr(0), as_expr(0)


def _running_sum(region: Region, grad: int) -> int:
    """Return the value in which a gradient is summed over micro-batches; without one, the gradient itself."""
    value = grad
    while (node := region.producer.get(value)) is not None and node.phase is not Phase.BACKWARD:
        value = node.inputs[node.outputs.index(value)]
    return value if node is not None and has(node, Trait.ACCUMULATES) else grad


def states_away(graph: Graph) -> tuple[bool, bool, bool]:
    """Return whether weights, gradients and optimizer states lie in host memory.

    Weights do where they are fetched before use, optimizer states where the host updates.
    """
    nodes = [(r, n) for r in graph.regions for n in r.nodes]
    fetched = any(r.by_id[i].role is Role.PARAM for r, n in nodes if has(n, Trait.FROM_HOST) for i in n.inputs)
    return fetched, False, any(has(n, OpClass.HOST) and has(n, Trait.UPDATES) for _, n in nodes)


def copied_bytes(region: Region) -> Expr:
    """Return the bytes of what is kept for the backward phase in host memory."""
    copies = (region.by_id[o] for n in region.nodes if has(n, Trait.TO_HOST) for o in n.outputs)
    return total(v.type.num_bytes for v in copies if v.saved)


def kept_bytes(region: Region) -> Expr:
    """Return the bytes that a run of a region keeps on the device for its backward phase, gathered parameters apart."""
    return region.saved_bytes - saved_gathered(region) - copied_bytes(region)


def placeholders(graph: Graph) -> list[tuple[Expr, list[int]]]:
    """Return the empty gradients that fused accumulation hands to autograd instead of real ones: one a shape of weight.

    The bytes of each shape, and how many of it each region has. Gradients that share storage with their running sum
    have none of their own. Of an expert bank one expert's shape counts. Weights that are projected from the same input
    have one each, which is as much as one of their common shape. Source: TransformerEngine `pytorch/module/base.py`,
    `get_dummy_wgrad`.
    """
    shapes = [_added_in_place(r) for r in graph.regions]
    every = sorted({dims for s in shapes for dims in s}, key=str)
    return [(product(dims) * graph.dtype.num_bytes, [s[dims] for s in shapes]) for dims in every]


def _added_in_place(region: Region) -> Counter[tuple[Dim, ...]]:
    sums = ((region.by_id[n.inputs[0]], n.key) for n in region.nodes if has(n, Trait.ACCUMULATES))
    return Counter(grad.type.dims[-2:] for grad, place in sums if grad.storage == place)
