"""What a rank has of samples: its replica's part of an open batch, or all of a fixed one; its part of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.graph import Graph, Node, Region, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.placement import CP, DP, EP, FSDP, PARTIAL, REPLICATE, UP, MeshAxis, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, product, symbol
from ...ir.sizes.fixed_sizes import fixed_sizes
from .annotate import Placements
from .ask import SAMPLE_AXES
from .builder import RegionBuilder

_BATCH = "batch"


def data_axes(hsdp: bool, ep: bool) -> tuple[MeshAxis, ...]:
    """The axes that deal out the batch: scattering over `fsdp` comes before summing over `dp`, which then has less."""
    return (*([FSDP] if hsdp else []), DP, *([EP] if ep else []))


def localised(graph: Graph, axes: tuple[MeshAxis, ...]) -> Graph:
    """Speak of the micro-batch a replica runs: the traced batch is that of all replicas together.

    What has a number for each pair of samples (their likeness, in a contrastive loss) has those of a replica's own
    pairs: the module sees no samples but these, and what gathers others says so by a message of its own.
    """
    all_samples: dict[str, Dim] = {_BATCH: product(map(symbol, ("mbs", *axes)))}
    own: dict[str, Dim] = {_BATCH: symbol("mbs")}

    def local(v: Value) -> Value:
        return replace(v, type=v.type.substitute(own if v.type.power(_BATCH) > 1 else all_samples))

    return graph.with_regions(tuple(replace(r, values=tuple(map(local, r.values))) for r in graph.regions))


@dataclass(frozen=True, slots=True)
class OwnBatch:
    """What is special about a graph whose batch, or length, is a number.

    A fixed batch is what one replica runs, and each has samples of its own: results lie whole on all of them and
    differ. So the gradient that a replica makes of a parameter is its part of a sum over all, and nothing else crosses
    the axes of data parallelism.

    Attributes:
        is_fixed: whether the batch is a number.
        length: the tokens of a sequence where they are a number.
        gradients: of each region, the gradients of parameters as a micro-batch makes them.
    """

    is_fixed: bool
    length: int | None
    gradients: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, graph: Graph) -> OwnBatch:
        """Look at the inputs of a graph that is not sharded yet."""
        batch, length = fixed_sizes(graph)
        return cls(batch is not None, length, {r.name: _made(r) for r in graph.regions})

    def source(self, v: Value, lies: Placements) -> Placements:
        """Return how an input, cache or parameter lies: a fixed batch is not distributed."""
        if not self.is_fixed or v.role not in (Role.INPUT, Role.CACHE):
            return lies
        return {**lies, **dict.fromkeys(SAMPLE_AXES, REPLICATE)}

    def settle(self, b: RegionBuilder, node: Node) -> None:
        """Let the gradients that a node makes of parameters be what they are: partial sums."""
        for made in self.gradients[b.old.name].intersection(node.outputs) if self.is_fixed else ():
            lies = b.where[b.now[made]]
            b.settle(made, {a: PARTIAL if a in SAMPLE_AXES and p == REPLICATE else p for a, p in lies.items()}, node)

    def is_length(self, dim: Dim) -> bool:
        """Whether a dim in the place of the sequence is one."""
        return "seq" in dim.symbols if isinstance(dim, Expr) else dim == self.length


def _made(region: Region) -> frozenset[int]:
    """The gradients of parameters before they are added up over micro-batches."""
    sums = {n.key: n.inputs[0] for n in region.nodes if has(n, Trait.ACCUMULATES)}
    return frozenset(sums.get(grad, grad) for _, grad in region.grads)


def back_to_sequence(b: RegionBuilder, node: Node, axes: tuple[MeshAxis, ...], ring: bool) -> None:
    """What attention makes lies over the sequence again: the result (dim 1), gradients of q, k and v (dim 2).

    So do the result of a scan and the gradients of what has a value a token (dim 1).
    """
    if ring and has(node, Trait.ATTENDS, backward=True):
        b.ring_scatter(node.outputs[1:3], Shard(2), node)
    dim, outs = (2, node.outputs[:3]) if has(node, Trait.ATTENDS, backward=True) else (1, node.outputs[:1])
    if has(node, OpClass.SCAN, backward=True):
        outs = tuple(o for o in node.outputs if b.old.by_id[o].type.rank > 2)
    for out in outs:
        have = b.where[b.now[out]]
        along = [a for a in axes if a in (UP, CP) and have[a] != REPLICATE]
        if along:
            b.settle(out, {**have, **dict.fromkeys(along, Shard(dim))}, node)
