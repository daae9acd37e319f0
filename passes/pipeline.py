"""What two neighbouring pipeline stages exchange, as a region of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..ir.expr import Expr, as_expr, symbol, total
from ..ir.fixed_sizes import fixed_samples
from ..ir.graph import Graph, Node, Phase, Region, Role, Run, Value
from ..ir.layers import layer_row
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.ops.host import DOWN
from ..ir.placement import Replicate, Shard
from ..ir.stages import BOUNDARY
from .base import Pass, PassResult, require, require_sharded

PP, TP = "pp", "tp"


@dataclass(frozen=True, slots=True)
class Pipeline(Pass):
    """Add the region `boundary`: activations to the next stage, their gradients back, micro-batch by micro-batch.

    Sent is what blocks take from those before them, as it lies on the ranks: under sequence parallelism a shard.
    What stays the same from block to block (rotary tables) each stage makes itself. The gradient of a weight that the
    first and the last stage share is exchanged once a step. Which block stands on which stage is the plan's to say.

    | option  | meaning                                                                                         |
    |---------|-------------------------------------------------------------------------------------------------|
    | scatter | what is the same on all tensor-parallel ranks goes in pieces, one a rank, and is gathered there |
    """

    name: ClassVar[str] = "pipeline"
    scatter: bool = False

    def requires(self, graph: Graph) -> None:
        """What is sent comes from `shard`."""
        require_sharded(self.name, graph, sharded=True)
        require(PP not in graph.axes, f"graph '{graph.name}' has its stages already")

    def apply(self, graph: Graph) -> PassResult:
        """Append the region; the schedule names it zero times."""
        made = _Boundary(self.scatter and TP in graph.axes)
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            for v in _crossing(graph, phase):
                made.exchange(v, phase, f"{_word(phase)} between stages")
        for v in _shared_gradients(graph):
            made.exchange(v, Phase.REDUCE, f"gradient of '{v.name}', which first and last stage share")
        region = Region(BOUNDARY, tuple(made.values), tuple(made.nodes))
        schedule = (*graph.schedule, Run((BOUNDARY,), 0))
        axes = (*graph.axes, PP)
        return PassResult(replace(graph, regions=(*graph.regions, region), schedule=schedule, axes=axes), changed=True)


@dataclass
class _Boundary:
    """The region under construction; `scatter` sends a piece from each rank of what all of them have."""

    scatter: bool = False
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def exchange(self, v: Value, phase: Phase, why: str) -> None:
        """A value leaves one stage and arrives at the next; both happen at the same time."""
        start = len(self.values)
        whole = v
        if self.scatter and phase is not Phase.REDUCE and isinstance(v.placement(TP), Replicate):
            v = _piece(v)
        self.values += [
            Value(start, v.type, start, Role.INPUT, v.name, placements=v.placements),
            Value(start + 1, v.type, start, placements=v.placements),
            Value(start + 2, v.type, start + 2, placements=v.placements),
        ]
        attrs = CollectiveAttrs(PP, why=why)
        self.nodes.append(Node("send", (start,), (start + 1,), attrs, phase=phase))
        self.nodes.append(Node("recv", (start + 1,), (start + 2,), attrs, phase=phase))
        if v is not whole:
            self.values.append(Value(start + 3, whole.type, start + 3, placements=whole.placements))
            gather = CollectiveAttrs(TP, v.type.rank - 1, f"pieces of {why} put together over {TP}")
            self.nodes.append(Node("all_gather", (start + 2,), (start + 3,), gather, phase=phase))


def _piece(v: Value) -> Value:
    """The part of the last dim that one tensor-parallel rank sends."""
    *outer, last = v.type.dims
    placements = tuple((a, Shard(v.type.rank - 1) if a == TP else p) for a, p in v.placements)
    return replace(v, type=v.type.with_dims((*outer, as_expr(last) / symbol(TP))), placements=placements)


def _word(phase: Phase) -> str:
    return "activations" if phase is Phase.FORWARD else "gradients"


def _crossing(graph: Graph, phase: Phase) -> Iterator[Value]:
    """Yield what crosses the border between two neighbouring blocks, of borders that differ the one with most bytes.

    That is what blocks on one side hand on to any region behind the border: to the next block, and, where layers share
    keys and values or all add a value of the first one, to later ones. What the prologue makes each stage makes itself,
    its gradient too; and so what neither the first block takes nor depends on the micro-batch.
    """
    order = [graph.region(n) for run in graph.schedule for _ in range(min(run.count, 2)) for n in run.regions]
    row = layer_row(graph)
    blocks = range(len(row.head), len(order) - len(row.tail))
    makers, readers = blocks, range(blocks.start, len(order))
    if phase is Phase.BACKWARD:
        order, blocks = order[::-1], range(len(row.tail), len(order) - len(row.head))
        makers, readers = range(blocks.stop), blocks
    own = fixed_samples(graph)
    taken = {v.name for v in order[blocks.start].of_role(Role.PORT)}
    crossing: dict[int, dict[str, Value]] = {border: {} for border in blocks[:-1]}
    made: dict[str, int] = {}
    for place, region in enumerate(order):
        for v in region.of_role(Role.PORT) if place in readers else ():
            sizes = {s for d in v.type.dims if isinstance(d, Expr) for s in d.symbols}
            if v.name in made and (v.name in own or "mbs" in sizes or (sizes and v.name in taken)):
                for border in crossing.keys() & range(made[v.name], place):
                    crossing[border].setdefault(v.name, v)
        if place in makers:
            made |= {p.name: place for p in region.outputs if _phase(region, p.value) is phase}
    yield from max(crossing.values(), key=_size, default={}).values()


def _size(values: Mapping[str, Value]) -> float:
    """Elements, with any lengths: what matters is the order of two borders of one graph."""
    numel = total(v.type.numel for v in values.values())
    return float(numel.evaluate(dict.fromkeys(numel.symbols, 64.0)))


def _phase(region: Region, value: int) -> Phase | None:
    node = region.producer.get(value)
    if node is None or node.phase is Phase.RECOMPUTE or node.op == DOWN:
        return None  # what a stage runs again, or has in host memory, does not cross
    return Phase.FORWARD if node.phase is Phase.FORWARD else Phase.BACKWARD


def _shared_gradients(graph: Graph) -> Iterator[Value]:
    """Yield the running sums of weights that both ends use: each end holds a copy and both must agree."""
    names = graph.sequence_once()
    first, last = graph.region(names[0]), graph.region(names[-1])
    shared = {v.name for v in last.of_role(Role.PARAM)} & {v.name for v in first.of_role(Role.PARAM)}
    for region in (first, last):
        for param, grad in region.grads:
            name = region.by_id[param].name
            if name in shared and first is not last:
                yield replace(region.by_id[grad], name=name)
