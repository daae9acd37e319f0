"""What two neighbouring pipeline stages exchange, as regions of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar, TypeAlias

from ..ir.graph import Graph, Node, Phase, Region, Role, Run, Value, Workload
from ..ir.layers import layer_row
from ..ir.ops import Trait, has
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.placement import PP, TP, MeshAxis, Placement, Replicate, Shard
from ..ir.plan.layout.stages import BOUNDARY, SHARED
from ..ir.records import dataclass
from ..ir.sizes.expr import Expr, as_expr, symbol
from ..ir.sizes.fixed_sizes import fixed_samples
from ..ir.types import TensorType
from .base import Pass, PassResult, require, require_sharded

_PHASES = (Phase.FORWARD, Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class _Crossing:
    """A value that crosses a border, and whether stages behind it have it longer than the next layer needs it."""

    value: Value
    stays: bool

    @property
    def kind(self) -> tuple[str, TensorType, tuple[tuple[MeshAxis, Placement], ...]]:
        """What of it a message depends on."""
        return str(self.stays), self.value.type, self.value.placements


# What crosses one border in each phase, by port.
_Border: TypeAlias = Mapping[Phase, Mapping[str, _Crossing]]


@dataclass(frozen=True, slots=True)
class Pipeline(Pass):
    """Add a region for each kind of border between layers: activations go on, their gradients come back.

    Sent is what regions behind a border take from those before it, as it lies on the ranks: under sequence parallelism
    a shard. What a late layer reads of an early one, or of what runs before all layers, passes through the stages
    between, as in Megatron-LM (core/pipeline_parallel/schedules.py: a stage gets all from the one before it), and in
    training these keep it with the micro-batch. What runs before all layers and reads no weight (rotary tables, masks)
    each stage makes itself. Gradients of a weight that several stages hold are added up once a step. Which layer stands
    on which stage is the plan's to say.

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
        """Append the regions; the schedule names them zero times: one a border, or one for all, and what is shared."""
        scatter, made, names = self.scatter and TP in graph.axes, dict[_Kind, Region](), list[str]()
        for border in _borders(graph):
            # Borders of one kind have messages that are alike: layers of two kinds in turns use ports in turns.
            kinds = ([c.kind for c in border[phase].values()] for phase in _PHASES)
            kind = tuple(tuple(sorted(some, key=str) if len(some) > 1 else some) for some in kinds)
            if kind not in made:
                made[kind] = _between(f"{BOUNDARY}{len(made) or ''}", border, scatter)
            names.append(made[kind].name)
        runs = [Run(tuple(names if len(made) > 1 else names[:1]), 0)]
        regions = list(made.values())
        for k, (holders, gradients) in enumerate(_shared_gradients(graph).items()):
            regions.append(_summed(f"{SHARED}{k or ''}", gradients))
            runs.append(Run((regions[-1].name, *holders), 0))
        wider = replace(graph, regions=(*graph.regions, *regions), schedule=(*graph.schedule, *runs))
        return PassResult(replace(wider, axes=(*graph.axes, PP)), changed=True)


_Kind: TypeAlias = tuple[tuple[tuple[str, TensorType, tuple[tuple[MeshAxis, Placement], ...]], ...], ...]


def _between(name: str, border: _Border, scatter: bool) -> Region:
    """The region of what crosses a border."""
    made = _Boundary(scatter)
    for phase in _PHASES:
        for crossing in border[phase].values():
            made.exchange(crossing.value, phase, f"{_word(phase)} between stages", crossing.stays)
    return Region(name, tuple(made.values), tuple(made.nodes))


def _summed(name: str, gradients: Sequence[Value]) -> Region:
    """The region in which stages add up gradients of weights that each of them holds: what two of them would send."""
    made = _Boundary()
    for v in gradients:
        made.exchange(v, Phase.REDUCE, f"gradient of '{v.name}', of which several stages hold a copy")
    return Region(name, tuple(made.values), tuple(made.nodes))


