"""A step of one pipeline stage as nodes of a Chakra trace: kernels and messages with what each waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from types import MappingProxyType

import numpy as np

from ....driver.estimate import Estimate
from ....ir.graph import Node, Phase
from ....ir.ops import Trait, has
from ....ir.ops.collectives import CollectiveAttrs
from ....ir.placement import NO_AXES, AxisGroup
from ....ir.records import dataclass
from ....ir.schedules.kind import Kind
from ..chrome.stage_events import Links
from ..costed import CostedNode, costed_rows
from ..nodes import COMPUTE, COPY_DOWN, NodeTime, keyed
from ..once import OncePiece, before, behind
from ..stages import ChunkRow
from ..timeline import Timeline

# Collectives by the numbers of `et_def.proto`; a ring is the collective that it takes the place of.
ALL_GATHER = 2
COLLECTIVES: Mapping[str, int] = MappingProxyType(
    {
        "all_reduce": 0,
        "all_gather": ALL_GATHER,
        "ring_gather": ALL_GATHER,
        "broadcast": 5,
        "all_to_all": 6,
        "reduce_scatter": 7,
        "ring_scatter": 7,
    }
)


def axis_of(node: Node) -> AxisGroup:
    """Return the mesh axes of a collective's group, nothing for other nodes."""
    attrs = node.attrs
    return attrs.axis if isinstance(attrs, CollectiveAttrs) and not has(node, Trait.SENDS, Trait.RECEIVES) else NO_AXES


