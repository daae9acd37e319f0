"""Parts to a folded graph: layers with equal structure become one region with a count, and the links are proved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ...ir.errors import InternalError
from ...ir.graph import Graph, Hint, Phase, Port, Region, Role, Run, Value, Workload
from ...ir.records import dataclass
from ...ir.saved import mark_saved
from ...ir.types import DType
from ..aten.flat import Flat, clean_scope
from .regions import EPILOGUE, PROLOGUE, Cut, RegionInstance, fingerprint
from .units import starred


class NotAlikeError(InternalError):
    """Layers that looked alike as modules were recorded differently; record all of them instead."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the folded graph is called and computes, and whether it is what the model's own code spells out."""

    name: str
    workload: Workload
    dtype: DType
    notes: tuple[str, ...] = ()
    max_positions: int = 0
    hints: tuple[Hint, ...] = ()
    spelled_out: bool = False


@dataclass
class _Ports:
    """Port names: values that are the same slot of the same class share one (union-find)."""

    parent: dict[object, object] = field(default_factory=dict)

    def find(self, key: object) -> object:
        self.parent.setdefault(key, key)
        while self.parent[key] != key:
            key = self.parent[key]
        return key

    def join(self, a: object, b: object) -> None:
        self.parent[self.find(a)] = self.find(b)


def fold(c: Cut, classes: Sequence[int], kept: Sequence[int], identity: Identity) -> Graph:
    """Fold equal layers and return the graph; NotAlikeError when structure contradicts the module classes.

    `classes` are the classes of all layers by module signature, `kept` the positions recorded.
    """
    prints = [fingerprint(c, c.parts[i]) for i in range(len(kept))]
    class_of = {place: classes[position] for place, position in enumerate(kept)}
    _prove_alike(prints, class_of)
    folding = _Folding(c, class_of)
    if folding.broken_links():
        raise NotAlikeError(folding.said())
    return folding.graph(identity, classes)


def fold_recorded(c: Cut, identity: Identity) -> Graph:
    """Fold layers that were all recorded; those whose links a folded graph cannot say stay apart.

    A port has one name for all layers of a class. Where a layer reads what not the nearest layer with that port made
    (a skip over several layers), the layers at both ends become classes of their own, and all of them when that does
    not help. A note says so.
    """
    known: dict[tuple[object, ...], int] = {}
    class_of = {p: known.setdefault(fingerprint(c, c.parts[p]), len(known)) for p in c.layers}
    said = ""
    while broken := (folding := _Folding(c, class_of)).broken_links():
        said = said or folding.said()
        if len(set(class_of.values())) == len(class_of):
            raise NotAlikeError(folding.said())
        times = Counter(class_of.values())
        apart = [p for p in sorted(broken) if times[class_of[p]] > 1] or list(class_of)
        fresh = max(class_of.values()) + 1
        class_of |= {p: fresh + k for k, p in enumerate(apart)}
    known_order: dict[int, int] = {}
    class_of = {p: known_order.setdefault(cls, len(known_order)) for p, cls in class_of.items()}
    if said:
        which = "layers" if len(known_order) == len(class_of) else "some layers that are alike"
        identity = replace(identity, notes=(*identity.notes, f"{which} are not folded: {said}"))
    return _Folding(c, class_of).graph(identity, list(class_of.values()))


def one_by_one(c: Cut, identity: Identity) -> Graph:
    """Return the graph with every layer as a region of its own; NotAlikeError where they do not follow one another.

    For layers that differ from one another or read what not their neighbours make.
    """
    folding = _Folding(c, {place: k for k, place in enumerate(c.layers)})
    folding.names = _names_by_life(c, [PROLOGUE, *c.layers, EPILOGUE])
    if folding.broken_links():
        raise NotAlikeError(folding.said())
    return folding.graph(identity, range(len(c.layers)))