@dataclass
class _Boundary:
    """The region under construction; `scatter` sends a piece from each rank of what all of them have."""

    scatter: bool = False
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def exchange(self, v: Value, phase: Phase, why: str, stays: bool = False) -> None:
        """A value leaves one stage and arrives at the next, which may keep it; both happen at the same time."""
        start = len(self.values)
        whole = v
        if self.scatter and phase is not Phase.REDUCE and isinstance(v.placement(TP), Replicate):
            v = _piece(v)
        self.values += [
            Value(start, v.type, start, Role.INPUT, v.name, placements=v.placements),
            Value(start + 1, v.type, start, placements=v.placements),
            Value(start + 2, v.type, start + 2, placements=v.placements, saved=stays and v is whole),
        ]
        attrs = CollectiveAttrs(PP.group, why=why)
        self.nodes.append(Node("send", (start,), (start + 1,), attrs, phase=phase))
        self.nodes.append(Node("recv", (start + 1,), (start + 2,), attrs, phase=phase))
        if v is not whole:
            self.values.append(Value(start + 3, whole.type, start + 3, placements=whole.placements, saved=stays))
            gather = CollectiveAttrs(TP.group, v.type.rank - 1, f"pieces of {why} put together over {TP}")
            self.nodes.append(Node("all_gather", (start + 2,), (start + 3,), gather, phase=phase))


def _piece(v: Value) -> Value:
    """The part of the last dim that one tensor-parallel rank sends."""
    *outer, last = v.type.dims
    placements = tuple((a, Shard(v.type.rank - 1) if a == TP else p) for a, p in v.placements)
    return replace(v, type=v.type.with_dims((*outer, as_expr(last) / symbol(TP))), placements=placements)


def _word(phase: Phase) -> str:
    return "activations" if phase is Phase.FORWARD else "gradients"


def _borders(graph: Graph) -> list[_Border]:
    """What crosses the border before each layer and behind the last one."""
    row = layer_row(graph)
    groups = [[graph.region(name) for name in group] for group in (row.head, *row.units, row.tail)]
    own, free = fixed_samples(graph), _without_weights(groups[0])
    found: list[dict[Phase, dict[str, _Crossing]]] = [{phase: {} for phase in _PHASES} for _ in groups[1:]]
    for phase in _PHASES:
        made: dict[str, int] = {}
        step = 1 if phase is Phase.FORWARD else -1
        for k in range(len(groups))[::step]:
            for region in groups[k][::step]:
                for v in region.of_role(Role.PORT):
                    maker = made.get(v.name, k)
                    if (is_weight(v) and v.name not in own) or (maker == 0 and v.name in free):
                        continue
                    stays = abs(k - maker) > 1 and phase is Phase.FORWARD and graph.workload is Workload.TRAIN
                    for border in range(min(k, maker), max(k, maker)):
                        before = found[border][phase].get(v.name)
                        found[border][phase][v.name] = _Crossing(v, stays or (before is not None and before.stays))
                made |= {p.name: k for p in region.outputs if _phase(region, p.value) is phase}
    return list(found)


def is_weight(v: Value) -> bool:
    """Whether no dim counts tokens: the sizes of a weight depend on degrees alone."""
    symbols = {s for d in v.type.dims if isinstance(d, Expr) for s in d.symbols}
    return not symbols & {"mbs", "seq", "kv", "batch"}


def _without_weights(head: Sequence[Region]) -> frozenset[str]:
    """The ports through which comes what runs before all layers and reads no weight, no cache and nothing made so."""
    found: set[str] = set()
    for region in head:
        bound = {
            v.id
            for v in region.values
            if v.role in (Role.PARAM, Role.CACHE) or (v.role is Role.PORT and v.name not in found)
        }
        for node in (n for n in region.nodes if not bound.isdisjoint(n.inputs)):
            bound.update(node.outputs)
        found |= {p.name for p in region.outputs if p.value not in bound}
    return frozenset(found)


def _phase(region: Region, value: int) -> Phase | None:
    node = region.producer.get(value)
    if node is None or node.phase is Phase.RECOMPUTE or has(node, Trait.TO_HOST):
        return None  # what a stage runs again, or has in host memory, does not cross
    return Phase.FORWARD if node.phase is Phase.FORWARD else Phase.BACKWARD


def _shared_gradients(graph: Graph) -> Mapping[tuple[str, ...], list[Value]]:
    """The running sums of weights that several layers or ends read, by the regions that do."""
    row = layer_row(graph)
    groups: dict[str, set[int]] = {}
    holders: dict[str, dict[str, None]] = {}
    for k, group in enumerate((row.head, *row.units, row.tail)):
        for region in map(graph.region, group):
            for v in region.of_role(Role.PARAM):
                if "*" not in v.name:
                    groups.setdefault(v.name, set()).add(k)
                    holders.setdefault(v.name, {})[region.name] = None
    grads = {
        r.by_id[param].name: replace(r.by_id[grad], name=r.by_id[param].name)
        for r in graph.regions
        for param, grad in r.grads
    }
    found: dict[tuple[str, ...], list[Value]] = {}
    for name in sorted(grads.keys() & {n for n, places in groups.items() if len(places) > 1}):
        found.setdefault(tuple(holders[name]), []).append(grads[name])
    return found
