"""Index maps of products, pointwise ops, norms, reductions and the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.ops import OpCall, Trait, has
from ....ir.ops.fused.experts import GroupedAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.ops.tensors.normalize import ALONG_DIM, DimAttrs, ReduceAttrs
from ....ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from ....ir.placement import REPLICATE
from ....ir.types import DType
from ..entries import IndexMap, Labels, Law, PlacementEntry

_SUMS = frozenset(("add", "sub"))
_ALIKE_EVERYWHERE = ("zeros", "ones", "constant", "random", "empty")


def matmul(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Einsum letters; one that the result lacks is summed over. Linear in each operand, affine in the bias."""
    del axis
    attrs = call.attrs_as(MatmulAttrs)
    left, right, out = attrs.letters
    operands: list[Labels] = [list(left), list(right)]
    first_scale = len(call.inputs) - attrs.scales
    bias = list(range(2, first_scale))
    operands += [_aligned(call, i, list(out)) for i in bias]
    operands += [_aligned(call, i, list(right)) for i in range(first_scale, len(call.inputs))]
    sums = {c: (0,) for c in {*left, *right} if c not in out}
    linear: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0, *bias), ()), ((1, *bias), ())]
    yield from IndexMap(operands, [list(out)], sums, added=bias, linear=linear).entries()