@dataclass
class _Folding:
    """Layers with a class each, and what the values that cross them are called."""

    cut: Cut
    class_of: Mapping[int, int]
    names: Mapping[int, str] = field(init=False)
    broken: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = _port_names(self.cut, {p: self.region_name(p) for p in self.cut.parts})

    def region_name(self, place: int) -> str:
        """What the region of a part is called."""
        ends = {PROLOGUE: "prologue", EPILOGUE: "epilogue"}
        return ends[place] if place in ends else f"block{self.class_of.get(place, place)}"

    def broken_links(self) -> set[int]:
        """The layers at both ends of links for which `the nearest earlier region with that port` finds another value.

        Forward earlier is before, backward it is behind.
        """
        c, order = self.cut, [PROLOGUE, *sorted(self.class_of), EPILOGUE]
        phase = c.flat.phases
        self.broken = []
        for forward in (True, False):
            nearest: dict[str, int] = {}
            for place in order if forward else reversed(order):
                part = c.parts[place]
                for value in part.imports:
                    if (phase[value] is Phase.FORWARD) == forward and nearest.get(self.names[value]) != value:
                        self.broken.append((place, value, nearest.get(self.names[value], value)))
                nearest.update({self.names[v]: v for v in part.exports if (phase[v] is Phase.FORWARD) == forward})
        return {
            p for place, *values in self.broken for p in (place, *(c.home[v] for v in values)) if p in self.class_of
        }

    def said(self) -> str:
        """Which link is broken."""
        place, value, _ = self.broken[0]
        home = self.region_name(self.cut.home[value])
        return f"{self.region_name(place)} reads %{value} of {home}, which is not its neighbour"

    def graph(self, identity: Identity, classes: Sequence[int]) -> Graph:
        """Return the graph, with a region a class and a schedule of all layers."""
        members: dict[int, list[int]] = {}
        for place, cls in sorted(self.class_of.items()):
            members.setdefault(cls, []).append(place)
        chosen = [[PROLOGUE], *(members[cls] for cls in sorted(members)), [EPILOGUE]]
        regions = tuple(_region(self.cut, places, self.region_name(places[0]), self.names) for places in chosen)
        runs = (Run(("prologue",)), *_runs([f"block{cls}" for cls in classes]), Run(("epilogue",)))
        graph = Graph(
            identity.name,
            identity.workload,
            identity.dtype,
            regions,
            runs,
            notes=identity.notes,
            max_positions=identity.max_positions,
            hints=identity.hints,
            spelled_out=identity.spelled_out,
        )
        _prove_schedule(graph)
        return mark_saved(graph)


def _names_by_life(c: Cut, order: Sequence[int]) -> dict[int, str]:
    """Name every value that crosses parts: of two of one type the later takes the name of one that is read no more.

    So what is handed from layer to layer has one name on the whole way.
    """
    phase = {o: n.phase for n in c.flat.nodes for o in n.outputs}
    readers: dict[int, list[int]] = {}
    for place in order:
        for value in c.parts[place].imports:
            readers.setdefault(value, []).append(place)
    names: dict[int, str] = {}
    until: dict[str, tuple[tuple[bool, str], int]] = {}
    for forward in (True, False):
        for place in order if forward else reversed(order):
            for value in (v for v in c.parts[place].exports if (phase[v] is Phase.FORWARD) == forward):
                kind = (forward, str(c.flat.values[value].type))
                name = _free_name(until, kind, place) or f"{'x' if forward else 'd'}{len(until)}"
                until[name] = (kind, (max if forward else min)(readers.get(value, [place])))
                names[value] = name
    return names


def _free_name(until: Mapping[str, tuple[tuple[bool, str], int]], kind: tuple[bool, str], place: int) -> str | None:
    """The name of this kind that was read until last, of those that nobody reads behind this place."""
    way = 1 if kind[0] else -1
    ended = [name for name, (other, last) in until.items() if other == kind and last * way <= place * way]
    return max(ended, key=lambda name: until[name][1] * way, default=None)


