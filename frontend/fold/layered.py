"""A flat graph folded by the calls of modules; regions that run once, cut where one layer ends and the next begins.

A layer is a member of a list of modules (`layers.3`), or of a list inside of that where the member is a chain of alike
modules itself (`stages.1.blocks.4`). It has a matrix of its own: an activation in a list is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count, pairwise

from ...ir.errors import InternalError
from ...ir.graph import Graph, Node, Phase, Port, Region, Role, Run, Value
from ...ir.layers import LAYER, is_layer
from ...ir.records import dataclass
from ...ir.saved import mark_saved
from ..aten.flat import Flat
from .blocks import Identity, NotAlikeError, fold_recorded, one_by_one
from .regions import cut
from .units import Layers, layers_of


class NotInOrderError(InternalError):
    """A part of a region reads what only a later part makes: they cannot run one behind the other."""


def split(region: Region, places: Sequence[int], names: Mapping[int, str], fresh: Iterator[int]) -> tuple[Region, ...]:
    """Return the parts of a region that runs once, in the order of their places.

    Args:
        region: what is split; its values keep their numbers.
        places: the place of each node.
        names: what the part at each place is called.
        fresh: numbers that no port of the graph has.

    Raises:
        NotInOrderError: a part would read what none before it, in the running direction, has made.
    """
    home = {o: place for n, place in zip(region.nodes, places, strict=True) for o in n.outputs}
    reads: dict[int, set[int]] = {}
    for node, place in zip(region.nodes, places, strict=True):
        reads.setdefault(place, set()).update(i for i in node.inputs if home.get(i, place) != place)
    work = _Split(region, places, home, {})
    for place, values in reads.items():
        for value in sorted(values):
            early = region.phase_of(value) is Phase.FORWARD
            if (home[value] > place) == early:
                raise NotInOrderError(f"{region.name}: %{value} is made behind its reader")
            if value not in work.ports:
                work.ports[value] = f"{'x' if early else 'd'}{next(fresh)}"
    work.check_carried()
    return tuple(work.part(place, names[place]) for place in sorted(set(places)))


@dataclass(frozen=True)
class _Split:
    """A region with the place of each node and result, and the ports of values that cross places."""

    region: Region
    places: Sequence[int]
    home: Mapping[int, int]
    ports: dict[int, str]

    def check_carried(self) -> None:
        """Refuse a port that comes in and goes out under one name where a part behind the maker reads the old value."""
        made = {p.name: p.value for p in self.region.outputs}
        for v in self.region.of_role(Role.PORT):
            if v.name not in made or made[v.name] not in self.home:
                continue
            maker, early = self.home[made[v.name]], self.region.phase_of(made[v.name]) is Phase.FORWARD
            readers = [p for n, p in zip(self.region.nodes, self.places, strict=True) if v.id in n.inputs]
            if any((p > maker) if early else (p < maker) for p in readers):
                raise NotInOrderError(f"{self.region.name}: '{v.name}' is read behind what takes its place")

    def part(self, place: int, name: str) -> Region:
        """Return one part: its nodes, what they read, and what others read of it."""
        nodes = [n for n, at in zip(self.region.nodes, self.places, strict=True) if at == place]
        made = {o for n in nodes for o in n.outputs}
        grads = tuple((p, g) for p, g in self.region.grads if g in made)
        read = {i for n in nodes for i in n.inputs} | {p for p, _ in grads}
        first = place == min(self.places)
        outputs = [p for p in self.region.outputs if p.value in made or (first and p.value not in self.home)]
        outputs += [Port(port, value) for value, port in self.ports.items() if value in made]
        held = made | read | {p.value for p in outputs}
        nodes = [replace(n, forward=n.forward if n.forward in made else None) for n in nodes]
        return Region(name, self._values(held, made), tuple(nodes), tuple(outputs), grads)

    def _values(self, held: set[int], made: set[int]) -> tuple[Value, ...]:
        """The values of a part; a view of what another part holds lies where the port lies that it came through."""
        values = [v for v in self.region.values if v.id in held]
        home = {v.storage: v.id for v in reversed(values) if v.id not in made}
        found = (self._value(v, made) for v in values)
        return tuple(replace(v, storage=v.storage if v.storage in held else home.get(v.storage, v.id)) for v in found)

    def _value(self, v: Value, made: set[int]) -> Value:
        if v.id in made or v.id not in self.home:
            return v
        return replace(v, role=Role.PORT, name=self.ports[v.id], saved=False)


def fold_by_scope(flat: Flat, identity: Identity) -> Graph:
    """Return the graph with layers of equal structure folded.

    Where they cannot be, each layer is a region of its own; where not even borders of layers are found, the graph is
    one region. A note says why.
    """
    layers = layers_of(flat)
    if not layers.paths:
        return whole(flat, identity)
    parts = cut(flat, layers)
    try:
        return fold_recorded(parts, identity)
    except NotAlikeError as error:
        noted = replace(identity, notes=(*identity.notes, f"layers are not folded: {error}"))
    try:
        return one_by_one(parts, noted)
    except NotAlikeError:
        return whole(flat, noted)


def whole(flat: Flat, identity: Identity) -> Graph:
    """Return the graph as one region that runs once."""
    return fold_recorded(cut(flat, Layers({}, ())), identity)


_MEMBER = re.compile(r"(?:^|(?<=\.))[0-9]+(?=\.|$)")
# Layers that hold a smaller part of the matrices in use do not make up a region: they are lists inside of one layer.
_LEAST_SHARE = 0.5
# Where a node stands: before the first layer, behind the last, or in the run of a layer with this number.
_BEFORE, _BEHIND = -1, 1 << 30


def in_layers(graph: Graph) -> Graph:
    """Return the graph with each run of a layer as a region of its own, where it stood in a region that runs once.

    What is handed from one to another keeps its order: else the region stays as it is. In a graph that has layers that
    repeat, only layers of their kinds are looked for. Layers are numbered anew.
    """
    ends = [name for name in graph.sequence_once() if graph.region(name).nodes]
    taken = {p.name for r in graph.regions for p in r.outputs}
    fresh = (k for k in count() if taken.isdisjoint((f"x{k}", f"d{k}")))
    kinds = frozenset(_kind(r) for r in graph.regions if is_layer(r.name) and graph.counts[r.name] > 1)
    rows: list[tuple[tuple[Region, ...], int]] = []
    for run in graph.schedule:
        regions = tuple(graph.region(name) for name in run.regions)
        if run.count == 1:
            parts = (_parts(r, fresh, kinds, (r.name == ends[0], r.name == ends[-1])) for r in regions)
            regions = tuple(p for found in parts for p in found)
        rows.append((regions, run.count))
    if all(len(regions) == len(run.regions) for (regions, _), run in zip(rows, graph.schedule, strict=True)):
        return graph
    return mark_saved(_numbered(graph, [(r, times) for r, times in rows if any(one.nodes for one in r)]))


def _numbered(graph: Graph, rows: Sequence[tuple[tuple[Region, ...], int]]) -> Graph:
    """The graph with these regions; layers have the numbers in which they are first met."""
    names: dict[str, str] = {}
    made: dict[str, Region] = {}
    for region in (r for regions, _ in rows for r in regions):
        if region.name not in names:
            names[region.name] = f"{LAYER}{sum(map(is_layer, names))}" if is_layer(region.name) else region.name
            made[names[region.name]] = replace(region, name=names[region.name])
    runs = tuple(Run(tuple(names[r.name] for r in regions), times) for regions, times in rows)
    # Runs of several regions, once, as runs of one each.
    one_each = tuple(one for run in runs for one in ([run] if run.count != 1 else [Run((n,)) for n in run.regions]))
    return replace(graph, regions=tuple(made.values()), schedule=one_each)


def _kind(region: Region) -> frozenset[str]:
    """Where in itself a layer that repeats reads matrices."""
    return frozenset(scope.partition("*.")[2] for scope in _readers(region)) - {""}


def _readers(region: Region) -> list[str]:
    """The module path of each forward node that reads a matrix."""
    matrices = {v.id for v in region.of_role(Role.PARAM) if v.type.rank > 1}
    nodes = (n for n in region.nodes if n.phase is Phase.FORWARD)
    return [n.scope for n in nodes if not matrices.isdisjoint(n.inputs)]


def _parts(
    region: Region, fresh: Iterator[int], kinds: frozenset[frozenset[str]], ends: tuple[bool, bool]
) -> tuple[Region, ...]:
    """A region as one for each run of a layer, and what comes before the first and behind the last of a graph.

    `ends` says whether it is the first and whether it is the last of the graph.
    """
    is_first, is_last = ends
    modules = _Modules(region)
    layers = () if is_layer(region.name) else modules.layers
    if not layers or (kinds and kinds.isdisjoint(map(modules.kind, layers))):
        return (region,)
    nodes = [n for n in region.nodes if n.phase is Phase.FORWARD]
    owners = _with_weights(region, nodes, [_owner(n.scope, layers) for n in nodes])
    runs = _runs(owners)
    if len(runs) + (not is_first) + (not is_last) < 2 or modules.size(layers) < _LEAST_SHARE * modules.size(None):
        return (region,)
    places = _places(region, owners, is_first, is_last)
    names = {k: f"{LAYER} {region.name} {k}" for k in range(len(runs))}
    names |= {_BEFORE: region.name, _BEHIND: region.name if not is_first else "epilogue"}
    starred = replace(region, nodes=tuple(replace(n, scope=_star(n.scope, layers)) for n in region.nodes))
    try:
        return split(starred, places, names, fresh)
    except NotInOrderError:
        return (region,)


def _star(scope: str, layers: Sequence[str]) -> str:
    """The scope with a star for the number of its layer.

    >>> _star("stages.1.blocks.4.mlp", ["stages.1.blocks.4"])
    'stages.1.blocks.*.mlp'
    """
    owner = _owner(scope, layers)
    return scope if owner is None else f"{owner.rpartition('.')[0]}.*{scope[len(owner) :]}".removeprefix(".")


@dataclass(frozen=True)
class _Modules:
    """The modules of a region, by the scopes of its forward nodes."""

    region: Region

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The paths of all layers, in the order in which they are first met."""
        return tuple(layer for _, members in self._lists("") for m in members for layer in self._inside(m))

    @cached_property
    def _forward(self) -> Sequence[Node]:
        return [n for n in self.region.nodes if n.phase is Phase.FORWARD]

    @cached_property
    def _scopes(self) -> Sequence[str]:
        return list(dict.fromkeys(n.scope for n in self._forward))

    @cached_property
    def _readers(self) -> Sequence[str]:
        return _readers(self.region)

    def _lists(self, root: str) -> list[tuple[str, list[str]]]:
        """Return the outermost lists below a module whose members follow one another, and their members."""
        found: dict[str, dict[str, None]] = {}
        for scope in self._scopes:
            if root and not scope.startswith(f"{root}."):
                continue
            match = _MEMBER.search(scope, len(root) + 1 if root else 0)
            if match is not None:
                found.setdefault(scope[: match.start()], {})[scope[: match.end()]] = None
        real = ((path, [m for m in members if self.size([m])]) for path, members in found.items())
        return [(path, members) for path, members in real if self._is_chain(members)]

    def _inside(self, member: str) -> Iterator[str]:
        """Yield a member, or the layers that it is a chain of: alike, of several modules, with most of its nodes."""
        inside = [m for _, members in self._lists(member) for m in members]
        kinds = Counter(self.kind(m) for m in inside)
        alike = any(num > 1 and len(kind) > 1 for kind, num in kinds.items())
        if not alike or self.size(inside) < _LEAST_SHARE * self.size([member]):
            yield member
            return
        for m in inside:
            yield from self._inside(m)

    def kind(self, module: str) -> frozenset[str]:
        """Return where in itself a module reads matrices."""
        return frozenset(s.removeprefix(f"{module}.") for s in self._readers if s.startswith(f"{module}."))

    def size(self, modules: Sequence[str] | None) -> int:
        """Return how many nodes of some modules, or of all, read a matrix."""
        return sum(modules is None or _owner(scope, modules) is not None for scope in self._readers)

    def _is_chain(self, members: Sequence[str]) -> bool:
        """Whether each member reads, through whatever lies between, what the one before makes: experts do not."""
        reached: dict[str, set[int]] = {m: set() for m in members}
        linked: set[tuple[str, str]] = set()
        for node in self._forward:
            owner = _owner(node.scope, members)
            for m, values in reached.items():
                if m == owner or not values.isdisjoint(node.inputs):
                    values.update(node.outputs)
                    linked.add((m, owner or ""))
        return all(pair in linked for pair in pairwise(members))


