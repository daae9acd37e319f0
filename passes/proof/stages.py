"""What crosses between pipeline stages: every port that blocks hand one another, once each way, as it lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from ...ir.fixed_sizes import fixed_samples
from ...ir.graph import Graph, Phase, Port, Region, Role
from ...ir.layers import layer_row
from ...ir.stages import BOUNDARY
from .borders import is_weight
from .refine import Fault

# A port, and the phase in which it is made.
Handed: TypeAlias = tuple[str, Phase]


def exchange_faults(graph: Graph) -> Iterator[Fault]:
    """Yield ports that are not sent once, receives without a send, and sends that nobody receives."""
    boundary = graph.by_name.get(BOUNDARY)
    if boundary is None:
        return
    yield from _pair_faults(boundary)
    sent: Counter[tuple[str, Phase]] = Counter(
        (boundary.by_id[n.inputs[0]].name, n.phase)
        for n in boundary.nodes
        if n.op == "send" and n.phase is not Phase.REDUCE
    )
    wanted = _wanted(graph, frozenset(sent))
    for name, phase in sorted({*wanted, *sent}, key=str):
        times = sent[name, phase]
        if times != int((name, phase) in wanted):
            yield Fault(BOUNDARY, f"port '{name}'", f"is sent {times} times in the {phase} phase")


def _wanted(graph: Graph, sent: frozenset[Handed]) -> frozenset[Handed]:
    """What is to be sent: all that blocks hand one another; where none repeats, what crosses one border each way."""
    every, row = frozenset(_crossing(graph)), layer_row(graph)
    if len(row.inner) < sum(map(len, row.units)):
        return every
    found: list[Handed] = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        of_phase = frozenset(h for h in sent if h[1] is phase)
        found += of_phase if of_phase in _at_borders(graph, phase) else (h for h in every if h[1] is phase)
    return frozenset(found)


def _at_borders(graph: Graph, phase: Phase) -> list[frozenset[Handed]]:
    """The ports through which something crosses each border between two layers that run once, in one phase."""
    row, own = layer_row(graph), fixed_samples(graph)
    units = [[graph.region(name) for name in unit] for unit in row.units]
    last = [graph.region(name) for name in row.tail]
    groups = [*units, last] if phase is Phase.FORWARD else [last, *(unit[::-1] for unit in units[::-1])]
    makers = {
        (p.name, k) for k, group in enumerate(groups) for r in group for p in r.outputs if _is_of(r, p, phase, own)
    }
    found: list[set[Handed]] = [set() for _ in groups]
    for k, group in enumerate(groups):
        for name in {v.name for r in group for v in r.of_role(Role.PORT)}:
            nearest = max((m for made, m in makers if made == name and m < k), default=k)
            for border in range(nearest, k):
                found[border].add((name, phase))
    inside = found[: len(units) - 1] if phase is Phase.FORWARD else found[1 : len(units)]
    return [frozenset(names) for names in inside]


def _is_of(region: Region, port: Port, phase: Phase, own: frozenset[str]) -> bool:
    """Whether a phase makes what leaves through a port, and it is no weight's."""
    made = region.phase_of(port.value)
    early = Phase.FORWARD if made is Phase.FORWARD else Phase.BACKWARD
    kept = is_weight(region.by_id[port.value]) and port.name not in own
    return early is phase and made is not Phase.RECOMPUTE and not kept


def _pair_faults(boundary: Region) -> Iterator[Fault]:
    """Each receive reads what one send made, in the same phase, and hands on what was given."""
    sends = {n.key: n for n in boundary.nodes if n.op == "send"}
    received = Counter(n.inputs[0] for n in boundary.nodes if n.op == "recv")
    for node in boundary.nodes:
        if node.op == "recv":
            send = sends.get(node.inputs[0])
            if send is None or send.phase is not node.phase or send.attrs != node.attrs:
                yield Fault(BOUNDARY, f"%{node.key} recv", "receives what no send of its phase has sent")
    for key in sends:
        if received[key] != 1:
            yield Fault(BOUNDARY, f"%{key} send", f"is received {received[key]} times")


def _crossing(graph: Graph) -> Iterator[tuple[str, Phase]]:
    """Ports that a block reads and a block hands on, with the phase that makes them; weights' gradients stay."""
    names, own = layer_row(graph).inner, fixed_samples(graph)
    blocks = [r for r in graph.regions if r.name in names]
    read = {v.name for r in blocks for v in r.of_role(Role.PORT)}
    for region in blocks:
        for port in region.outputs:
            phase = region.phase_of(port.value)
            kept = is_weight(region.by_id[port.value]) and port.name not in own
            if port.name in read and not kept and phase is not Phase.RECOMPUTE:
                yield port.name, Phase.FORWARD if phase is Phase.FORWARD else Phase.BACKWARD
