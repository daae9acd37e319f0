"""The flat graph as it is written: values made when first used, every node checked against the rule of its op."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from ...ir.errors import NotUnderstoodError
from ...ir.graph import NO_ATTRS, Attrs, Node, Role, Value, Workload
from ...ir.ops import OpCall, op_def
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_expr
from ...ir.types import DType, TensorType
from ..aten.flat import Flat, NodeOrigin, Said
from .shapes.items import Content, Item, Packed
from .shapes.symbols import NamedSizes, is_cache

MAX_NODES = 400_000
_MAX_SEARCH = 1000
# What the numbers of a Constant node are called.
CONSTANT = "Constant."
# Sizes for which a comparison of symbolic sizes is decided where it does not hold for all.
LIKELY = {"batch": 3.0, "seq": 48.0, "kv": 80.0}
_TABLES = re.compile(r"inv_freq|(cos|sin)_?cache|rotary|position_ids|(^|[._])(causal_)?mask([._]|$)", re.IGNORECASE)
# What builders put between a module and its weight, and what they call a packed one.
_OPERATOR = re.compile(r"[A-Z]\w*")
_WEIGHT = re.compile(r"q?weight(_?(Q[0-9]|quant|q[0-9]|int[0-9]|B)\w*)?$", re.IGNORECASE)
_GENERIC = re.compile(r"^(onnx::\w+_[0-9]+|val_[0-9]+|[0-9]+|_?\w*(initializer|const)\w*)$")


@dataclass
class Builder:
    """The graph under construction, and what is worth telling of how it was read.

    `declared` has the dims of results as the file writes them: a number, a name, or nothing.
    """

    workload: Workload
    sizes: NamedSizes
    declared: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    flat: Flat = field(default_factory=Flat)
    notes: list[str] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    made: dict[int, tuple[Item, int]] = field(default_factory=dict)
    producer: dict[int, Node] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    num_caches: int = 0
    max_positions: int = 0

    def emit(
        self,
        op: str,
        inputs: Sequence[int],
        outputs: Sequence[tuple[TensorType, int | None]],
        origin: NodeOrigin,
        attrs: Attrs = NO_ATTRS,
    ) -> tuple[int, ...]:
        """Append a node; NotUnderstoodError where its types break the rule of its op."""
        if len(self.flat.nodes) >= MAX_NODES:
            raise NotUnderstoodError(f"more than {MAX_NODES} operators once loops and functions are written out")
        kinds = tuple(self.flat.values[i].type for i in inputs)
        for kind, _ in outputs:
            if any(_is_negative(d) for d in kind.dims):
                raise NotUnderstoodError(f"'{op}' would make {kind}")
        wrong = next(op_def(op).complaints(OpCall(op, attrs, kinds, tuple(t for t, _ in outputs))), None)
        if wrong is not None:
            raise NotUnderstoodError(f"'{op}': {wrong}")
        outs = self.flat.emit(op, inputs, outputs, origin, attrs)
        self.producer.update(dict.fromkeys(outs, self.flat.nodes[-1]))
        return outs

    def value(self, item: Item, origin: NodeOrigin) -> int:
        """Return the value of an item; a weight or a constant gets one when it is first used."""
        if item.value is not None:
            return item.value
        if id(item) in self.made:
            return self.made[id(item)][1]
        if item.packed is not None:
            found = self._widened(item, origin)
        elif item.stored:
            found = self.weight(item, origin)
        else:
            found = self.emit("fill", (), [(item.type, None)], origin, FillAttrs("constant"))[0]
        self.made[id(item)] = (item, found)
        return found

    def weight(
        self, item: Item, origin: NodeOrigin, dims: tuple[Dim, ...] = (), dtype: DType | None = None, name: str = ""
    ) -> int:
        """Return the value of an initializer: a parameter, or a buffer for tables and integers nobody widens.

        `dims` and `dtype` say what a packed weight holds, where that is not what its bytes look like; `name` is what to
        call it.
        """
        if item.stored in self.values:
            return self.values[item.stored]
        if item.value is not None:
            return item.value
        kind = TensorType(dims or item.type.dims, dtype or item.type.dtype)
        is_constant = item.stored.startswith(CONSTANT) and kind.rank < 2
        is_table = is_constant or not kind.dtype.is_floating or _TABLES.search(item.stored) is not None
        is_table = dtype is None and is_table
        role = Role.BUFFER if is_table else Role.PARAM
        found = self.flat.value(kind, None, role, name or self._name(item.stored, origin))
        self.values[item.stored] = found
        return found

    def _widened(self, item: Item, origin: NodeOrigin) -> int:
        assert item.packed is not None
        low = self.resting(item.packed, origin)
        if item.packed.turned:
            kind = TensorType(item.type.dims, item.packed.dtype)
            storage = self.flat.values[low[0]].storage
            turned = self.emit("permute", low[:1], [(kind, storage)], origin, PermuteAttrs((1, 0)))
            return self.emit("elementwise", turned, [(item.type, None)], origin, ElementwiseAttrs(("mul",)))[0]
        return self.emit("elementwise", low[:1], [(item.type, None)], origin, ElementwiseAttrs(("mul",)))[0]

    def resting(self, packed: Packed, origin: NodeOrigin) -> tuple[int, ...]:
        """Return the value of a weight in low precision and those of its scales, which have as many dims."""
        rank = len(packed.dims)
        found = [self.weight(packed.weight, origin, packed.dims, packed.dtype)]
        name = self.flat.values[found[0]].name
        for s, what in zip(packed.scales, ("scales", "zeros"), strict=False):
            dims = (*(1,) * (rank - s.type.rank), *s.dims)
            found.append(self.weight(s, origin, dims, s.type.dtype, f"{name}.{what}"))
        return tuple(found)

    def told(self, name: str, item: Item) -> Item:
        """Return an item with the numbers that the user says it holds, or as it is."""
        size = item.type.numel
        if item.content is not None or item.parts is not None or item.type.dtype.is_floating or size.symbols:
            return item
        if item.type.rank > 1:
            return item
        if size == 0:
            return replace(item, content=np.empty(0, dtype=object))
        found = self.sizes.entries(name, int(size.evaluate({})))
        if found is None:
            return item
        numbers: Content = np.array(found, dtype=object).reshape(item.type.rank * (-1,))
        return replace(item, content=numbers)

    def bound(self, name: str, axis: int) -> Dim:
        """Return a dim of a result that depends on data, as the user says or the file declares."""
        declared = self.declared.get(name, ())
        return self.sizes.bound(name, axis, declared[axis] if axis < len(declared) else None)

    def sources(self, value: int | None) -> list[Value]:
        """Return the short inputs of whole numbers that a value is computed from."""
        found: list[Value] = []
        seen, waiting = set[int](), [] if value is None else [value]
        while waiting and len(seen) < _MAX_SEARCH:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            node, held = self.producer.get(at), self.flat.values[at]
            if node is not None:
                waiting += node.inputs
            elif held.role is Role.INPUT and held.type.rank < 2 and not held.type.dtype.is_floating:
                found.append(held)
        return found

    def _name(self, stored: str, origin: NodeOrigin) -> str:
        """A parameter is called as in the file; one without a telling name after the module that uses it."""
        *path, last = stored.replace("/", ".").strip(".").split(".")
        name = ".".join([*(p for p in path if not _OPERATOR.fullmatch(p)), "weight" if _WEIGHT.match(last) else last])
        if _GENERIC.match(stored) and origin.scope:
            name = f"{origin.scope}.weight"
        unique, number = name, 1
        while unique in self.names:
            number += 1
            unique = f"{name}_{number}"
        self.names.add(unique)
        return unique

    def as_cache(self, value: int, what: str) -> None:
        """Say that an input is what earlier steps cached."""
        old = self.flat.values[value]
        if old.role is not Role.INPUT:
            return
        digits = re.findall(r"[0-9]+", old.name)
        layer = digits[-1] if digits else str(self.num_caches)
        self.num_caches += what == "keys"
        self.flat.values[value] = replace(old, role=Role.CACHE, name=f"cache.{layer}.{what}")

    def say(self, item: Item, name: str, numbers: tuple[float, ...]) -> None:
        """Keep what the file says of a call and the op does not, for those who look for patterns."""
        if item.value is not None:
            self.flat.said[item.value] = Said(name, numbers)

    def as_buffer(self, value: int) -> None:
        """Say that a stored tensor is no parameter, such as the table of a rotation."""
        old = self.flat.values[value]
        if old.role is Role.PARAM:
            self.flat.values[value] = replace(old, role=Role.BUFFER)

    def is_cache_input(self, value: Value) -> bool:
        """Whether a value is an input that is called as caches are."""
        return value.role is Role.INPUT and is_cache(value.name)

    def note(self, text: str) -> None:
        """Remember something that a reader of the estimate should know."""
        if text not in self.notes:
            self.notes.append(text)

    def is_less(self, a: Dim, b: Dim) -> bool:
        """Whether a < b: for all sizes of at least one, else for likely ones, with a note."""
        gap = as_expr(b) - a
        if gap == 0:
            return False
        signs = {c > 0 for m, c in gap.terms}
        found = float(gap.evaluate(LIKELY)) > 0
        if len(signs) > 1 and not _holds(gap, found):
            self.note(f"sizes: {a} {'<' if found else '>='} {b} is taken for granted")
        return found


def _holds(gap: Expr, positive: bool) -> bool:
    """Whether a difference keeps its sign for all sizes of at least one: its constant is outweighed by the rest."""
    rest = [c for m, c in gap.terms if m]
    constant = sum(c for m, c in gap.terms if not m)
    if not all((c > 0) is positive for c in rest):
        return False
    total = sum(rest) + constant
    return total > 0 if positive else total <= 0


def _is_negative(d: Dim) -> bool:
    if isinstance(d, int):
        return d < 0
    return not d.is_integral or all(c < 0 for _, c in d.terms)
