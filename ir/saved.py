"""Which values the forward phase keeps for the backward phase, read off the graph itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .graph import Graph, Phase, Region, Role
from .ops import Trait, has

_LATER = (Phase.RECOMPUTE, Phase.BACKWARD)


def mark_saved(graph: Graph) -> Graph:
    """Set `saved` on every forward value that the backward phase reads, here or through a port, and on nothing else.

    Recomputation belongs to the backward phase: what it reads is kept, what it makes is not. A tensor that several
    regions keep is marked where it is made, so that it counts once. A parameter that was marked where it is gathered
    stays so: its unit keeps all parameters, read again or not; and so does what a pipeline stage receives and keeps.
    """
    backward = {p.name for r in graph.regions for p in r.outputs if r.phase_of(p.value) in _LATER}
    local = {r.name: _read_by_backward(r, backward) for r in graph.regions}
    ports = {r.name: {r.by_id[i].name for i in local[r.name] if r.by_id[i].role is Role.PORT} for r in graph.regions}
    wanted = _wanted_of(graph, ports)
    return graph.with_regions(tuple(_marked(r, local[r.name], wanted[r.name]) for r in graph.regions))


def _wanted_of(graph: Graph, ports: Mapping[str, set[str]]) -> Mapping[str, set[str]]:
    """For each region, the names of its outputs that a later region keeps: of several makers the nearest is meant."""
    makes = {r.name: {p.name for p in r.outputs if r.phase_of(p.value) is Phase.FORWARD} for r in graph.regions}
    wanted: dict[str, set[str]] = {r.name: set() for r in graph.regions}
    last: dict[str, str] = {}
    # What follows a repeated run has the same makers from the second round on.
    for name in (n for run in graph.schedule for _ in range(min(run.count, 2)) for n in run.regions):
        for port in ports[name] & last.keys():
            wanted[last[port]].add(port)
        last.update(dict.fromkeys(makes[name], name))
    return wanted


def _read_by_backward(region: Region, backward_ports: set[str]) -> set[int]:
    """Ids of forward activations (storage owners included) that nodes of the backward phase read."""
    read = {i for n in region.nodes if n.phase in _LATER for i in n.inputs}
    kept = {i for i in read if _is_activation(region, i, backward_ports)}
    return kept | {s for i in kept if _is_activation(region, s := region.by_id[i].storage, backward_ports)}


def _is_activation(region: Region, value: int, backward_ports: set[str]) -> bool:
    v = region.by_id[value]
    if v.role is Role.PORT:
        return v.name not in backward_ports
    return v.role is Role.INPUT or (v.role is Role.RESULT and region.phase_of(value) is Phase.FORWARD)


def _marked(region: Region, kept: set[int], wanted: set[str]) -> Region:
    if any(has(n, Trait.RECEIVES) for n in region.nodes):
        return region
    exported = {p.value for p in region.outputs if p.name in wanted and region.phase_of(p.value) is Phase.FORWARD}
    gathers = (n for n in region.nodes if has(n, Trait.GATHERS) and n.phase is Phase.FORWARD)
    whole = (n.outputs for n in gathers if all(_is_weight(region, i) for i in n.inputs))
    kept_whole = {o for outputs in whole for o in outputs if region.by_id[o].saved}
    kept = kept | exported | {region.by_id[i].storage for i in exported} | kept_whole
    values = tuple(v if v.saved == (v.id in kept) else replace(v, saved=v.id in kept) for v in region.values)
    return replace(region, values=values)


def _is_weight(region: Region, value: int) -> bool:
    """Whether a value is a parameter, as it is or quantised."""
    made = region.producer.get(value)
    source = made.inputs[0] if made is not None and has(made, Trait.QUANTISES) else value
    return region.by_id[source].role is Role.PARAM