def _owner(scope: str, modules: Iterable[str]) -> str | None:
    return next((m for m in modules if scope == m or scope.startswith(f"{m}.")), None)


def _with_weights(region: Region, nodes: Sequence[Node], owners: Sequence[str | None]) -> list[str | None]:
    """Leave out the runs of a layer that read no parameter: of an activation that other layers share."""
    starts = [k for _, k in _runs(owners)]
    found = list(owners)
    for start, end in zip(starts, (*starts[1:], len(owners)), strict=True):
        own = (n for n, o in zip(nodes[start:end], owners[start:end], strict=True) if o is not None)
        read = {region.by_id[i].role for n in own for i in n.inputs}
        if Role.PARAM not in read:
            found[start:end] = [None] * (end - start)
    return found


def _runs(owners: Sequence[str | None]) -> list[tuple[str, int]]:
    """Return each run of a layer, and the number of its first node; what lies between belongs to the one before."""
    found: list[tuple[str, int]] = []
    for k, owner in enumerate(owners):
        if owner is not None and (not found or found[-1][0] != owner):
            found.append((owner, k))
    return found


def _places(region: Region, owners: Sequence[str | None], is_first: bool, is_last: bool) -> list[int]:
    """The place of every node: forward by its turn, backward where its forward node is, and never behind its inputs.

    What comes before the first layer, or behind the last, has a place of its own at the ends of a graph alone.
    """
    starts = {k: run for run, (_, k) in enumerate(_runs(owners))}
    last = max(k for k, owner in enumerate(owners) if owner is not None)
    place, turn = _BEFORE if is_first else 0, 0
    place_of: dict[int, int] = {}
    places: list[int] = []
    for node in region.nodes:
        if node.phase is Phase.FORWARD:
            place = _BEHIND if is_last and turn > last else starts.get(turn, place)
            turn += 1
            found = place
        else:
            # Where its forward node is, but not behind what it reads of the backward phase; a sum where the last part
            # is.
            made = [place_of[i] for i in node.inputs if i in place_of and region.phase_of(i) is not Phase.FORWARD]
            own = [] if node.forward is None else [place_of[node.forward]]
            found = min([*made, *own], default=max(place_of.values(), default=_BEHIND))
        place_of.update(dict.fromkeys(node.outputs, found))
        places.append(found)
    return places