def _prove_schedule(graph: Graph) -> None:
    """Check along the whole schedule that each port read was written: forward by a region before, backward behind."""
    order = list(graph.sequence())
    early = {p.name for r in graph.regions for p in r.outputs if r.phase_of(p.value) is Phase.FORWARD}
    for forward in (True, False):
        made: set[str] = set()
        for name in order if forward else reversed(order):
            region = graph.region(name)
            unmade = {v.name for v in region.of_role(Role.PORT) if (v.name in early) == forward} - made
            if unmade:
                raise NotAlikeError(f"{name} reads {sorted(unmade)}, which no region made before it")
            made.update(p.name for p in region.outputs)


def _prove_alike(prints: Sequence[tuple[object, ...]], class_of: Mapping[int, int]) -> None:
    first: dict[int, int] = {}
    for place, cls in class_of.items():
        other = first.setdefault(cls, place)
        if prints[other] != prints[place]:
            raise NotAlikeError(f"layers {other} and {place} look alike as modules and differ in what they run")


def _port_names(c: Cut, region_name: Mapping[int, str]) -> dict[int, str]:
    """Name every value that crosses parts; a carried value keeps one name through all layers."""
    ports = _Ports()
    for place, part in c.parts.items():
        for k, value in enumerate(part.imports):
            ports.join(("value", value), (region_name[place], "in", k))
        for k, value in enumerate(part.exports):
            ports.join(("value", value), (region_name[place], "out", k))
    values = sorted({v for part in c.parts.values() for v in part.exports})
    roots: dict[object, str] = {}
    names: dict[int, str] = {}
    phase = {o: n.phase for n in c.flat.nodes for o in n.outputs}
    for v in values:
        root = ports.find(("value", v))
        prefix = "x" if phase[v] is Phase.FORWARD else "d"
        names[v] = roots.setdefault(root, f"{prefix}{len(roots)}")
    return names


def _region(c: Cut, places: Sequence[int], name: str, names: Mapping[int, str]) -> Region:
    """The region of equal parts, in the words of the first, with stars where their names differ."""
    part = c.parts[places[0]]
    made = {o for n in part.nodes for o in n.outputs}
    grads = [(p, g) for p, g in c.flat.grads.items() if g in made]
    outside = _outside(part, grads)
    order = [*outside, *(o for n in part.nodes for o in n.outputs)]
    number = {old: new for new, old in enumerate(order)}
    said = _said_names(c, places, outside)
    # A view of what another region holds lies where the port lies that it came through.
    home = {c.flat.values[i].storage: number[i] for i in reversed(outside)} | number
    values = tuple(_local(c.flat.values[i], number, home, names, said, made) for i in order)
    rows = zip(*([clean_scope(n.scope) for n in c.parts[p].nodes] for p in places), strict=True)
    known: dict[tuple[str, ...], str] = {}
    scopes = [known.setdefault(row, _joined(c, places[0], row)) for row in rows]
    nodes = tuple(
        replace(
            n,
            inputs=tuple(number[i] for i in n.inputs),
            outputs=tuple(number[o] for o in n.outputs),
            scope=scope,
            forward=number.get(n.forward) if n.forward is not None and n.forward in made else None,
        )
        for n, scope in zip(part.nodes, scopes, strict=True)
    )
    outputs = [Port(names[v], number[v]) for v in part.exports]
    outputs += [Port(f"result{k}", number[v]) for k, v in enumerate(c.flat.results) if v in made]
    return Region(name, values, nodes, tuple(outputs), tuple((number[p], number[g]) for p, g in grads))


def _outside(part: RegionInstance, grads: Sequence[tuple[int, int]]) -> list[int]:
    """What a part reads and does not make, in order of use."""
    made = {o for n in part.nodes for o in n.outputs}
    read = dict.fromkeys(i for n in part.nodes for i in n.inputs)
    return list(dict.fromkeys(i for i in (*read, *(p for p, _ in grads)) if i not in made))


