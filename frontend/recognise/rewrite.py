"""Patterns put to a flat graph: where one is found, new nodes make what its root made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ...ir.graph import NO_ATTRS, Attrs, Node, Phase, Role, Value
from ...ir.ops import Trait, op_def
from ...ir.sizes.expr import Dim
from ...ir.types import TensorType
from ..aten.flat import Flat
from .look import Look


@dataclass
class Draft:
    """New nodes in the place of a root; the first output of the last of them becomes that of the root."""

    look: Look
    root: Node
    nodes: list[Node] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[int], kinds: Sequence[TensorType], attrs: Attrs = NO_ATTRS) -> int:
        """Append a node and return its first output; views share the storage of what they look at."""
        values = self.look.flat.values
        first = next_id(values)
        outs = tuple(range(first, first + len(kinds)))
        for out, kind in zip(outs, kinds, strict=True):
            values[out] = Value(out, kind, values[inputs[0]].storage if Trait.VIEW in op_def(op).traits else out)
        self.nodes.append(replace(self.root, op=op, inputs=tuple(inputs), outputs=outs, attrs=attrs))
        return first

    def view(self, op: str, source: int, dims: tuple[Dim, ...], attrs: Attrs = NO_ATTRS) -> int:
        """Look at a value in other dims; the same view twice is one node."""
        kind = self.look.value(source).type.with_dims(dims)
        for node in self.nodes:
            if (node.op, node.inputs, node.attrs) == (op, (source,), attrs) and self.look.value(node.key).type == kind:
                return node.key
        return self.add(op, (source,), [kind], attrs)

    def settle(self) -> int:
        """Let the last node make what the root made; return the storage that it has now."""
        values, root, last = self.look.flat.values, self.root.key, self.nodes[-1]
        made = values.pop(last.key)
        storage = root if made.storage == last.key else made.storage
        values[root] = replace(values[root], type=made.type, storage=storage)
        self.nodes[-1] = replace(last, outputs=(root, *last.outputs[1:]))
        return storage


Pattern: TypeAlias = Callable[[Look, Node], "Draft | None"]


def next_id(values: dict[int, Value]) -> int:
    """Return an id that no value has; ids stand in rising order."""
    return next(reversed(values)) + 1 if values else 0


def put(flat: Flat, pattern: Pattern) -> Flat:
    """Return the graph with every occurrence of a pattern in its forward nodes replaced."""
    look = Look.at(replace(flat, values=dict(sorted(flat.values.items()))))
    gone: set[int] = set()
    instead: dict[int, list[Node]] = {}
    moved: dict[int, int] = {}
    for node in flat.nodes:
        draft = pattern(look, node) if node.phase is Phase.FORWARD and node.key not in gone else None
        if draft is None:
            continue
        root = draft.root.key
        was, now = look.value(root).storage, draft.settle()
        if was == root != now:
            moved[root] = now
        instead[root] = draft.nodes
        for new in draft.nodes:
            look.add(new)
        gone.update(n.key for n in look.release(draft.root) if n.key != root)
    nodes = [new for n in flat.nodes for new in instead.get(n.key, [n]) if new.key not in gone]
    return replace(look.flat, nodes=nodes, values=_kept(look.flat.values, nodes, moved))


def _kept(values: Mapping[int, Value], nodes: Sequence[Node], moved: Mapping[int, int]) -> dict[int, Value]:
    made = {o for n in nodes for o in n.outputs}
    return {
        i: replace(v, storage=_last(v.storage, moved))
        for i, v in values.items()
        if v.role is not Role.RESULT or i in made
    }


def _last(storage: int, moved: Mapping[int, int]) -> int:
    while storage in moved:
        storage = moved[storage]
    return storage


__all__ = ["Draft", "Pattern", "put"]
