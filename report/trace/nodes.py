"""Every priced node with what a slice of the timeline says of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Set
from typing import TypeAlias

import numpy as np

from ...backends.network.collectives import collective_time
from ...backends.pricing.places import placed_system
from ...backends.pricing.program import PricedEntry, group_factors
from ...backends.pricing.timing import PricedGroup
from ...cost.step.beside import axis_of
from ...driver.estimate import Estimate
from ...ir.graph import Node, Phase, Region
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.host import DOWN, UP, UPDATE
from ...ir.records import dataclass
from ...ir.schedules.kind import Kind
from .costed import CostedNode, costed_rows

# Nodes by region and key.
Late: TypeAlias = Set[tuple[str, int]]
COMPUTE, HOST = "compute", "host"
COPY_DOWN, COPY_UP = "copy down", "copy up"
_STREAMS = {DOWN: COPY_DOWN, UP: COPY_UP, UPDATE: HOST}
_AGAIN = (Phase.BACKWARD, Phase.RECOMPUTE)


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node of the graph on the timeline.

    Attributes:
        region: its region.
        key: its key there.
        op: its op.
        name: what a slice is called: the op and the end of the module path, the same in every layer.
        scope: module path, the layer's number a star.
        phase: the phase of the graph.
        stream: what it occupies: compute, the axis of a message, a direction of copies, the host.
        part: the part of the breakdown that it is booked on.
        time_s: seconds, alone.
        gathers: whether it brings what later nodes need, so that it may start early.
        args: what else is known of it, as members of a JSON object.
    """

    region: str
    key: int
    op: str
    name: str
    scope: str
    phase: Phase
    stream: str
    part: str
    time_s: float
    gathers: bool
    args: str

    @property
    def is_message(self) -> bool:
        """Whether it is communication between devices."""
        return self.part.startswith("comm.")

    @property
    def is_compute(self) -> bool:
        """Whether it computes on the device."""
        return self.stream == COMPUTE

    @property
    def is_copy(self) -> bool:
        """Whether it copies to or from the host."""
        return self.stream in (COPY_DOWN, COPY_UP)


def node_times(answer: Estimate) -> Mapping[str, Mapping[int, NodeTime]]:
    """Return the priced nodes by region and key."""
    rows = {row.node: row for row in costed_rows(answer)}
    graph = answer.table.lowered.graph
    found: dict[str, dict[int, NodeTime]] = {r.name: {} for r in graph.regions}
    for priced in answer.table.timing.priced:
        for i, entry in enumerate(priced.group.entries):
            if has(entry, Trait.RECEIVES):
                continue  # it runs while the send does that it waits for
            args = json.dumps(dict(_args(answer, entry, rows[entry.name], priced, i)), separators=(",", ":"))[1:-1]
            found[entry.region][entry.key] = _node(graph.region(entry.region), entry, rows[entry.name], args)
    return found


def nodes_of(region: Region, times: Mapping[int, NodeTime], kind: Kind, late: Late) -> list[NodeTime]:
    """Return the nodes that one kind of task runs in one run of a region, in running order."""
    return [times[n.key] for n in keyed(region, kind, late) if n.key in times]


def keyed(region: Region, kind: Kind, late: Late) -> list[Node]:
    """Return all nodes that one kind of task runs in one run of a region, those that take no time among them.

    `late` are those of the backward phase that only lead to gradients of weights.
    """
    if kind is Kind.FORWARD:
        return [n for n in region.nodes if n.phase is Phase.FORWARD]
    behind = [n for n in region.nodes if n.phase in _AGAIN]
    if kind is Kind.BACKWARD:
        return behind
    return [n for n in behind if ((region.name, n.key) in late) is (kind is Kind.WGRAD)]


def once_of(region: Region, times: Mapping[int, NodeTime], phase: Phase) -> list[NodeTime]:
    """Return the nodes of a phase that runs once a step, in running order."""
    return [times[n.key] for n in region.nodes if n.key in times and not has(n, Trait.RECEIVES) and n.phase is phase]