class NodeType(IntEnum):
    """Types of nodes, by the numbers of Chakra's `et_def.proto`."""

    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of the trace of a rank; its number is its place.

    Attributes:
        name: op and module path, with the number of the layer in it.
        kind: its type.
        data_deps: nodes whose results it reads.
        ctrl_deps: the node before it on its stream.
        time_s: seconds alone, by the prediction.
        flops: of a kernel.
        num_bytes: what a kernel moves, what a message carries (S, the full logical vector).
        op: of a collective, as in `all_gather`.
        axis: mesh axes of its group, as in `ep+dp`; empty for what is no collective.
        peer: the stage that a message goes to or comes from.
        tag: the task whose result such a message carries; the same on both sides.
    """

    name: str
    kind: NodeType
    data_deps: tuple[int, ...]
    ctrl_deps: tuple[int, ...]
    time_s: float = 0.0
    flops: float = 0.0
    num_bytes: float = 0.0
    op: str = ""
    axis: AxisGroup = NO_AXES
    peer: int = -1
    tag: int = 0


@dataclass(slots=True)
class _Rows:
    """Nodes under construction: the last one of each stream, and behind which one each layer is through."""

    nodes: list[TraceNode] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    through: dict[int, int] = field(default_factory=dict)

    def put(self, node: TraceNode, stream: str) -> int:
        number = len(self.nodes)
        self.nodes.append(node)
        self.last[stream] = number
        return number

    def behind(self, stream: str) -> tuple[int, ...]:
        return (self.last[stream],) if stream in self.last else ()


class StageTrace:
    """Makes the nodes of stages of a timeline. What no node of the graph takes (contention, the host) is left out."""

    def __init__(self, timeline: Timeline) -> None:
        """Take a step on the clock; nothing is made yet."""
        answer: Estimate = timeline.answer
        self._timeline, self._graph = timeline, answer.table.lowered.graph
        self._rows: Mapping[str, CostedNode] = {row.node: row for row in costed_rows(answer)}
        self._links = Links.of(timeline)

    def nodes(self, stage: int) -> Sequence[TraceNode]:
        """Return the nodes of one step of a stage, in an order in which each stands behind what it waits for."""
        rows, simulated = _Rows(), self._timeline.simulated
        for piece in before(self._timeline, stage):
            self._once(rows, piece, rows.behind(COMPUTE))
        entering: tuple[int, ...] = tuple(rows.last.values())
        mine = np.flatnonzero(simulated.stage == stage)
        for task in mine[np.argsort(simulated.start_s[mine], kind="stable")].tolist():
            self._task(rows, stage, task, entering)
            entering = ()
        for piece in behind(self._timeline, stage):
            reduces = piece.node is not None and piece.node.phase is Phase.REDUCE
            ready = (
                (rows.through[piece.layer],) if reduces and piece.layer in rows.through else tuple(rows.last.values())
            )
            self._once(rows, piece, ready)
        return rows.nodes

    def _task(self, rows: _Rows, stage: int, task: int, entering: tuple[int, ...]) -> None:
        """Receive what the task waits for, run its regions one behind the other, and hand its result on."""
        simulated, kind = self._timeline.simulated, Kind(int(self._timeline.simulated.kind[task]))
        chunk = int(simulated.chunk[task])
        row = self._timeline.stages.chunks[stage][chunk]
        source, taker = int(self._links.source[task]), int(self._links.to[task])
        ready = entering
        if source >= 0:
            there = int(simulated.stage[source])
            stream = f"from stage {there}"
            got = TraceNode(
                f"receive from stage {there}",
                NodeType.RECV,
                (),
                rows.behind(stream),
                num_bytes=self._sent_bytes(row, kind),
                peer=there,
                tag=source,
            )
            ready = (*ready, rows.put(got, stream))
            ready = self._run(rows, row.border, self._border(row, kind), -1, ready) if row.border else ready
        places = list(zip(row.regions, row.layers, strict=True))
        for name, layer in places if kind is Kind.FORWARD else places[::-1]:
            ready = self._run(rows, name, keyed(self._graph.region(name), kind, self._timeline.late), layer, ready)
            if kind is not Kind.FORWARD and ready:
                rows.through[layer] = ready[0]
        if taker >= 0:
            there = int(simulated.stage[taker])
            sent = TraceNode(
                f"send to stage {there}",
                NodeType.SEND,
                ready,
                rows.behind(f"to stage {there}"),
                num_bytes=self._sent_bytes(row, kind),
                peer=there,
                tag=task,
            )
            rows.put(sent, f"to stage {there}")

    def _run(
        self, rows: _Rows, region: str, nodes: Iterable[Node], layer: int, ready: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Run nodes of a region once; return what comes behind it has to wait for: its last kernel.

        What reads nothing that was made in this run waits for what was there before it; a gather of parameters may
        start as early as the run before.
        """
        times, made = self._timeline.nodes[region], dict[int, tuple[int, ...]]()
        producer = self._graph.region(region).producer
        first = rows.behind(COMPUTE)
        for node in nodes:
            given = {dep for i in node.inputs if i in producer for dep in made.get(producer[i].key, ())}
            time = times.get(node.key)
            if time is None or _is_alone(time):
                made[node.key] = tuple(sorted(given))
                continue
            deps = tuple(sorted(given)) or (first if time.gathers else ready)
            made[node.key] = (self._node(rows, time, layer, deps),)
        return rows.behind(COMPUTE)

    def _node(self, rows: _Rows, time: NodeTime, layer: int, deps: tuple[int, ...]) -> int:
        row = self._rows[f"{time.region}/%{time.key}"]
        scope = time.scope.replace("*", str(layer), 1) if layer >= 0 else time.scope
        name, ctrl = f"{time.op} {scope}".strip(), rows.behind(time.stream)
        if time.is_message:
            node = self._graph.region(time.region).producer[time.key]
            axis = axis_of(node)
            made = TraceNode(
                name, NodeType.COLLECTIVE, deps, ctrl, time.time_s, num_bytes=row.num_bytes, op=time.op, axis=axis
            )
        elif time.is_copy:
            way = NodeType.MEM_STORE if time.stream == COPY_DOWN else NodeType.MEM_LOAD
            made = TraceNode(name, way, deps, ctrl, time.time_s, num_bytes=row.num_bytes)
        else:
            flops = row.tensor_flops + row.vector_flops
            made = TraceNode(name, NodeType.COMP, deps, ctrl, time.time_s, flops, row.num_bytes)
        return rows.put(made, time.stream)

    def _once(self, rows: _Rows, piece: OncePiece, ready: tuple[int, ...]) -> None:
        if piece.node is not None and not _is_alone(piece.node):
            self._node(rows, piece.node, piece.layer, ready)

    def _border(self, row: ChunkRow, kind: Kind) -> Iterator[Node]:
        """Yield what puts together the pieces that another stage sent."""
        nodes = keyed(
            self._graph.region(row.border), Kind.FORWARD if kind is Kind.FORWARD else Kind.BACKWARD, frozenset()
        )
        yield from (n for n in nodes if not has(n, Trait.SENDS, Trait.RECEIVES))

    def _sent_bytes(self, row: ChunkRow, kind: Kind) -> float:
        """Bytes of the messages over the border of a chunk."""
        if not row.border:
            return 0.0
        phase = Kind.FORWARD if kind is Kind.FORWARD else Kind.BACKWARD
        nodes = keyed(self._graph.region(row.border), phase, frozenset())
        found = (self._rows.get(f"{row.border}/%{n.key}") for n in nodes if has(n, Trait.SENDS))
        return sum(r.num_bytes for r in found if r is not None)


def _is_alone(time: NodeTime) -> bool:
    """Whether it is a collective of one rank, which sends nothing."""
    return time.is_message and time.time_s == 0.0
