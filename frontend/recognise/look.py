"""A flat graph seen from any value: who makes it, who reads it, and what lies behind casts and views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...ir.graph import Node, Role, Value
from ...ir.ops import Trait, has
from ...ir.ops.tensors.normalize import ReduceAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.types import DType
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
