"""The backward pass under construction: gradients by value, nodes that know their forward node, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from ...ir.errors import UnsupportedOpError
from ...ir.graph import NO_ATTRS, Attrs, Node, Phase, Role, Value
from ...ir.ops import Trait, op_def
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.ops.tensors.normalize import ReduceAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ...ir.types import DType, TensorType
from ..aten.flat import Flat, Said

_UNSAID = Said("")


@dataclass
class Tape:
    """A graph whose backward nodes are written while its forward nodes are walked in reverse.

    `needs` are the values that depend on a parameter and can carry a gradient; `grads` the gradients so far.
    """

    flat: Flat
    needs: frozenset[int]
    grads: dict[int, int] = field(default_factory=dict)
    siblings: Mapping[int, tuple[Node, ...]] = field(default_factory=dict)
    _at: Node | None = None
    _next: int = 0

    @classmethod
    def over(cls, flat: Flat, siblings: Mapping[int, tuple[Node, ...]]) -> Tape:
        """Start behind a forward graph, which the tape may add to."""
        # Values of a floating type that a parameter leads to.
        found = {i for i, v in flat.values.items() if v.role is Role.PARAM and v.type.dtype.is_floating}
        for node in flat.nodes:
            if found.intersection(node.inputs):
                found.update(o for o in node.outputs if flat.values[o].type.dtype.is_floating)
        tape = cls(flat, frozenset(found), siblings=siblings)
        tape._next = max(flat.values, default=-1) + 1
        return tape

    def stand_at(self, node: Node) -> None:
        """Let what is written from here on belong to a forward node."""
        self._at = node

    def type(self, value: int) -> TensorType:
        """Return the type of a value."""
        return self.flat.values[value].type

    def said(self, node: Node) -> Said:
        """Return what the source says of a call, nothing where it is not known."""
        return self.flat.said.get(node.key, _UNSAID)

    def input(self, kind: TensorType, name: str) -> int:
        """Add an input of the graph."""
        return self._value(kind, None, Role.INPUT, name)

    def emit(
        self, op: str, inputs: Sequence[int], kinds: Iterable[TensorType], attrs: Attrs = NO_ATTRS
    ) -> tuple[int, ...]:
        """Write a backward node; return its outputs. Views share the storage of what they look at."""
        storage = self.flat.values[inputs[0]].storage if Trait.VIEW in op_def(op).traits else None
        outs = tuple(self._value(kind, storage) for kind in kinds)
        at = self._at
        scope, forward = ("", None) if at is None else (at.scope, at.key)
        self.flat.nodes.append(Node(op, tuple(inputs), outs, attrs, scope, Phase.BACKWARD, forward))
        return outs

    def _value(self, kind: TensorType, storage: int | None, role: Role = Role.RESULT, name: str = "") -> int:
        ident, self._next = self._next, self._next + 1
        self.flat.values[ident] = Value(ident, kind, ident if storage is None else storage, role, name)
        return ident

    def apply(self, fn: str, *inputs: int, kind: TensorType | None = None) -> int:
        """Write a pointwise function; its result has the type of the first input unless told."""
        return self.emit("elementwise", inputs, [kind or self.type(inputs[0])], ElementwiseAttrs((fn,)))[0]

    def reshape(self, value: int, dims: tuple[Dim, ...]) -> int:
        """Look at a value in other dims."""
        kind = self.type(value)
        return value if kind.dims == dims else self.emit("reshape", (value,), [kind.with_dims(dims)])[0]

    def permute(self, value: int, order: tuple[int, ...]) -> int:
        """Look at a value with its dims in another order."""
        kind = self.type(value)
        dims = tuple(kind.dims[d] for d in order)
        return self.emit("permute", (value,), [kind.with_dims(dims)], PermuteAttrs(order))[0]

    def cast(self, value: int, dtype: DType) -> int:
        """Give a value another element type."""
        kind = self.type(value)
        return value if kind.dtype is dtype else self.emit("cast", (value,), [replace(kind, dtype=dtype)])[0]

    def fitted(self, grad: int, wanted: TensorType) -> int:
        """Return a gradient summed over what was broadcast, in the type that is wanted."""
        dims = self.type(grad).dims
        if dims != wanted.dims:
            extra = len(dims) - wanted.rank
            padded = (1,) * extra + wanted.dims
            over = tuple(i for i, (d, w) in enumerate(zip(dims, padded, strict=True)) if d != w or i < extra)
            if over:
                kept = tuple(1 if i in over else d for i, d in enumerate(dims))
                attrs = ReduceAttrs("sum", over, keepdim=True)
                (grad,) = self.emit("reduce", (grad,), [self.type(grad).with_dims(kept)], attrs)
            grad = self.reshape(grad, wanted.dims)
        return self.cast(grad, wanted.dtype)

    def give(self, value: int, grad: int) -> None:
        """Add a gradient to that of a value, if the value can carry one."""
        if value not in self.needs:
            return
        grad = self.fitted(grad, self.type(value))
        held = self.grads.get(value)
        self.grads[value] = grad if held is None else self.apply("add", held, grad)

    def zeros(self, kind: TensorType) -> int:
        """Write a tensor of zeros."""
        return self.emit("fill", (), [kind], FillAttrs("zeros"))[0]


@dataclass(frozen=True, slots=True)
class Grads:
    """The gradients of a node's outputs, None where there is none."""

    node: Node
    given: tuple[int | None, ...]

    @property
    def first(self) -> int:
        """The gradient of the first output; UnsupportedOpError when another output alone has one."""
        found = self.given[0]
        if found is None or any(g is not None for g in self.given[1:]):
            raise UnsupportedOpError(
                f"no backward rule for '{self.node.op}' whose further outputs lead to the loss (in '{self.node.scope}')"
            )
        return found


Rule: TypeAlias = Callable[[Tape, Node, Grads], None]
