"""The flat graph cut along module paths: prologue, one part a recorded layer, epilogue."""

from __future__ import annotations

import re
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
    """A flat graph as parts in forward order; `home` says which part made each value."""

    flat: Flat
    parts: dict[int, Part]
    home: dict[int, int]
    path: str

    def star(self, text: str) -> str:
        """Return a module path with the layer's number replaced by a star."""
        return _star(text, self.path)


def cut(flat: Flat, path: str, num_kept: int) -> Cut:
    """Assign every node to a part by its scope; nodes outside the layers by what they depend on."""
    pattern = re.compile(rf"^{re.escape(path)}\.(\d+)(?:\.|$)") if path else None
    places = _places(flat, pattern)
    parts = {p: Part(p) for p in (PROLOGUE, *range(num_kept), EPILOGUE)}
    home: dict[int, int] = {}
    for node, place in zip(flat.nodes, places, strict=True):
        parts[place].nodes.append(node)
        home.update(dict.fromkeys(node.outputs, place))
    _find_crossings(flat, parts, home)
    return Cut(flat, parts, home, path)


def _places(flat: Flat, pattern: re.Pattern[str] | None) -> list[int]:
    """Forward: before any layer prologue, after one epilogue. Backward: the other way round."""
    place_of: dict[int, int] = {}
    forward_place: dict[int, int] = {}
    reached: dict[int, bool] = {}
    places: list[int] = []
    for node in flat.nodes:
        match = pattern.match(node.scope) if pattern else None
        same_phase = [i for i in node.inputs if i in place_of]
        touched = any(reached.get(i, False) for i in same_phase)
        if match is not None:
            place = int(match.group(1))
        elif node.phase is Phase.FORWARD:
            place = EPILOGUE if touched else PROLOGUE
        else:
            place = _backward_place(node, forward_place, place_of, touched)
        inside = place not in (PROLOGUE, EPILOGUE)
        for out in node.outputs:
            place_of[out] = place
            forward_place.setdefault(out, place)
            reached[out] = inside or place == EPILOGUE or touched
        places.append(place)
    return places


def _backward_place(node: Node, forward_place: dict[int, int], place_of: dict[int, int], touched: bool) -> int:
    if node.forward is not None and forward_place.get(node.forward) in (PROLOGUE, EPILOGUE):
        return forward_place[node.forward]
    from_layers = any(place_of.get(i, EPILOGUE) not in (PROLOGUE, EPILOGUE) for i in node.inputs)
    return PROLOGUE if touched and from_layers else EPILOGUE


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
    name = "" if v.role is Role.RESULT else c.star(v.name)
    return str(v.role), name, str(v.type)


def _star(text: str, path: str) -> str:
    text = re.sub(r"^cache\.\d+\.", "cache.*.", text)
    return re.sub(rf"(^|\.){re.escape(path)}\.\d+(?=\.|$)", rf"\g<1>{path}.*", text) if path else text


def local_part(c: Cut, part: Part, value: int) -> int:
    """Return the position of a value among the exports of its part."""
    return part.exports.index(value)


__all__ = ["EPILOGUE", "PROLOGUE", "Cut", "Part", "cut", "fingerprint", "replace"]
