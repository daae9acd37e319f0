"""The flat graph cut into layers: prologue, one part a layer, epilogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import takewhile

from ...ir.graph import Node, Phase, Role
from ...ir.records import dataclass
from ..aten.flat import Flat, clean_scope
from .units import Layers, starred

PROLOGUE, EPILOGUE = -1, 1 << 30


@dataclass
class RegionInstance:
    """One instance of a region: its nodes, what it reads from outside (in order of use), what others read of it."""

    place: int
    nodes: list[Node] = field(default_factory=list)
    imports: list[int] = field(default_factory=list)
    exports: list[int] = field(default_factory=list)


@dataclass
class Cut:
    """A flat graph as parts in forward order; `home` says which part made each value.

    `paths` are the modules that each layer is made of. `shared` are parameters that several parts read: there is one
    of each, so its name keeps its number. `kept` are values that the backward nodes of another part read.
    """

    flat: Flat
    parts: dict[int, RegionInstance]
    home: dict[int, int]
    paths: tuple[tuple[str, ...], ...]
    shared: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()

    @property
    def layers(self) -> list[int]:
        """Places of layers in which something runs, in order."""
        return [p for p, part in sorted(self.parts.items()) if p not in (PROLOGUE, EPILOGUE) and part.nodes]

    def own_star(self, place: int, text: str) -> str:
        """Return a name with a star for the number of the layer itself, and for that of its cache."""
        text = re.sub(r"^cache\.[0-9]+\.", "cache.*.", text)
        for path in self.paths[place] if place in range(len(self.paths)) else ():
            if text == path or text.startswith(f"{path}."):
                outer, dot, last = path.rpartition(".")
                return f"{outer}{dot}{starred(last)}{text[len(path) :]}"
        return text


def stack_layers(flat: Flat, path: str, num_layers: int) -> Layers:
    """Return the members of one list of modules as layers, by the paths in which nodes stand."""
    pattern = re.compile(rf"^{re.escape(path)}\.([0-9]+)(?:\.|$)")
    scopes = {n.scope: pattern.match(clean_scope(n.scope)) for n in flat.nodes}
    found = {scope: int(m.group(1)) for scope, m in scopes.items() if m is not None}
    return Layers(found, tuple((f"{path}.{k}",) for k in range(num_layers)))


def cut(flat: Flat, layers: Layers) -> Cut:
    """Assign every node to a part by its scope; nodes outside the layers by what they depend on."""
    places = _Placing(flat, layers).places()
    parts = {p: RegionInstance(p) for p in (PROLOGUE, *range(len(layers.paths)), EPILOGUE)}
    home: dict[int, int] = {}
    for node, place in zip(flat.nodes, places, strict=True):
        parts[place].nodes.append(node)
        home.update(dict.fromkeys(node.outputs, place))
    _find_crossings(flat, parts, home)
    return Cut(flat, parts, home, layers.paths, _shared(flat, parts), _kept(flat, parts))


def _kept(flat: Flat, parts: Mapping[int, RegionInstance]) -> frozenset[int]:
    """What parts import and read in the backward phase, at once or as a view."""
    found: set[int] = set()
    for part in parts.values():
        late = {i for n in part.nodes if n.phase is not Phase.FORWARD for i in n.inputs}
        storages = {flat.values[i].storage for i in late}
        found.update(i for i in part.imports if flat.values[i].storage in storages)
    return frozenset(found)


def _shared(flat: Flat, parts: Mapping[int, RegionInstance]) -> frozenset[int]:
    """Parameters that the nodes of more than one part read."""
    users: dict[int, set[int]] = {}
    for place, part in parts.items():
        for i in {i for n in part.nodes for i in n.inputs if flat.values[i].role is Role.PARAM}:
            users.setdefault(i, set()).add(place)
    return frozenset(i for i, places in users.items() if len(places) > 1)


@dataclass
class _Placing:
    """Where nodes go that are of no layer.

    Forward: before any layer prologue, between layers the layer before, after all epilogue. Backward: as forward.
    What reads parameters alone and is read by no layer (the last norm's weight plus one) belongs where it is read, to
    the epilogue; what reads the model's inputs stays in the prologue, so that they are kept once.
    """

    flat: Flat
    layers: Layers
    layer: list[int | None] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    place_of: dict[int, int] = field(default_factory=dict)

    def places(self) -> list[int]:
        """The place of each node."""
        if not self.layers.paths:
            return [PROLOGUE] * len(self.flat.nodes)
        self.layer = [self.layers.of_scope.get(n.scope) for n in self.flat.nodes]
        self.made = [PROLOGUE] * len(self.flat.nodes)
        self._forward()
        self._sink()
        self._end_last_layer()
        for k, (node, layer) in enumerate(zip(self.flat.nodes, self.layer, strict=True)):
            if node.phase is not Phase.FORWARD:
                self._put(k, self._backward_place(node, layer))
        return self.made

    def _put(self, k: int, place: int) -> None:
        self.made[k] = place
        self.place_of.update(dict.fromkeys(self.flat.nodes[k].outputs, place))

    def _forward(self) -> None:
        after: dict[int, int] = {}
        awaited = self._read_by_later_layers()
        for k, (node, layer) in enumerate(zip(self.flat.nodes, self.layer, strict=True)):
            if node.phase is not Phase.FORWARD:
                continue
            last = max((after[i] for i in node.inputs if i in after), default=PROLOGUE)
            if layer is None:
                begins = last == PROLOGUE and any(self.flat.values[i].role is not Role.PARAM for i in node.inputs)
                self._put(k, last if begins or awaited.intersection(node.outputs) else EPILOGUE)
            else:
                self._put(k, layer)
            after.update(dict.fromkeys(node.outputs, max(self.made[k], last)))

    def _read_by_later_layers(self) -> set[int]:
        """Forward values that some layer reads, at once or through nodes that stand between layers."""
        awaited: set[int] = set()
        for node, layer in zip(reversed(self.flat.nodes), reversed(self.layer), strict=True):
            if node.phase is Phase.FORWARD and (layer is not None or awaited.intersection(node.outputs)):
                awaited.update(node.inputs)
        return awaited

    def _sink(self) -> None:
        """What runs behind a first layer, depends on none, and is read behind one layer alone belongs there.

        But for what reads the model's inputs, which are kept once.
        """
        begun = next((k for k, layer in enumerate(self.layer) if layer is not None), len(self.layer))
        readers: dict[int, set[int]] = {}
        for k in reversed(range(len(self.flat.nodes))):
            node = self.flat.nodes[k]
            if node.phase is not Phase.FORWARD:
                continue
            into = {p for o in node.outputs for p in readers.get(o, ())}
            begins = any(self.flat.values[i].role is Role.INPUT for i in node.inputs)
            if k > begun and self.layer[k] is None and self.made[k] == PROLOGUE and len(into) == 1 and not begins:
                place = into.pop()
                self._put(k, place if place != EPILOGUE else PROLOGUE)
            # A layer's own nodes are no reason to run something in that layer.
            reader = self.made[k] if self.layer[k] is None else EPILOGUE
            for i in node.inputs:
                readers.setdefault(i, set()).add(reader)

    def _end_last_layer(self) -> None:
        """What runs behind every layer runs behind the last one, too, though no layer reads it there."""
        types = {i: str(v.type) for i, v in self.flat.values.items()}
        labels = [hash((n.op, n.attrs, *(types[i] for i in (*n.inputs, *n.outputs)))) for n in self.flat.nodes]
        inside: dict[int, list[int]] = {}
        behind: dict[int, list[int]] = {}
        for k, node in enumerate(self.flat.nodes):
            if node.phase is Phase.FORWARD and self.made[k] != PROLOGUE:
                (behind if self.layer[k] is None else inside).setdefault(self.made[k], []).append(k)
        last = max(inside, default=PROLOGUE)
        kind = [labels[k] for k in inside.get(last, ())]
        others = [p for p, held in inside.items() if p != last and [labels[k] for k in held] == kind]
        if not others:
            return
        common = _common_start([[labels[k] for k in behind.get(p, ())] for p in others])
        given = [*behind.get(last, ()), *behind.get(EPILOGUE, ())][: len(common)]
        if [labels[k] for k in given] == common and self._is_reached(given, last):
            for k in given:
                self._put(k, last)

    def _is_reached(self, given: Sequence[int], last: int) -> bool:
        """Whether nodes read only what is made up to a layer, or by one another."""
        own = {o for k in given for o in self.flat.nodes[k].outputs}
        read = {i for k in given for i in self.flat.nodes[k].inputs}
        return all(self.place_of.get(i, PROLOGUE) <= last or i in own for i in read)

    def _backward_place(self, node: Node, layer: int | None) -> int:
        """Where its forward node is, and no later than what it reads is made.

        A sum of gradients has no forward node: it goes where the last of them is made.
        """
        phases = self.flat.phases
        made = [self.place_of[i] for i in node.inputs if i in self.place_of and phases[i] is not Phase.FORWARD]
        if layer is None and node.forward is not None:
            layer = self.place_of.get(node.forward)
        return min(made if layer is None else (layer, *made), default=EPILOGUE)


def _common_start(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return what all rows begin with.

    >>> _common_start([[1, 2, 3], [1, 2], [1, 2, 4]])
    [1, 2]
    """
    columns: Iterable[tuple[int, ...]] = zip(*rows, strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


def _find_crossings(flat: Flat, parts: dict[int, RegionInstance], home: dict[int, int]) -> None:
    for place, part in parts.items():
        for i in dict.fromkeys(i for n in part.nodes for i in n.inputs):
            source = home.get(i)
            if source is not None and source != place:
                part.imports.append(i)
                if i not in parts[source].exports:
                    parts[source].exports.append(i)
    order = {o: k for k, n in enumerate(flat.nodes) for o in n.outputs}
    for part in parts.values():
        part.exports.sort(key=lambda i: order[i])


def fingerprint(c: Cut, part: RegionInstance) -> tuple[object, ...]:
    """Return the structure of a part with its place taken out: equal for equal layers, and only for those.

    Numbers in names do not count, but where parts share a parameter; what others read of the part does.
    """
    local: dict[int, int] = {}
    lines: list[object] = []
    for node in part.nodes:
        for i in node.inputs:
            if i not in local:
                local[i] = len(local)
                v = c.flat.values[i]
                # Tensors that the model keeps under no name are counted as they are met, in all layers.
                literal = v.role is Role.INPUT or v.id in c.shared
                name = "" if v.role is Role.RESULT else v.name if literal else starred(v.name)
                lines.append(("in", local[i], (str(v.role), name, str(v.type))))
        for o in node.outputs:
            local[o] = len(local)
        types = tuple(str(c.flat.values[o].type) for o in node.outputs)
        storages = tuple(local.get(c.flat.values[o].storage, -1) for o in node.outputs)
        ins, outs = tuple(local[i] for i in node.inputs), tuple(local[o] for o in node.outputs)
        link = None if node.forward is None else local.get(node.forward, -1)
        scope = starred(clean_scope(node.scope))
        lines.append((node.op, ins, outs, node.attrs, types, storages, scope, node.phase, link))
    made = {o for n in part.nodes for o in n.outputs}
    lines.append(("grad", *((local.get(p, -1), local[g]) for p, g in c.flat.grads.items() if g in made)))
    # What the last of equal layers makes may leave the graph, where the others hand it on.
    given = {*part.exports, *made.intersection(c.flat.results)}
    return (*lines, ("out", *sorted((local[i], i in c.kept) for i in given)))