def _said_names(c: Cut, places: Sequence[int], outside: Sequence[int]) -> dict[int, str]:
    """Names of what the first of equal parts reads; with stars for numbers in which the parts differ."""
    columns = [[c.flat.values[i].name for i in outside]]
    columns += [[c.flat.values[i].name for i in _outside(c.parts[p], _grads(c, p))] for p in places[1:]]
    said: dict[int, str] = {}
    for i, *given in zip(outside, *columns, strict=True):
        one_of_each = c.flat.values[i].role is Role.INPUT or i in c.shared
        said[i] = given[0] if one_of_each else _joined(c, places[0], given)
    return _told_apart(said, [i for i in outside if c.flat.values[i].role is Role.PARAM], c.flat)


def _told_apart(said: dict[int, str], params: Sequence[int], flat: Flat) -> dict[int, str]:
    """Several members of one list in a layer, of which each layer has its own, get names of their own: `norms.*+1`."""
    first: dict[str, list[int]] = {}
    for i in params:
        first.setdefault(said[i], []).append(i)
    for name, same in first.items():
        places = [k for k, part in enumerate(name.split(".")) if "*" in part]
        if len(same) > 1:
            numbers = [int(re.sub(r"\D", "", flat.values[i].name.split(".")[places[-1]])) for i in same]
            parts = name.split(".")
            for i, number in zip(same, numbers, strict=True):
                step = f"+{number - min(numbers)}" if number > min(numbers) else ""
                said[i] = ".".join(f"{p}{step}" if k == places[-1] else p for k, p in enumerate(parts))
    if len({said[i] for i in params}) < len(params):
        raise NotAlikeError(f"several parameters of one layer would be called alike: {sorted(first)[:3]}")
    return said


def _grads(c: Cut, place: int) -> list[tuple[int, int]]:
    made = {o for n in c.parts[place].nodes for o in n.outputs}
    return [(p, g) for p, g in c.flat.grads.items() if g in made]


def _joined(c: Cut, place: int, given: Sequence[str]) -> str:
    """One name for what equal layers call differently; the number of a layer itself is always a star."""
    first = c.own_star(place, given[0])
    if len(set(given)) == 1:
        return first
    parts = zip(first.split("."), *(g.split(".") for g in given), strict=True)
    return ".".join(said if len(set(each)) == 1 else starred(said) for said, *each in parts)


def _local(
    v: Value,
    number: Mapping[int, int],
    home: Mapping[int, int],
    names: Mapping[int, str],
    said: Mapping[int, str],
    made: set[int],
) -> Value:
    role = Role.PORT if v.role is Role.RESULT and v.id not in made else v.role
    name = names[v.id] if role is Role.PORT else said.get(v.id, v.name)
    storage = (number if role is Role.PORT else home).get(v.storage, number[v.id])
    return replace(v, id=number[v.id], storage=storage, role=role, name=name)


def _runs(sequence: Sequence[str]) -> tuple[Run, ...]:
    """Compress a sequence of names into runs of repeated patterns.

    >>> _runs(["a", "a", "b", "c", "b", "c"])
    (Run(regions=('a',), count=2), Run(regions=('b', 'c'), count=2))
    """
    runs: list[Run] = []
    i = 0
    while i < len(sequence):
        period, count = max(
            ((p, _repeats(sequence, i, p)) for p in range(1, min(12, len(sequence) - i) + 1)),
            key=lambda pc: (pc[0] * pc[1] if pc[1] > 1 or pc[0] == 1 else 0, -pc[0]),
        )
        runs.append(Run(tuple(sequence[i : i + period]), count))
        i += period * count
    return tuple(runs)


def _repeats(sequence: Sequence[str], start: int, period: int) -> int:
    pattern, count = sequence[start : start + period], 1
    while sequence[start + count * period : start + (count + 1) * period] == pattern:
        count += 1
    return count
