"""What is in a traced graph at given sizes: parameters, regions, ops by kind, with their FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from ...ir.graph import Graph, Node, Phase, Region, Role, Workload
from ...ir.ops import op_def, work_of
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr, Num, total
from ...ir.sizes.fixed_sizes import check_bounds, counts_tokens

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Amount:
    """What calls do together: how many they are, products of matrices, other arithmetic, bytes through memory."""

    calls: int = 0
    matrix_flops: float = 0.0
    vector_flops: float = 0.0
    num_bytes: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.calls + other.calls,
            self.matrix_flops + other.matrix_flops,
            self.vector_flops + other.vector_flops,
            self.num_bytes + other.num_bytes,
        )


@dataclass(frozen=True, slots=True)
class RegionRow:
    """A part of the graph, all its runs together: `count` times `num_nodes`."""

    name: str
    count: int
    num_nodes: int
    num_parameters: float
    amount: Amount
    saved_bytes: float


@dataclass(frozen=True, slots=True)
class OpRow:
    """All calls of one op."""

    op: str
    kind: str
    amount: Amount


@dataclass(frozen=True, slots=True)
class GraphContents:
    """A graph at some sizes; FLOPs count masked positions, saved bytes are those of one micro-batch."""

    graph: Graph
    sizes: Mapping[str, int]
    num_parameters: float
    parameter_bytes: float
    cache_bytes: float
    saved_bytes: float
    by_phase: Mapping[str, Amount]
    regions: tuple[RegionRow, ...]
    ops: tuple[OpRow, ...]

    @property
    def whole(self) -> Amount:
        """All calls of one pass over the model."""
        return sum((row.amount for row in self.ops), Amount())


def sizes_of(graph: Graph, batch: int, seq: int) -> Mapping[str, int]:
    """Return the symbols of a graph: in decode `seq` tokens are cached and one is new; other lengths are `seq` too.

    Where samples are no sequences, there is no length. UsageError for sizes that the graph does not hold for.
    """
    check_bounds(graph, {"batch": batch, "seq": seq, "kv": seq})
    if not counts_tokens(graph):
        return {"batch": batch}
    if graph.workload is Workload.DECODE:
        return {"batch": batch, "seq": 1, "kv": seq}
    lengths = {s for r in graph.regions for v in r.of_role(Role.INPUT) for s in v.type.numel.symbols}
    return {"batch": batch, "seq": seq, **dict.fromkeys(sorted(lengths - {"batch", "seq"}), seq)}


def contents_of(graph: Graph, sizes: Mapping[str, int]) -> GraphContents:
    """Sum what a graph does in one pass over the model at some sizes."""
    calls = [(r, n, amount_of(graph, r, n, sizes)) for r in graph.regions for n in r.nodes]
    by_op, by_phase = summed((n.op, a) for _, n, a in calls), summed((n.phase, a) for _, n, a in calls)
    caches = [(graph.counts[r.name], v.type.num_bytes) for r in graph.regions for v in r.of_role(Role.CACHE)]
    rows = (OpRow(op, str(op_def(op).kind), amount) for op, amount in by_op.items())
    return GraphContents(
        graph=graph,
        sizes=sizes,
        num_parameters=_at(graph.num_parameters, sizes),
        parameter_bytes=_at(graph.parameter_bytes, sizes),
        cache_bytes=sum(count * _at(size, sizes) for count, size in caches),
        saved_bytes=_at(graph.saved_bytes, sizes),
        by_phase={str(phase): by_phase[phase] for phase in Phase if phase in by_phase},
        regions=tuple(_region_row(graph, r, sizes) for r in graph.regions if r.nodes),
        ops=tuple(sorted(rows, key=lambda row: (-row.amount.matrix_flops, -row.amount.num_bytes, row.op))),
    )


def _region_row(graph: Graph, region: Region, sizes: Mapping[str, Num]) -> RegionRow:
    count = graph.counts[region.name]
    return RegionRow(
        name=region.name,
        count=count,
        num_nodes=len(region.nodes),
        num_parameters=_at(total(v.type.numel for v in region.of_role(Role.PARAM)), sizes) * count,
        amount=sum((amount_of(graph, region, n, sizes) for n in region.nodes), Amount()),
        saved_bytes=_at(region.saved_bytes, sizes) * count,
    )


def _at(expr: Expr, sizes: Mapping[str, Num]) -> float:
    return float(expr.evaluate(sizes))


def amount_of(graph: Graph, region: Region, node: Node, sizes: Mapping[str, Num]) -> Amount:
    """Return what all calls of a node do: its region may run many times."""
    work, count = work_of(region, node), graph.counts[region.name]
    flops, other, moved = (_at(e, sizes) * count for e in (work.tensor_flops, work.vector_flops, work.num_bytes))
    return Amount(count, flops, other, moved)


def summed(parts: Iterable[tuple[K, Amount]]) -> dict[K, Amount]:
    """Add up amounts by key."""
    found: dict[K, Amount] = {}
    for key, amount in parts:
        found[key] = found.get(key, Amount()) + amount
    return found
