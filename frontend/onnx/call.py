"""One node of an ONNX graph as rules see it: typed attributes, inputs as items, and ways to write what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from ...ir.errors import NotUnderstoodError
from ...ir.graph import NO_ATTRS, Attrs
from ...ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ...ir.ops.tensors.lookup import copied_dims, lookup_of
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, as_dim, as_expr, product, total
from ...ir.types import DType, TensorType
from ..aten.flat import NodeOrigin
from .builder import Builder
from .shapes.items import Content, Item, checked_dims
from .shapes.symbols import flag

# Numbers of a tensor that an error asks for; more are a table, which nobody types.
MAX_TOLD = 16
# What those who look for patterns call a comparison, as torch does.
SAID = {"Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge", "Equal": "eq"}


@dataclass(frozen=True, slots=True)
class Call:
    """A node, its inputs (None where left out) and the graph it is written to."""

    node: onnx.NodeProto
    inputs: tuple[Item | None, ...]
    build: Builder
    origin: NodeOrigin
    opset: int
    attributes: Mapping[str, onnx.AttributeProto]

    @property
    def op(self) -> str:
        """The operator's name without its domain."""
        return self.node.op_type

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def item(self, index: int) -> Item:
        """Return an input; NotUnderstoodError where it is left out."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise NotUnderstoodError(f"input {index} is missing")
        return found

    def optional(self, index: int) -> Item | None:
        """Return an input, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the dims of an input."""
        return self.item(index).type.dims

    def dtype(self, index: int) -> DType:
        """Return the element type of an input."""
        return self.item(index).type.dtype

    def value(self, item: Item) -> int:
        """Return the place of an item in the flat graph."""
        return self.build.value(item, self.origin)

    def int_(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute; NotUnderstoodError where it is needed and missing."""
        found = self.attributes.get(name)
        if found is None and default is not None:
            return default
        if found is None or found.type != onnx.AttributeProto.INT:
            raise NotUnderstoodError(f"attribute '{name}' must be an integer")
        return int(found.i)

    def ints(self, name: str) -> tuple[int, ...] | None:
        """Return a list attribute, None where it is left out."""
        found = self.attributes.get(name)
        if found is None:
            return None
        if found.type != onnx.AttributeProto.INTS:
            raise NotUnderstoodError(f"attribute '{name}' must be a list of integers")
        return tuple(found.ints)

    def real(self, name: str, default: float) -> float:
        """Return a real attribute."""
        found = self.attributes.get(name)
        return default if found is None else float(found.f)

    def text(self, name: str, default: str) -> str:
        """Return a text attribute."""
        found = self.attributes.get(name)
        return default if found is None else found.s.decode("utf-8", "replace")

    def axis(self, rank: int, default: int | None = None, name: str = "axis") -> int:
        """Return an axis counted from the front."""
        return axis_of(self.int_(name, default), rank)

    def known(self, index: int) -> Content:
        """Return the numbers of an input; NotUnderstoodError where they depend on data."""
        item = self.item(index)
        if item.content is not None:
            return item.content
        given = self.build.sources(item.value)
        sources = [(v.name, v.type) for v in given[: MAX_TOLD + 1]] or [(self.node.input[index], item.type)]
        flags = [f"--dim {flag(f'{name}[{k}]')}=NUMBER" for name, kind in sources for k in range(_length(kind))]
        raise NotUnderstoodError(
            f"input {index} ('{self.node.input[index]}') must be known when the graph is read, and depends on data"
            + (f": {' '.join(flags)}" if 0 < len(flags) <= MAX_TOLD else "")
        )

    def bound(self, axis: int, output: int = 0) -> Dim:
        """Return a dim of a result that depends on data: as the user says, or as the file declares it."""
        return self.build.bound(self.node.output[output] if output < len(self.node.output) else "", axis)

    def emit(
        self,
        op: str,
        inputs: Sequence[Item],
        outputs: Sequence[TensorType],
        attrs: Attrs = NO_ATTRS,
        share: int | None = None,
    ) -> tuple[Item, ...]:
        """Write a node of the IR; `share` names the input whose memory the results look at."""
        ids = [self.value(i) for i in inputs]
        for kind in outputs:
            checked_dims(kind.dims, f"a result of '{op}'")
        storage = None if share is None else self.build.flat.values[ids[share]].storage
        made = self.build.emit(op, ids, [(t, storage) for t in outputs], self.origin, attrs)
        return tuple(Item(t, v) for t, v in zip(outputs, made, strict=True))

    def pointwise(self, fn: str, inputs: Sequence[Item], dims: tuple[Dim, ...], dtype: DType) -> Item:
        """Write an elementwise node; single numbers are part of the kernel."""
        kept = [i for i in inputs if not i.is_scalar] or list(inputs[:1])
        made = self.emit("elementwise", kept, [TensorType(dims, dtype)], ElementwiseAttrs((fn,)))[0]
        known = (i.content.reshape(-1)[0] for i in inputs if i.is_scalar and i.content is not None)
        numbers = tuple(float(n) for n in known if isinstance(n, int | float))
        self.build.say(made, SAID.get(self.op, self.op.lower()), numbers)
        return made

    def reshape(self, item: Item, dims: tuple[Dim, ...]) -> Item:
        """See the same elements under other dims."""
        if item.dims == dims:
            return item
        return self.emit("reshape", [item], [item.type.with_dims(dims)], share=0)[0]

    def permute(self, item: Item, order: Sequence[int]) -> Item:
        """See dims in another order."""
        if tuple(order) == tuple(range(item.type.rank)):
            return item
        dims = tuple(item.dims[d] for d in order)
        return self.emit("permute", [item], [item.type.with_dims(dims)], PermuteAttrs(tuple(order)), share=0)[0]

    def expand(self, item: Item, dims: tuple[Dim, ...]) -> Item:
        """Repeat dims of size one without a copy."""
        if item.dims == dims:
            return item
        return self.emit("expand", [item], [item.type.with_dims(dims)], share=0)[0]

    def slice(self, item: Item, dim: int, start: Dim, size: Dim, drop: bool = False) -> Item:
        """See a range of one dim, or with `drop` one entry without it."""
        if not drop and item.dims[dim] == size:
            return item
        middle: tuple[Dim, ...] = () if drop else (size,)
        dims = (*item.dims[:dim], *middle, *item.dims[dim + 1 :])
        return self.emit("slice", [item], [item.type.with_dims(dims)], SliceAttrs(dim, start, drop), share=0)[0]

    def concat(self, items: Sequence[Item], dim: int) -> Item:
        """Stand tensors side by side along a dim."""
        if len(items) == 1:
            return items[0]
        if any(i.type.rank != items[0].type.rank for i in items):
            raise NotUnderstoodError("tensors of different ranks side by side")
        length = as_dim(total(as_expr(i.dims[dim]) for i in items))
        kind = items[0].type.with_dims((*items[0].dims[:dim], length, *items[0].dims[dim + 1 :]))
        return self.emit("concat", items, [kind], ConcatAttrs(dim))[0]

    def stack(self, items: Sequence[Item], dim: int) -> Item:
        """Stand tensors side by side along a new dim."""
        at = axis_of(dim, items[0].type.rank + 1)
        return self.concat([self.reshape(i, (*i.dims[:at], 1, *i.dims[at:])) for i in items], at)

    def copied(self, op: str, item: Item, dims: tuple[Dim, ...], dtype: DType | None = None) -> Item:
        """Write a node that moves one tensor."""
        return self.emit(op, [item], [TensorType(dims, dtype or item.type.dtype)])[0]

    def regrown(
        self, item: Item, dims: tuple[Dim, ...], changed: Sequence[int] = (), dtype: DType | None = None
    ) -> Item:
        """Write a copy that repeats, drops or (in `changed` dims) reorders entries."""
        kind = TensorType(dims, dtype or item.type.dtype)
        return self.emit("gather", [item], [kind], lookup_of(copied_dims(item.dims, dims, changed)))[0]


Rule = Callable[[Call], Sequence[Item | None]]


def _length(kind: TensorType) -> int:
    """How many numbers a list holds that a user could tell; 0 for what is none."""
    size = kind.numel
    if kind.rank > 1 or kind.dtype.is_floating or size.symbols:
        return 0
    return min(int(size.evaluate({})), MAX_TOLD + 1)


def axis_of(axis: int, rank: int) -> int:
    """Count an axis from the front; NotUnderstoodError outside the tensor."""
    if not -rank <= axis < max(rank, 1):
        raise NotUnderstoodError(f"axis {axis} of a tensor of {rank} dims")
    return axis % rank if rank else 0


def numel(dims: Sequence[Dim]) -> Dim:
    """Return the number of elements as a dim."""
    return as_dim(product(dims))
