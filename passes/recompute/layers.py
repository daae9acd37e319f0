"""Layers that are recomputed in groups, or only in part: the regions split by what each does, the schedule renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

from ...ir.graph import Graph, Phase, Region, Role, Run
from ...ir.plan.layout.stages import RECOMPUTED
from ...ir.records import dataclass

# Makes a region of a layer: the region, the ports that come recomputed, the outputs that leave recomputed.
Make = Callable[[Region, frozenset[str], frozenset[str]], Region]


@dataclass
class _Variants:
    """Regions made of the layers' own, each way once, and their names."""

    graph: Graph
    make: Make
    made: dict[tuple[str, frozenset[str], frozenset[str]], str] = field(default_factory=dict)
    regions: dict[str, list[Region]] = field(default_factory=dict)

    def name(self, old: str, entering: frozenset[str], leaving: frozenset[str], kind: str) -> str:
        key = (old, entering, leaving)
        if key not in self.made:
            taken = sum(name.startswith(f"{old}_{kind}") for name in self.made.values())
            self.made[key] = f"{old}_{kind}{taken + 1 if taken else ''}"
            region = self.make(self.graph.region(old), entering, leaving)
            self.regions.setdefault(old, []).append(replace(region, name=self.made[key]))
        return self.made[key]


def in_groups(graph: Graph, num_layers: int, make: Make, ends: frozenset[str]) -> Graph:
    """Recompute so many layers together; the last group takes what is left.

    Only what enters a group is kept: from layer to layer its results are handed on recomputed.
    """
    variants = _Variants(graph, make)
    runs: list[Run] = []
    pending: list[str] = []
    for name in graph.sequence():
        if name in ends:
            runs += _grouped(graph, pending, num_layers, variants)
            pending = []
            runs.append(Run((name,)))
        else:
            pending.append(name)
    return _rebuilt(graph, merged_runs([*runs, *_grouped(graph, pending, num_layers, variants)]), variants)


def first_layers(graph: Graph, num_layers: int, make: Make, ends: frozenset[str]) -> Graph:
    """Recompute the first layers one by one; the others stay as they are."""
    variants, runs, left = _Variants(graph, make), list[Run](), num_layers
    for run in graph.schedule:
        if ends.intersection(run.regions) or not left:
            runs.append(run)
            continue
        again = tuple(variants.name(n, frozenset(), frozenset(), RECOMPUTED.removeprefix("_")) for n in run.regions)
        whole, part = divmod(min(left, run.count * len(again)), len(again))
        left -= whole * len(again) + part
        runs += [Run(again, whole), Run((*again[:part], *run.regions[part:]), int(part > 0))]
        runs.append(replace(run, count=run.count - whole - (part > 0)))
    return _rebuilt(graph, merged_runs(run for run in runs if run.count), variants)


def num_in_pass(graph: Graph, ends: frozenset[str]) -> int:
    """Layers in one pass over the model."""
    return sum(count for name, count in graph.counts.items() if name not in ends)


def _grouped(graph: Graph, layers: Sequence[str], size: int, variants: _Variants) -> list[Run]:
    groups = (layers[k : k + size] for k in range(0, len(layers), size))
    return [Run(_group(graph, group, variants)) for group in groups]


def _group(graph: Graph, layers: Sequence[str], variants: _Variants) -> tuple[str, ...]:
    made: list[frozenset[str]] = [_forward_outputs(graph.region(name)) for name in layers]
    read = [frozenset(v.name for v in graph.region(name).of_role(Role.PORT)) for name in layers]
    names: list[str] = []
    for k, name in enumerate(layers):
        entering = read[k] & frozenset[str]().union(*made[:k])
        leaving = made[k] & _read_later(made[k + 1 :], read[k + 1 :])
        names.append(variants.name(name, entering, leaving, _kind(k, len(layers))))
    return tuple(names)


def _read_later(made: Sequence[frozenset[str]], read: Sequence[frozenset[str]]) -> frozenset[str]:
    """Names that a later layer reads before another one makes them anew."""
    wanted, remade = set[str](), set[str]()
    for makes, reads in zip(made, read, strict=True):
        wanted |= reads - remade
        remade |= makes
    return frozenset(wanted)


def _kind(place: int, size: int) -> str:
    if size == 1:
        return "alone"
    return "first" if place == 0 else "last" if place == size - 1 else "middle"


def _forward_outputs(region: Region) -> frozenset[str]:
    made = {o for n in region.nodes if n.phase is Phase.FORWARD for o in n.outputs}
    return frozenset(p.name for p in region.outputs if p.value in made)


def merged_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Join neighbours that run the same regions."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].regions == run.regions:
            found[-1] = replace(run, count=found[-1].count + run.count)
        else:
            found.append(run)
    return tuple(found)


def _rebuilt(graph: Graph, schedule: tuple[Run, ...], variants: _Variants) -> Graph:
    """The graph with the new schedule and the regions that it names."""
    named = {name for run in schedule for name in run.regions}
    regions = (r for old in graph.regions for r in (*variants.regions.get(old.name, ()), old))
    return replace(graph, regions=tuple(r for r in regions if r.name in named), schedule=schedule)
