"""What bounds a step: each part of the breakdown spread over what its nodes wait for.

A kernel's launch, fixed work and what else nothing hides take their own seconds; the rest goes to the resource of the
greatest of the other terms, as on a roofline. A kernel that the host issues later than the one before it ends waits for
the host. A collective's seconds are latency and bandwidth of each network level, and the fixed work of the library.
Nodes count as often as they run on the stage that sets the pace; parts without nodes are what their name says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ..backends.kernels.terms import ADDED, RESOURCES, KernelTimes, Resource
from ..backends.network.collectives import Candidate
from ..backends.pricing.program import PricedEntry
from ..backends.pricing.timing import PricedGroup
from ..cost.step.step_program import RING, label_of
from ..cost.step.stragglers import STRAGGLERS
from ..driver.estimate import Estimate
from ..ir.graph import ONCE_A_STEP
from ..ir.ops.host import DOWN, UP

Seconds: TypeAlias = defaultdict[str, float]
HOST, OTHER = "host", "other"
# Parts that no node of the graph makes, by what their names begin with.
_WITHOUT_NODES = MappingProxyType(
    {
        "bubble": "bubble",
        STRAGGLERS: STRAGGLERS,
        "host": HOST,
        "checkpoint": "checkpoint",
        "offload": str(Resource.HOST_LINK),
    }
)
# Labels of nodes that the breakdown books under another name.
_BOOKED = MappingProxyType({RING: "comm.cp", DOWN: "offload", UP: "offload"})


def part_of(entry: PricedEntry) -> str | None:
    """Return the part of the breakdown that a node is booked on; None where another node takes the time."""
    label = label_of(entry)
    return None if label is None else _BOOKED.get(label[2], label[2])


def bound_seconds(answer: Estimate) -> Mapping[str, float]:
    """Return seconds of the step by what bounds them, the greatest first; they add up to `step_time_s`.

    Keys are resources (`matrix`, `vector`, `ingest`, `hbm`, `l2`, `launch`, `host_link`), `network.LEVEL.latency` and
    `network.LEVEL.bandwidth`, `host`, and what the breakdown has without nodes, such as `bubble`.
    """
    parts = _by_part(answer)
    found: Seconds = defaultdict(float)
    for part, seconds in answer.breakdown_s.items():
        if seconds:
            _add(found, _spread(seconds, _mix(part, parts)))
    return dict(sorted(found.items(), key=lambda kv: (-kv[1], kv[0])))


def node_seconds(answer: Estimate) -> Iterator[tuple[PricedGroup, int, PricedEntry, float]]:
    """Yield every node that the stage which sets the pace runs, with its seconds in a step, hidden or not."""
    runs, micro = _runs_at_pace(answer), answer.plan.num_micro_batches
    for priced in answer.table.timing.priced:
        point = int(priced.point[0])
        for row, entry in enumerate(priced.group.entries):
            times = runs.get(entry.region, 0.0) * (1 if entry.phase in ONCE_A_STEP else micro)
            seconds = float(priced.time_s[row, point]) * times
            if seconds and part_of(entry) is not None:
                yield priced, row, entry, seconds


def _runs_at_pace(answer: Estimate) -> Mapping[str, float]:
    """How often each region runs in one pass of the stage that sets the pace; messages between stages once a chunk."""
    staging, stages = answer.table.staging, answer.table.step.stages
    there = [k for k in range(staging.num_classes) if staging.is_there(k)[0]]
    cls = max(there, key=lambda k: float(stages[k].micro.total_s[0]))
    found = {name: float(times[0]) for name, times in staging.runs(cls).items()}
    return found | {name: float(times[0]) for name, times in staging.sent(cls).items()}


def _by_part(answer: Estimate) -> Mapping[str, Seconds]:
    """Seconds by part of the breakdown and by what bounds them, hidden or not."""
    found: dict[str, Seconds] = {}
    stack = answer.table.system.stack
    for priced, row, entry, seconds in node_seconds(answer):
        part = part_of(entry) or OTHER
        bounds = _message(priced, row) if entry.message is not None else _kernel(priced, row, stack.factor(entry.kind))
        _add(found.setdefault(part, defaultdict(float)), _spread(seconds, bounds))
    return found


def _mix(part: str, parts: Mapping[str, Seconds]) -> Mapping[str, float]:
    """What bounds a part: its nodes; else what its name says; of computation without nodes, what bounds the rest."""
    if part in parts:
        return parts[part]
    kind = part.partition(".")[0]
    if kind in _WITHOUT_NODES:
        return {_WITHOUT_NODES[kind]: 1.0}
    alike: Seconds = defaultdict(float)
    for name, bounds in parts.items():
        if name.partition(".")[0] == kind:
            _add(alike, bounds)
    return alike or {OTHER: 1.0}


def _add(found: Seconds, more: Mapping[str, float]) -> None:
    for name, seconds in more.items():
        found[name] += seconds


def _spread(seconds: float, over: Mapping[str, float]) -> dict[str, float]:
    whole = sum(over.values())
    return {name: seconds * (part / whole) for name, part in over.items() if part}


def _kernel(priced: PricedGroup, row: int, factor: float) -> Mapping[str, float]:
    """What bounds a kernel that takes so many times as long in a step."""
    if priced.kernels is None:
        return {OTHER: 1.0}
    point = int(priced.point[0])
    return kernel_bounds(priced.kernels, (row, point), float(priced.time_s[row, point]) / factor)


def kernel_bounds(kernels: KernelTimes, at: tuple[int, int], issued_s: float) -> Mapping[str, float]:
    """Return seconds of one kernel by what bounds them; `issued_s` is its time with the wait for the host.

    >>> terms = {"launch": np.array(1.0), "tensor": np.array(4.0), "memory": np.array(3.0)}
    >>> times = KernelTimes(np.array([[5.0]]), terms)
    >>> kernel_bounds(times, (0, 0), 6.0)
    {'launch': 1.0, 'matrix': 4.0, 'host': 1.0}
    """
    time_s = float(kernels.time_s[at])
    terms = {name: float(np.broadcast_to(t, kernels.time_s.shape)[at]) for name, t in kernels.terms.items()}
    found, left = defaultdict[str, float](float), time_s
    for name in [name for name in terms if name in ADDED]:
        own = min(terms.pop(name), left)
        found[str(RESOURCES[name])] += own
        left -= own
    most = max(terms, key=lambda name: terms[name], default="")
    found[str(RESOURCES.get(most, OTHER))] += left
    found[HOST] += max(issued_s - time_s, 0.0)
    return {name: s for name, s in found.items() if s > 0.0}


def chosen(priced: PricedGroup, row: int) -> Candidate | None:
    """Return the algorithm that is fastest for a message of the first plan."""
    if priced.collective is None:
        return None
    return priced.collective.chosen(row * priced.time_s.shape[1] + int(priced.point[0]))


def _message(priced: PricedGroup, row: int) -> Mapping[str, float]:
    """Latency and bandwidth by level, and the library's fixed work."""
    algorithm = chosen(priced, row)
    if algorithm is None:
        return {OTHER: 1.0}
    found = {str(Resource.LAUNCH): float(algorithm.overhead_s)}
    for term in algorithm.terms:
        found[f"network.{term.level}.latency"] = float(term.latency_s)
        found[f"network.{term.level}.bandwidth"] = float(term.bandwidth_s)
    return found
