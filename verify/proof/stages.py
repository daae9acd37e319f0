"""What crosses between pipeline stages: at every border what is read behind it, once each way, and shared weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ...ir.graph import Graph, Phase, Region, Role, Value
from ...ir.layers import layer_row
from ...ir.ops import Trait, has
from ...ir.plan.layout.stages import BOUNDARY, SHARED, between_stages
from ...ir.sizes.fixed_sizes import fixed_samples
from ...passes.pipeline import is_weight
from .refine import ProofFault

# A message: its phase, and what arrives: type and placements.
Message: TypeAlias = tuple[str, str, str]
_PHASES = (Phase.FORWARD, Phase.BACKWARD)


def exchange_faults(graph: Graph) -> Iterator[ProofFault]:
    """Yield what a border needs and nobody sends or sends in vain, and weights whose copies do not stay equal."""
    runs = [run.regions for run in graph.schedule if not run.count and between_stages(run.regions[0])]
    if not runs:
        return
    for region in (r for r in graph.regions if between_stages(r.name)):
        yield from _pair_faults(region)
    row = layer_row(graph)
    groups = [[graph.region(name) for name in group] for group in (row.head, *row.units, row.tail)]
    borders = next((names for names in runs if names[0].startswith(BOUNDARY)), ())
    if len(borders) not in (1, len(groups) - 1):
        yield ProofFault(BOUNDARY, "schedule", f"names {len(borders)} of {len(groups) - 1} borders")
        return
    wanted = _wanted(graph, groups)
    for place, needed in enumerate(wanted):
        region = graph.region(borders[min(place, len(borders) - 1)])
        sent = Counter(_arriving(region))
        for message in sorted({*needed, *sent}):
            if sent[message] != needed[message]:
                phase, kind, _ = message
                what = f"{kind} is sent {sent[message]} times in the {phase} phase, {needed[message]} are read behind"
                yield ProofFault(region.name, f"border {place}", what)
    yield from _copies(graph, groups, [names for names in runs if names[0].startswith(SHARED)])


def _wanted(graph: Graph, groups: Sequence[Sequence[Region]]) -> list[Counter[Message]]:
    """What crosses each border: ports read behind whose nearest maker is before, but weights and what needs none."""
    own, bound = fixed_samples(graph), dict[str, bool]()
    found: list[dict[tuple[Phase, str], Value]] = [{} for _ in groups[1:]]
    for phase in _PHASES:
        order = [(k, region) for k, group in enumerate(groups) for region in group]
        order = order if phase is Phase.FORWARD else order[::-1]
        for turn, (k, region) in enumerate(order):
            for v in region.of_role(Role.PORT):
                maker = next((e for e in reversed(order[:turn]) if _makes(e[1], v.name, phase)), None)
                if maker is None or (is_weight(v) and v.name not in own):
                    continue
                if maker[0] == 0 and v.name not in bound:
                    bound[v.name] = _reads_weight(graph, maker[1], v.name)
                if maker[0] == 0 and not bound[v.name]:
                    continue
                for border in range(min(k, maker[0]), max(k, maker[0])):
                    found[border][phase, v.name] = v
    return [Counter(_message(phase, v) for (phase, _), v in border.items()) for border in found]


def _makes(region: Region, port: str, phase: Phase) -> bool:
    """Whether a region makes in a phase, on the device and not anew, what leaves through a port."""
    nodes = (region.producer.get(p.value) for p in region.outputs if p.name == port)
    late = (Phase.BACKWARD, Phase.REDUCE, Phase.OPTIMIZER, Phase.PREPARE)
    phases = {phase} if phase is Phase.FORWARD else set(late)
    return any(n is not None and n.phase in phases and not has(n, Trait.TO_HOST) for n in nodes)


def _reads_weight(graph: Graph, region: Region, port: str) -> bool:
    """Whether what leaves through a port depends on a weight or a cache, here or in regions before."""
    todo, seen = [p.value for p in region.outputs if p.name == port], set[int]()
    while todo:
        v = region.by_id[todo.pop()]
        if v.id in seen:
            continue
        seen.add(v.id)
        if v.role in (Role.PARAM, Role.CACHE):
            return True
        if v.role is Role.PORT:
            makers = [r for r in graph.regions if r is not region and any(p.name == v.name for p in r.outputs)]
            if not makers or any(_reads_weight(graph, r, v.name) for r in makers):
                return True
        todo += region.producer[v.id].inputs if v.id in region.producer else ()
    return False


def _message(phase: Phase, v: Value) -> Message:
    return str(phase), str(v.type), str(v.placements)


def _arriving(region: Region) -> Iterator[Message]:
    """What arrives through a border: what is received, or put together of pieces."""
    read = {i for n in region.nodes for i in n.inputs}
    for node in region.nodes:
        if not has(node, Trait.SENDS) and node.key not in read:
            yield _message(node.phase, region.by_id[node.key])


def _pair_faults(region: Region) -> Iterator[ProofFault]:
    """Each receive reads what one send made, in the same phase, and hands on what was given."""
    sends = {n.key: n for n in region.nodes if has(n, Trait.SENDS)}
    received = Counter(n.inputs[0] for n in region.nodes if has(n, Trait.RECEIVES))
    for node in region.nodes:
        if has(node, Trait.RECEIVES):
            send = sends.get(node.inputs[0])
            if send is None or send.phase is not node.phase or send.attrs != node.attrs:
                yield ProofFault(region.name, f"%{node.key} recv", "receives what no send of its phase has sent")
    for key in sends:
        if received[key] != 1:
            yield ProofFault(region.name, f"%{key} send", f"is received {received[key]} times")


def _copies(graph: Graph, groups: Sequence[Sequence[Region]], runs: Sequence[Sequence[str]]) -> Iterator[ProofFault]:
    """A trained weight that stages may hold twice is summed over all that do."""
    trained = {r.by_id[p].name for r in graph.regions for p, _ in r.grads}
    summed = {v.name: set(holders) for name, *holders in runs for v in graph.region(name).of_role(Role.INPUT)}
    for name in sorted(n for n in trained if "*" not in n):
        readers = [{r.name for r in group if any(v.name == name for v in r.of_role(Role.PARAM))} for group in groups]
        wanted = set().union(*readers) if sum(map(bool, readers)) > 1 else set()
        if summed.get(name, set()) != wanted:
            yield ProofFault(SHARED, f"gradient of '{name}'", f"is summed over {sorted(summed.get(name, ()))}")