def _node(region: Region, entry: PricedEntry, row: CostedNode, args: str) -> NodeTime:
    node = region.producer[entry.key]
    stream = _STREAMS.get(entry.op) or (COMPUTE if entry.message is None else axis_of(entry))
    short = ".".join([p for p in entry.scope.split(".") if p != "*"][-2:])
    part = f"comm.{stream}" if entry.message is not None else f"compute.{entry.kind}"
    if entry.phase is Phase.OPTIMIZER and entry.message is None:
        part = "optimizer"
    # Whether no computation of its own phase makes what a message or a copy brings.
    if not has(node, OpClass.COMMUNICATION, OpClass.HOST) or has(node, Trait.TO_HOST):
        gathers = False
    else:
        made = [region.producer[i] for i in node.inputs if i in region.producer]
        gathers = (has(node, Trait.SCATTERS) and not has(node, Trait.RING)) or not any(
            n.phase is node.phase for n in made
        )
    name = f"{entry.op} {short}".strip()
    return NodeTime(
        region.name, entry.key, entry.op, name, entry.scope, entry.phase, stream, part, row.time_s, gathers, args
    )


def _args(
    answer: Estimate, entry: PricedEntry, row: CostedNode, priced: PricedGroup, i: int
) -> Iterator[tuple[str, object]]:
    yield "node", entry.name
    yield "op", entry.op
    yield "phase", str(entry.phase)
    yield "bound", row.bound
    yield "alone_us", short(row.time_s * 1e6)
    if entry.message is not None:
        yield from _collective(answer, entry, row, priced)
        return
    if row.tensor_flops or row.vector_flops:
        yield "flops", short(row.tensor_flops + row.vector_flops)
    yield "bytes", short(row.num_bytes)
    if priced.kernels is not None:
        at, shape = (i, int(priced.point[0])), priced.kernels.time_s.shape
        terms = {n: float(np.broadcast_to(t, shape)[at]) for n, t in priced.kernels.terms.items()}
        yield "terms_us", {name: short(seconds * 1e6) for name, seconds in terms.items() if seconds}


def _collective(
    answer: Estimate, entry: PricedEntry, row: CostedNode, priced: PricedGroup
) -> Iterator[tuple[str, object]]:
    """What a message takes of each level it crosses, by the algorithm that is fastest."""
    degrees = {k: float(v) for k, v in answer.plan.mesh.items()}
    (first, stride), *more = group_factors(entry.axis, degrees, answer.plan.family.order)
    yield "axis", entry.axis
    yield "ranks", short(float(first) * math.prod(float(n) for n, _ in more))
    yield "message_bytes", short(row.num_bytes)
    if priced.collective is None or row.time_s == 0.0:
        return
    kind, system = priced.collective.kind, placed_system(answer.table.system, answer.plan)
    best = collective_time(kind, row.num_bytes, first, stride, system, more, entry.across).chosen()
    yield "algorithm", best.algorithm
    for term in best.terms:
        latency, bandwidth = float(term.latency_s), float(term.bandwidth_s)
        if latency or bandwidth:
            yield f"{term.level}_us", {"latency": short(latency * 1e6), "bandwidth": short(bandwidth * 1e6)}


def shown(node: Node, row: CostedNode | None) -> Iterator[tuple[str, str]]:
    """Yield what viewers show of a node: its phase and, where it is priced, runs, time, bound, FLOPs and bytes."""
    yield "phase", str(node.phase)
    if row is None:
        return
    yield "runs", str(row.count)
    yield "time_us", str(short(row.time_s * 1e6))
    yield "bound", row.bound
    if row.tensor_flops or row.vector_flops:
        yield "flops", str(short(row.tensor_flops + row.vector_flops))
    yield "bytes", str(short(row.num_bytes))


def short(value: float) -> float | int:
    """Round to six figures: what a slice says is for people.

    >>> short(12345678.9), short(0.1234567)
    (12345700, 0.123457)
    """
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) else rounded
