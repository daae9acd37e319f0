"""What crosses between pipeline stages: every port that blocks hand one another, once each way, as it lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...ir.fixed_sizes import fixed_samples
from ...ir.graph import Graph, Phase, Region, Role
from ...ir.layers import layer_row
from ...ir.stages import BOUNDARY
from .borders import is_weight
from .refine import Fault


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
    wanted = set(_crossing(graph))
    for name, phase in sorted({*wanted, *sent}, key=str):
        times = sent[name, phase]
        if times != int((name, phase) in wanted):
            yield Fault(BOUNDARY, f"port '{name}'", f"is sent {times} times in the {phase} phase")


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
