"""Patterns put to a flat graph: what lies around a value, and new nodes that make what a pattern's root made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from ...ir.graph import NO_ATTRS, Attrs, Node, Phase, Role, Value
from ...ir.ops import Trait, has, op_def
from ...ir.ops.tensors.normalize import ReduceAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ...ir.types import DType, TensorType
from ..aten.flat import Flat, Said

UNCHANGED = (Trait.CASTS, Trait.COPIES)
_UNSAID = Said("")


@dataclass
class Look:
    """Makers and readers of the values of a flat graph, kept true while nodes are replaced."""

    flat: Flat
    producer: dict[int, Node] = field(default_factory=dict)
    readers: dict[int, list[Node]] = field(default_factory=dict)
    wanted: frozenset[int] = frozenset()

    @classmethod
    def at(cls, flat: Flat) -> Look:
        """Look at a graph."""
        look = cls(flat, wanted=frozenset((*flat.results, *flat.grads.values())))
        for node in flat.nodes:
            look.add(node)
        return look

    def add(self, node: Node) -> None:
        """Know a node."""
        self.producer.update(dict.fromkeys(node.outputs, node))
        for i in dict.fromkeys(node.inputs):
            self.readers.setdefault(i, []).append(node)

    def value(self, ident: int) -> Value:
        """Return a value."""
        return self.flat.values[ident]

    def said(self, node: Node) -> Said:
        """Return what the source says of a call; nothing where it is not known."""
        return self.flat.said.get(node.key, _UNSAID)

    def number(self, node: Node) -> float | None:
        """Return the last plain number of a call, None where it has none or none is known."""
        numbers = self.said(node).numbers
        return numbers[-1] if numbers else None

    def made_by(self, ident: int, *fns: str) -> Node | None:
        """Return the maker of a value when it is one of these pointwise functions."""
        node = self.producer.get(ident)
        return node if node is not None and fn_of(node) in fns else None

    def made_by_op(self, ident: int, *asked: Trait) -> Node | None:
        """Return the maker of a value when its op has one of these traits."""
        node = self.producer.get(ident)
        return node if node is not None and has(node, *asked) else None

    def behind(self, ident: int, *asked: Trait) -> int:
        """Follow a value back through ops with such traits."""
        while (node := self.made_by_op(ident, *asked)) is not None:
            ident = node.inputs[0]
        return ident

    def operands(self, node: Node) -> tuple[int, ...]:
        """Return the inputs that are no plain numbers."""
        return tuple(i for i in node.inputs if not self.is_number(i))

    def is_number(self, ident: int) -> bool:
        """Whether a value is one constant, filled in or stored."""
        value = self.value(self.behind(ident, *UNCHANGED, Trait.RESHAPES, Trait.EXPANDS))
        if value.type.numel != 1:
            return False
        made = self.producer.get(value.id)
        return value.role is Role.BUFFER if made is None else has(made, Trait.FILLS)

    def sole_reader(self, ident: int) -> Node | None:
        """Return the one node that reads a value, None when there are more or it is a result."""
        found = self.readers.get(ident, [])
        return found[0] if len(found) == 1 and ident not in self.wanted else None

    def is_largest(self, node: Node | None) -> bool:
        """Whether a node finds the largest entries of rows: a maximum, alone or with its places."""
        if node is None:
            return False
        return has(node, Trait.CHOOSES) or (isinstance(node.attrs, ReduceAttrs) and node.attrs.fn in ("amax", "max"))

    def ending(self, node: Node, wanted: DType) -> Node:
        """Return the cast that alone reads a node and gives its result the wanted type, else the node itself."""
        reader = self.sole_reader(node.key)
        if reader is None or not has(reader, Trait.CASTS) or self.value(node.key).type.dtype is wanted:
            return node
        return reader if self.value(reader.key).type.dtype is wanted else node

    def base(self, ident: int) -> int:
        """Follow a value back through casts and copies."""
        return self.behind(ident, *UNCHANGED)

    def is_closed(self, inside: Iterable[Node], root: Node) -> bool:
        """Whether nobody but these nodes reads what they make, the root apart; casts and views between do not count."""
        keys = {root.key, *(n.key for n in inside)}
        return all(self._stays(o, keys) for n in inside if n.key != root.key for o in n.outputs)

    def _stays(self, ident: int, keys: set[int]) -> bool:
        if ident in self.wanted:
            return False
        return all(
            r.key in keys or (has(r, *UNCHANGED, Trait.VIEW) and self._stays(r.key, keys))
            for r in self.readers.get(ident, [])
        )

    def release(self, node: Node) -> Iterator[Node]:
        """Forget a node, and with it what then nobody reads; yield what is gone."""
        yield node
        for i in dict.fromkeys(node.inputs):
            self.readers[i].remove(node)
            maker = self.producer.get(i)
            if maker is not None and not any(self.is_read(o) for o in maker.outputs):
                yield from self.release(maker)

    def is_read(self, ident: int) -> bool:
        """Whether a node reads a value, or it is a result."""
        return bool(self.readers.get(ident)) or ident in self.wanted


def fn_of(node: Node) -> str:
    """Return the function of a pointwise node, nothing for other nodes."""
    if isinstance(node.attrs, ElementwiseAttrs) and len(node.attrs.fns) == 1:
        return node.attrs.fns[0]
    return ""


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
        i: replace(v, storage=_last(v.storage, moved)) if v.storage in moved else v
        for i, v in values.items()
        if v.role is not Role.RESULT or i in made
    }


def _last(storage: int, moved: Mapping[int, int]) -> int:
    while storage in moved:
        storage = moved[storage]
    return storage
