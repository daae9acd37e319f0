"""A region under reconstruction: nodes are replaced, erased and put in; makers, users and links stay true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import is_

from ..graph import Node, Port, Region, Role, Value
from ..types import DType


class RegionRewriter:
    """Verbs that change a region; `finish` returns it, the same object where nothing changed.

    A node is named by its key: the one that is handed in may be older than the one that stands there now. `values`,
    `outputs` and `grads` are those of the region to come. Source of the verbs: `Node` of onnx/ir-py, `PatternRewriter`
    of xDSL.
    """

    def __init__(self, region: Region) -> None:
        """Begin with the nodes as they are."""
        self.region = region
        self.values: dict[int, Value] = dict(region.by_id)
        self.outputs, self.grads = region.outputs, region.grads
        self._nodes = {n.key: n for n in region.nodes}
        # Keys by the place where a node of the region stood, with a place in front of all and one behind all.
        self._places: list[list[int]] = [[], *([n.key] for n in region.nodes), []]
        self._place = {n.key: k for k, n in enumerate(region.nodes, 1)}
        self._maker = {o: n.key for n in region.nodes for o in n.outputs}
        self._users = {i: dict.fromkeys(n.key for n in nodes) for i, nodes in region.users.items()}
        self._heir: dict[int, int] = {}
        self._next = region.fresh_id

    # Reading.

    def now(self, node: Node) -> Node:
        """Return the node that has the key of one."""
        return self._nodes[node.key]

    def maker(self, value: int) -> Node | None:
        """Return the node that makes a value, None for what comes from outside."""
        key = self._maker.get(value)
        return None if key is None else self._nodes[key]

    def users(self, value: int) -> Sequence[Node]:
        """Return the nodes that read a value."""
        return [self._nodes[key] for key in self._users.get(value, ())]

    def first(self, nodes: Iterable[Node]) -> Node | None:
        """Return the node that stands before the others."""
        return min(nodes, key=lambda n: self._place[n.key], default=None)

    def is_needed(self, value: int) -> bool:
        """Whether a value leaves the region, belongs to a gradient, or owns storage that another value views."""
        return value in self._held

    @cached_property
    def _held(self) -> set[int]:
        return _held(self.region.values, self.outputs, self.grads)

    # Writing.

    def add(self, like: Value, storage: int | None = None) -> int:
        """Add a value under a fresh id, in a storage of its own unless another one is given; return the id."""
        ident = self._next
        self._next += 1
        self.values[ident] = replace(like, id=ident, storage=ident if storage is None else storage)
        return ident

    def replace(self, old: Node, *new: Node, heir: Node | None = None) -> None:
        """Put nodes in the place of one; what it made and they make keeps its id.

        Backward nodes that belonged to it belong to its heir: unless told, the last of them, where none has its key.
        """
        if heir is not None or (new and old.key not in [n.key for n in new]):
            self._heir[old.key] = (heir or new[-1]).key
        place = self._place.pop(old.key)
        keys = self._places[place]
        at = keys.index(old.key)
        self._unlink(self._nodes.pop(old.key))
        keys[at : at + 1] = self._link(new, place)

    def erase(self, node: Node, heir: Node | None = None) -> None:
        """Take a node out; the backward nodes that belonged to it belong to its heir."""
        self.replace(node, heir=heir)

    def insert_before(self, node: Node, *new: Node, first: bool = False) -> None:
        """Put nodes right in front of one, or in front of all that stands in its place."""
        place = self._place[node.key]
        at = 0 if first else self._places[place].index(node.key)
        self._places[place][at:at] = self._link(new, place)

    def insert_after(self, node: Node, *new: Node) -> None:
        """Put nodes behind all that stands in the place of one."""
        place = self._place[node.key]
        self._places[place] += self._link(new, place)

    def prepend(self, *new: Node) -> None:
        """Put nodes in front of all of the region, behind those put there before."""
        self._places[0] += self._link(new, 0)

    def append(self, *new: Node) -> None:
        """Put nodes behind all others."""
        self._places[-1] += self._link(new, len(self._places) - 1)

    def read(self, node: Node, index: int, value: int) -> None:
        """Let a node read a value in some place; the place behind the last one is a new one."""
        now = self._nodes[node.key]
        self.replace(now, replace(now, inputs=(*now.inputs[:index], value, *now.inputs[index + 1 :])))

    def retype(self, dtype: DType, *values: int) -> None:
        """Let values be of another element type."""
        for v in map(self.values.__getitem__, values):
            self.values[v.id] = replace(v, type=replace(v.type, dtype=dtype))

    def rewire(self, node: Node, inputs: Mapping[int, int]) -> None:
        """Let a node read other values."""
        now = self._nodes[node.key]
        self.replace(now, replace(now, inputs=tuple(inputs.get(i, i) for i in now.inputs)))

    def move_storage(self, old: int, new: int) -> None:
        """Let what lies in one storage lie in another."""
        self.values.update(
            (i, replace(v, storage=new)) for i, v in self.values.items() if v.storage == old and i != new
        )

    def copies(self, nodes: Iterable[Node], source: Region, names: dict[int, int]) -> list[Node]:
        """Return copies of nodes of a region, to be put in: `names` says what they read, and is told what they make."""
        made: list[Node] = []
        for node in nodes:
            for v in (source.by_id[o] for o in node.outputs):
                storage = None if v.storage == v.id else names.get(v.storage, v.storage)
                names[v.id] = self.add(replace(v, saved=False), storage)
            inputs, outputs = (tuple(names.get(i, i) for i in ids) for ids in (node.inputs, node.outputs))
            made.append(replace(node, inputs=inputs, outputs=outputs))
        return made

    def finish(self) -> Region:
        """Return the region, without results that no node makes and without sources that no node reads any more."""
        old = self.region
        nodes = tuple(self._relinked(self._nodes[key]) for keys in self._places for key in keys)
        made, read = {o for n in nodes for o in n.outputs}, {i for n in nodes for i in n.inputs}
        gone = {i for i in old.producer if i not in made and self.values[i].role is Role.RESULT}
        given = tuple(self.values.values())
        held = _held((v for v in given if v.id not in gone), self.outputs, self.grads)
        gone |= old.users.keys() - read - old.producer.keys() - held
        rest = (given, self.outputs, self.grads) == (old.values, old.outputs, old.grads)
        if rest and not gone and len(nodes) == len(old.nodes) and all(map(is_, nodes, old.nodes)):
            return old
        kept = (v for v in given if v.id not in gone)
        values = tuple(replace(v, storage=v.id) if v.storage in gone else v for v in kept)
        return replace(old, values=values, nodes=nodes, outputs=self.outputs, grads=self.grads)

    def _relinked(self, node: Node) -> Node:
        key = node.forward
        while key in self._heir:
            key = self._heir[key]
        return node if key == node.forward else replace(node, forward=key)

    def _link(self, new: Sequence[Node], place: int) -> list[int]:
        for node in new:
            self._nodes[node.key], self._place[node.key] = node, place
            self._maker.update(dict.fromkeys(node.outputs, node.key))
            for i in node.inputs:
                self._users.setdefault(i, {})[node.key] = None
        return [node.key for node in new]

    def _unlink(self, node: Node) -> None:
        for o in node.outputs:
            if self._maker.get(o) == node.key:
                del self._maker[o]
        for i in dict.fromkeys(node.inputs):
            del self._users[i][node.key]


def _held(values: Iterable[Value], outputs: Iterable[Port], grads: Iterable[tuple[int, int]]) -> set[int]:
    viewed = {v.storage for v in values if v.storage != v.id}
    return viewed | {p.value for p in outputs} | {i for pair in grads for i in pair}