def grouped_matmul(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """[rows, k] x [groups, k, n]: rows stay, k is summed; [k, rows] x [rows, n] -> [groups, k, n] sums over rows."""
    del axis
    rest: list[Labels] = [[None] * t.rank for t in call.inputs[2:]]
    if call.attrs_as(GroupedAttrs).weight_grad:
        labels: list[Labels] = [["k", "r"], ["r", "n"], *rest]
        yield from IndexMap(labels, [[None, "k", "n"]], {"r": (0,)}, linear=[((0,), ()), ((1,), ())]).entries()
    else:
        labels = [["r", "k"], [None, "k", "n"], *rest]
        yield from IndexMap(labels, [["r", "n"]], {"k": (0,)}, linear=[((0,), ()), ((1,), ())]).entries()


def _aligned(call: OpCall, index: int, labels: Labels) -> Labels:
    """Labels of an operand that broadcasts to a tensor: counted from the right, none where it has one entry."""
    dims = call.inputs[index].dims
    own = list(labels)[len(labels) - len(dims) :]
    return [None if d == 1 else c for c, d in zip(own, dims, strict=True)]


def elementwise(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Dims by broadcasting. Sums of tensors are linear in all together, products in each, quotients in the first.

    A backward function is linear in the gradient, its first operand; a choice in what is chosen from. One tensor alone
    may have a number added, which is not linear; `mul` and `div` of one tensor scale it.
    """
    del axis
    out = max(call.outputs, key=lambda t: t.rank)
    labels = [str(i) for i in range(out.rank)]
    outputs = [labels[out.rank - t.rank :] for t in call.outputs]
    fns, count = frozenset(call.attrs_as(ElementwiseAttrs).fns), len(call.inputs)
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    if fns == {"neg"} or (fns <= _SUMS | {"neg"} and count > 1):
        groups = [(tuple(range(count)), ())]
    elif len(fns) == 1 and next(iter(fns)).endswith("_bwd"):
        groups = [((0,), ())]
    elif fns == {"where"}:
        groups = [(tuple(i for i, t in enumerate(call.inputs) if t.dtype is not DType.BOOL), ())]
    elif fns in ({"mul"}, {"div"}) and count < 3:
        groups = [((0,), ()), ((1,), ())] if fns == {"mul"} and count > 1 else [((0,), ())]
    inputs = [_aligned(call, i, labels) for i in range(count)]
    same = {c: [k for k, o in enumerate(outputs) if c not in o] for c in labels}
    yield from IndexMap(inputs, outputs, same=same, linear=groups).entries()


def unary(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Entry by entry, linear: a cast, a copy, a name, a running sum of gradients, a state that stays."""
    del axis
    for given, made in zip(call.inputs, call.outputs, strict=False):
        if given.dims != made.dims:
            yield PlacementEntry((REPLICATE,) * len(call.inputs), (REPLICATE,) * len(call.outputs))
            return
    labels = [str(i) for i in range(call.inputs[0].rank)]
    yield from IndexMap([labels], [labels] * len(call.outputs), linear=[((0,), ())]).entries()


def quantised(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Entry by entry, with a scale for those beside it; rounding is not linear."""
    del axis
    labels = [str(i) for i in range(call.inputs[0].rank)]
    yield from IndexMap([labels], [labels] * len(call.outputs)).entries()


def fill(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """What is the same everywhere may be made in parts; counted and diagonal numbers only whole."""
    del axis
    inputs = [[None] * t.rank for t in call.inputs]
    whole = call.attrs_as(FillAttrs).kind not in _ALIKE_EVERYWHERE
    outputs = [[None if whole else str(i) for i in range(t.rank)] for t in call.outputs]
    yield from IndexMap(inputs, outputs).entries()


def rope(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Rows rotate by rows of the tables, along the last dim; linear in what is rotated."""
    del axis
    labels: list[str | None] = [*(str(i) for i in range(call.inputs[0].rank - 1)), None]
    tables = [_aligned(call, i, labels) for i in (1, 2)]
    yield from IndexMap([labels, *tables], [labels], linear=[((0,), ())]).entries()


def norm(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Row by row, of all dims but the last."""
    del axis
    x = call.inputs[0]
    rows: list[str | None] = [*(str(i) for i in range(x.rank - 1)), None]
    weights: list[Labels] = [[None] * t.rank for t in call.inputs[1:]]
    yield from IndexMap([rows, *weights], [rows[: t.rank] for t in call.outputs]).entries()


def norm_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Row by row; gradients of weight and bias are sums over all rows. Linear in dy."""
    del axis
    rank = call.inputs[0].rank
    rows: list[str | None] = [*(str(i) for i in range(rank - 1)), None]
    inputs = [rows if t.rank == rank else [None] * t.rank for t in call.inputs]
    outputs: list[Labels] = [rows if k == 0 else [None] * t.rank for k, t in enumerate(call.outputs)]
    sums = {c: range(1, len(outputs)) for c in rows if c is not None}
    yield from IndexMap(inputs, outputs, sums, linear=[((0,), ())]).entries()


def along_dim(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """All dims stay but the one that is run along; a running sum and a gradient are linear in the first operand."""
    del axis
    dim = call.attrs_as(DimAttrs).dim
    tensors = (*call.inputs, *call.outputs)
    labels = [[None if i == dim else str(i) for i in range(t.rank)] for t in tensors]
    given, made = labels[: len(call.inputs)], labels[len(call.inputs) :]
    linear = [((0,), ())] if has(call, Trait.LINEAR, Trait.BACKWARD) else []
    yield from IndexMap(given, made, linear=linear).entries()


def reduce(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Dims stay or go; over one that goes a sum is partial, and so is a mean, which divides by all entries."""
    del axis
    attrs = call.attrs_as(ReduceAttrs)
    given = [str(i) for i in range(call.inputs[0].rank)]
    kept: list[str | None] = [
        None if i in attrs.dims else c for i, c in enumerate(given) if attrs.keepdim or i not in attrs.dims
    ]
    linear = attrs.fn in ("sum", "mean")
    outs = range(len(call.outputs))
    sums = {given[i]: outs for i in attrs.dims} if linear else {}
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0,), ())] if linear else []
    yield from IndexMap([given], [kept] * len(call.outputs), sums, linear=groups).entries()


def cross_entropy(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Rows: the mean over all of them is a sum of parts. Vocabulary: statistics are; the loss is made of their sum."""
    del axis
    rank = call.inputs[0].rank
    rows = [str(i) for i in range(rank - 1)]
    sums = {**dict.fromkeys(rows, (0,)), "v": (1,)}
    outputs: list[Labels] = [[], [*rows, None]]
    yield from IndexMap([[*rows, "v"], rows], outputs, sums, same={"v": (0,)}).entries()


def cross_entropy_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Entry by entry, from statistics of whole rows; linear in the gradient of the loss."""
    del axis
    rows: list[str | None] = [str(i) for i in range(call.inputs[1].rank - 1)]
    logits: Labels = [*rows, "v"]
    yield from IndexMap([[], logits, rows, [*rows, None]], [logits], linear=[((0,), ())]).entries()


LAWS: Mapping[str, Law] = {
    "matmul": matmul, "grouped_matmul": grouped_matmul, "elementwise": elementwise, "cast": unary, "copy": unary,
    "identity": unary, "accumulate": unary, "keep_state": unary, "quantise": quantised, "fill": fill, "rope": rope,
    "rope_bwd": rope, "norm": norm, "norm_bwd": norm_bwd, "reduce": reduce, "cross_entropy": cross_entropy,
    "cross_entropy_bwd": cross_entropy_bwd, **dict.fromkeys(ALONG_DIM, along_dim),
}  # fmt: skip
