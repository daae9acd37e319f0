"""The flat graph cut along module paths: prologue, one part a recorded layer, epilogue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..ir.graph import Node, Phase, Role, Value
from .flat import Flat

PROLOGUE, EPILOGUE = -1, 1 << 30


@dataclass
class Part:
    """One instance of a region: its nodes, what it reads from outside (in order of use), what others read of it."""

    place: int
    nodes: list[Node] = field(default_factory=list)
    imports: list[int] = field(default_factory=list)
    exports: list[int] = field(default_factory=list)


@dataclass
class Cut:
    """A flat graph as parts in forward order; `home` says which part made each value.

    `paths` are the lists of modules whose members are the layers: number k of each makes up layer k. `shared` are
    parameters that several layers read: there is one of each, so its name keeps its number.
    """

    flat: Flat
    parts: dict[int, Part]
    home: dict[int, int]
    paths: tuple[str, ...]
    shared: frozenset[int] = frozenset()

    def star(self, text: str) -> str:
        """Return a module path with the layer's number replaced by a star."""
        return _star(text, self.paths)

    def name(self, v: Value) -> str:
        """Return the name of a value of the model, which layers that are alike have in common."""
        return v.name if v.id in self.shared else self.star(v.name)


def cut(flat: Flat, paths: Sequence[str], num_kept: int) -> Cut:
    """Assign every node to a part by its scope; nodes outside the layers by what they depend on."""
    pattern = re.compile(rf"^(?:{'|'.join(map(re.escape, paths))})\.(\d+)(?:\.|$)") if paths else None
    places = _places(flat, pattern)
    parts = {p: Part(p) for p in (PROLOGUE, *range(num_kept), EPILOGUE)}
    home: dict[int, int] = {}
    for node, place in zip(flat.nodes, places, strict=True):
        parts[place].nodes.append(node)
        home.update(dict.fromkeys(node.outputs, place))
    _find_crossings(flat, parts, home)
    return Cut(flat, parts, home, tuple(paths), _shared(flat, parts))


def _shared(flat: Flat, parts: Mapping[int, Part]) -> frozenset[int]:
    """Parameters that the nodes of more than one layer read."""
    users: dict[int, set[int]] = {}
    for place, part in parts.items():
        for i in {i for n in part.nodes for i in n.inputs if flat.values[i].role is Role.PARAM}:
            users.setdefault(i, set()).add(place)
    return frozenset(i for i, places in users.items() if len(places - {PROLOGUE, EPILOGUE}) > 1)


def _places(flat: Flat, pattern: re.Pattern[str] | None) -> list[int]:
    """Forward: before any layer prologue, between layers the layer before, after all epilogue. Backward: as forward.

    What reads parameters alone and is read by no layer (the last norm's weight plus one) belongs where it is read, to
    the epilogue; what reads the model's inputs stays in the prologue, so that they are kept once.
    """
    if pattern is None:
        return [PROLOGUE] * len(flat.nodes)
    layers = [None if (m := pattern.match(n.scope)) is None else int(m.group(1)) for n in flat.nodes]
    awaited = _read_by_later_layers(flat, layers)
    place_of: dict[int, int] = {}
    after: dict[int, int] = {}
    places: list[int] = []
    for node, layer in zip(flat.nodes, layers, strict=True):
        last = max((after[i] for i in node.inputs if i in after), default=PROLOGUE)
        if layer is not None:
            place = layer
        elif node.phase is Phase.FORWARD:
            begins = last == PROLOGUE and any(flat.values[i].role is not Role.PARAM for i in node.inputs)
            place = last if begins or awaited.intersection(node.outputs) else EPILOGUE
        else:
            place = _backward_place(node, flat, place_of)
        place_of.update(dict.fromkeys(node.outputs, place))
        after.update(dict.fromkeys(node.outputs, max(place, last)))
        places.append(place)
    return places


def _read_by_later_layers(flat: Flat, layers: Sequence[int | None]) -> set[int]:
    """Forward values that some layer reads, at once or through nodes that stand between layers."""
    awaited: set[int] = set()
    for node, layer in zip(reversed(flat.nodes), reversed(layers), strict=True):
        if node.phase is Phase.FORWARD and (layer is not None or awaited.intersection(node.outputs)):
            awaited.update(node.inputs)
    return awaited


def _backward_place(node: Node, flat: Flat, place_of: Mapping[int, int]) -> int:
    """Where its forward node is; a sum of gradients, which has none, goes where the last of them is made."""
    if node.forward is not None and node.forward in place_of:
        return place_of[node.forward]
    made = [place_of[i] for i in node.inputs if i in place_of and flat.phases[i] is not Phase.FORWARD]
    return min(made, default=EPILOGUE)


def _find_crossings(flat: Flat, parts: dict[int, Part], home: dict[int, int]) -> None:
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


def fingerprint(c: Cut, part: Part) -> tuple[object, ...]:
    """Return the structure of a part with its place taken out: equal for equal layers, and only for those."""
    local: dict[int, int] = {}
    lines: list[object] = []
    for node in part.nodes:
        for i in node.inputs:
            if i not in local:
                local[i] = len(local)
                lines.append(("in", local[i], _outside(c, c.flat.values[i])))
        for o in node.outputs:
            local[o] = len(local)
        types = tuple(str(c.flat.values[o].type) for o in node.outputs)
        storages = tuple(local.get(c.flat.values[o].storage, -1) for o in node.outputs)
        ins, outs = tuple(local[i] for i in node.inputs), tuple(local[o] for o in node.outputs)
        link = None if node.forward is None else local.get(node.forward, -1)
        lines.append((node.op, ins, outs, node.attrs, types, storages, c.star(node.scope), node.phase, link))
    return tuple(lines)


def _outside(c: Cut, v: Value) -> tuple[str, str, str]:
    # Tensors that the model keeps under no name are counted as they are met, in all layers.
    name = "" if v.role is Role.RESULT else re.sub(r"^constant_\d+$", "constant", c.name(v))
    return str(v.role), name, str(v.type)


def _star(text: str, paths: Sequence[str]) -> str:
    text = re.sub(r"^cache\.\d+\.", "cache.*.", text)
    for path in paths:
        text = re.sub(rf"(^|\.){re.escape(path)}\.\d+(?=\.|$)", rf"\g<1>{path}.*", text)
    return text


def local_part(c: Cut, part: Part, value: int) -> int:
    """Return the position of a value among the exports of its part."""
    return part.exports.index(value)


__all__ = ["EPILOGUE", "PROLOGUE", "Cut", "Part", "cut", "fingerprint", "replace"]
