"""Parts to a folded graph: layers with equal structure become one region with a count, and the links are proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..ir.errors import InternalError
from ..ir.graph import Graph, Hint, Phase, Port, Region, Role, Run, Value, Workload
from ..ir.saved import mark_saved
from ..ir.types import DType
from .regions import EPILOGUE, PROLOGUE, Cut, Part, fingerprint


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

    `classes` are the classes of all layers by module signature, `kept` the positions recorded. When all layers were
    recorded the classes are taken from the recorded structure itself.
    """
    prints = [fingerprint(c, c.parts[i]) for i in range(len(kept))]
    if len(kept) == len(classes) and classes:
        known: dict[tuple[object, ...], int] = {}
        classes = [known.setdefault(p, len(known)) for p in prints]
    class_of = {place: classes[position] for place, position in enumerate(kept)}
    _prove_alike(prints, class_of)
    member = {cls: place for place, cls in reversed(class_of.items())}
    region_name = {PROLOGUE: "prologue", EPILOGUE: "epilogue"} | {p: f"block{class_of[p]}" for p in class_of}
    names = _port_names(c, region_name)
    _prove_links(c, names, region_name, sorted(class_of))
    chosen = [PROLOGUE, *(member[cls] for cls in sorted(member)), EPILOGUE]
    regions = tuple(_region(c, c.parts[p], region_name[p], names) for p in chosen)
    runs = (Run(("prologue",)), *_runs([f"block{cls}" for cls in classes]), Run(("epilogue",)))
    graph = Graph(
        identity.name, identity.workload, identity.dtype, regions, runs, notes=identity.notes,
        max_positions=identity.max_positions, hints=identity.hints, spelled_out=identity.spelled_out,
    )  # fmt: skip
    _prove_schedule(graph)
    return mark_saved(graph)


def one_by_one(c: Cut, identity: Identity) -> Graph:
    """Return the graph with every layer as a region of its own; NotAlikeError where they do not follow one another.

    For layers that differ from one another or read what not their neighbours make.
    """
    layers = sorted(place for place, part in c.parts.items() if place not in (PROLOGUE, EPILOGUE) and part.nodes)
    region_name = {PROLOGUE: "prologue", EPILOGUE: "epilogue"} | {p: f"block{k}" for k, p in enumerate(layers)}
    order = [PROLOGUE, *layers, EPILOGUE]
    names = _names_by_life(c, order)
    _prove_links(c, names, region_name, layers)
    regions = tuple(_region(c, c.parts[place], region_name[place], names) for place in order)
    graph = Graph(
        identity.name, identity.workload, identity.dtype, regions, tuple(Run((r.name,)) for r in regions),
        notes=identity.notes, max_positions=identity.max_positions, hints=identity.hints,
        spelled_out=identity.spelled_out,
    )  # fmt: skip
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


def _prove_links(c: Cut, names: Mapping[int, str], region_name: Mapping[int, str], layers: Sequence[int]) -> None:
    """Check that 'the nearest earlier region with a port of that name' finds the value that was really read."""
    order = [PROLOGUE, *layers, EPILOGUE]
    phase = {o: n.phase for n in c.flat.nodes for o in n.outputs}
    for index, place in enumerate(order):
        for value in c.parts[place].imports:
            forward = phase[value] is Phase.FORWARD
            nearest = reversed(order[:index]) if forward else iter(order[index + 1 :])
            name = names[value]
            found = next((_exported(c, p, names, name) for p in nearest if _has(c, p, names, name)), None)
            if found != value:
                raise NotAlikeError(
                    f"{region_name[place]} reads %{value} of {region_name[c.home[value]]}, which is not its neighbour"
                )


def _has(c: Cut, place: int, names: Mapping[int, str], name: str) -> bool:
    return any(names[v] == name for v in c.parts[place].exports)


def _exported(c: Cut, place: int, names: Mapping[int, str], name: str) -> int:
    return next(v for v in c.parts[place].exports if names[v] == name)


def _region(c: Cut, part: Part, name: str, names: Mapping[int, str]) -> Region:
    made = {o for n in part.nodes for o in n.outputs}
    read = dict.fromkeys(i for n in part.nodes for i in n.inputs)
    grads = [(p, g) for p, g in c.flat.grads.items() if g in made]
    outside = [i for i in (*read, *(p for p, _ in grads)) if i not in made]
    order = [*dict.fromkeys(outside), *(o for n in part.nodes for o in n.outputs)]
    number = {old: new for new, old in enumerate(order)}
    # A view of what another region holds lies where the port lies that it came through.
    home = {c.flat.values[i].storage: number[i] for i in reversed(outside)} | number
    values = tuple(_local(c, c.flat.values[i], number, home, names, made) for i in order)
    nodes = tuple(
        replace(
            n,
            inputs=tuple(number[i] for i in n.inputs),
            outputs=tuple(number[o] for o in n.outputs),
            scope=c.star(n.scope),
            forward=number.get(n.forward) if n.forward is not None and n.forward in made else None,
        )
        for n in part.nodes
    )
    outputs = [Port(names[v], number[v]) for v in part.exports]
    outputs += [Port(f"result{k}", number[v]) for k, v in enumerate(c.flat.results) if v in made]
    return Region(name, values, nodes, tuple(outputs), tuple((number[p], number[g]) for p, g in grads))


def _local(
    c: Cut, v: Value, number: Mapping[int, int], home: Mapping[int, int], names: Mapping[int, str], made: set[int]
) -> Value:
    role = Role.PORT if v.role is Role.RESULT and v.id not in made else v.role
    name = names[v.id] if role is Role.PORT else c.name(v)
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
