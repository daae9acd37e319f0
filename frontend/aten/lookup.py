"""ATen lookups to the IR: gathers, scatters and copies that repeat or reorder, with a letter for each dim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import fx

from ...ir.graph import NO_ATTRS, Role
from ...ir.meaning import In, Meaning, OperatorCall, Out
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.ops.tensors.lookup import Labels, LookupAttrs, copied_dims, lookup_of
from ...ir.ops.tensors.pointwise import FillAttrs
from ...ir.sizes.expr import Dim, as_dim, as_expr
from ...ir.types import DType, TensorType
from .fx_import import Handler, Importer, argument, dim_of, is_inplace, op_name, write_back

_COPY = Meaning((OperatorCall("aten.clone", (("self", In(0)),)),), (Out(0),))
_ADDING = ("aten.scatter_add", "aten.index_add")


def _index(im: Importer, node: fx.Node) -> None:
    """`index(x, [None, i, j])`: x is looked up in the dims that have an index."""
    source, given = node.args[0], node.args[1]
    assert isinstance(source, fx.Node)
    assert isinstance(given, list | tuple)
    if (at := _one_constant(im, given, im.type_of(source.meta["val"]).dims)) is not None:
        # The type of what is indexed, as a view of what it is taken from.
        cut_out = im.type_of(node.meta["val"]), im.flat.values[im.ids[source]].storage
        (view,) = im.flat.emit("slice", im.inputs(node)[:1], [cut_out], im.origin(node), at)
        im.keys[node] = view  # what its gradient belongs to
        outs = im.flat.emit("copy", (view,), [(im.type_of(node.meta["val"]), None)], im.origin(node), NO_ATTRS, _COPY)
        im.bind(node, outs, [node.meta["val"]])
        return
    labels = _advanced(im, source, given)
    im.emit(node, "gather", im.inputs(node), LookupAttrs() if labels is None else lookup_of(labels))


def _diagonal(im: Importer, node: fx.Node) -> None:
    """`diagonal(x, offset, dim1, dim2)`: entries of two dims in a new last one."""
    (source,) = im.inputs(node)
    rank = im.flat.values[source].type.rank
    labels = diagonal_labels(rank, argument(node, "dim1"), argument(node, "dim2"))
    im.emit(node, "gather", (source,), lookup_of(labels))


def diagonal_labels(rank: int, *between: object) -> tuple[Labels, Labels]:
    """Return the labels of a tensor and of its diagonal between two dims, which is a new last dim."""
    dims = {int(str(d)) % rank for d in between}
    return tuple(None if d in dims else d for d in range(rank)), (*(d for d in range(rank) if d not in dims), None)


def _one_constant(im: Importer, given: Sequence[object], dims: Sequence[Dim]) -> SliceAttrs | None:
    """The slice that one constant in a list names, `x[:, [-2]]`; None for other indices."""
    named = [(dim, index) for dim, index in enumerate(given) if isinstance(index, fx.Node)]
    if len(named) != 1 or named[0][1] not in im.ids:
        return None
    ((dim, index),) = named
    value = im.flat.values[im.ids[index]]
    places = im.flat.constants.get(value.name) if value.role is Role.BUFFER else None
    if not isinstance(places, tuple) or len(places) != 1 or value.type.rank != 1 or value.type.dtype is DType.BOOL:
        return None
    (start,) = places
    if not isinstance(start, int):
        return None
    return SliceAttrs(dim, start if start >= 0 else as_dim(as_expr(dims[dim]) + start))


def _advanced(im: Importer, source: fx.Node, given: Sequence[object]) -> list[Labels] | None:
    """Labels of x, of each index and of the result; None for a mask, whose dims are not those of an index.

    Dims of the indices stand where the first index does, or in front when other dims lie between indices.
    """
    rank = im.type_of(source.meta["val"]).rank
    places = [i for i, index in enumerate(given) if isinstance(index, fx.Node)]
    kinds = [im.type_of(index.meta["val"]) for index in given if isinstance(index, fx.Node)]
    if any(kind.dtype is DType.BOOL for kind in kinds) or not kinds:
        return None
    depth = max(kind.rank for kind in kinds)
    indices = [
        tuple(None if d == 1 else ("i", depth - kind.rank + k) for k, d in enumerate(kind.dims)) for kind in kinds
    ]
    long = {label for one in indices for label in one if label is not None}
    made = [("i", k) if ("i", k) in long else None for k in range(depth)]
    first = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
    kept = [k for k in range(rank) if k not in places]
    front = sum(k < first for k in kept)
    x = tuple(None if k in places else k for k in range(rank))
    return [x, *indices, (*kept[:front], *made, *kept[front:])]


def _index_select(im: Importer, node: fx.Node) -> None:
    """`index_select(x, dim, ids)`: one dim of x becomes that of the ids."""
    x, ids = (im.type_of(t.meta["val"]) for t in im.tensors(node))
    dim = dim_of(node, x.rank)
    given = tuple("i" for _ in ids.dims)
    made = tuple("i" if k == dim else k for k in range(x.rank))
    im.emit(node, "gather", im.inputs(node), lookup_of([_without(x.rank, dim), given, made]))


def _gather(im: Importer, node: fx.Node) -> None:
    """`gather(x, dim, ids)`: of each row of the other dims the entries that its own ids name."""
    x, ids = (im.type_of(t.meta["val"]) for t in im.tensors(node))
    dim = dim_of(node, x.rank)
    at = _beside(x.dims, ids.dims, dim)
    im.emit(node, "gather", im.inputs(node), lookup_of([_without(x.rank, dim), at, at]))


def _beside(whole: Sequence[Dim], part: Sequence[Dim], dim: int) -> Labels:
    """Labels of ids (or what is put at them) beside the tensor: the same dims where they are as long, `dim` its own."""
    pairs = enumerate(zip(part, whole, strict=True)) if len(part) == len(whole) else ()
    return tuple("i" if k == dim else k if d == w else ("i", k) for k, (d, w) in pairs)


def _without(rank: int, dim: int) -> Labels:
    return tuple(None if k == dim else k for k in range(rank))


def _reordered(im: Importer, node: fx.Node) -> None:
    """`roll`, `flip`: the dims named (rolled without dims: all) lie in another order."""
    (source,) = im.inputs(node)
    dims = im.flat.values[source].type.dims
    _, *told = (*node.args, *node.kwargs.values())
    named, whole = told[-1], op_name(node) == "aten.roll" and len(told) < 2
    given = named if isinstance(named, list | tuple) else [named]
    changed = range(len(dims)) if whole else [int(str(d)) % len(dims) for d in given]
    im.emit(node, "gather", (source,), lookup_of(copied_dims(dims, dims, changed)))


def _repeated(im: Importer, node: fx.Node) -> None:
    """`repeat`, `tile`, `repeat_interleave`, `one_hot`: dims that grow, or are new, are dims of their own."""
    inputs = im.inputs(node)
    out = im.type_of(node.meta["val"]).dims
    source = im.flat.values[inputs[0]].type.dims
    if len(inputs) > 1:
        im.emit(node, "gather", inputs, LookupAttrs())
        return
    classes = (tuple(range(len(source))), (*range(len(source)), None))
    labels = classes if op_name(node) == "aten.one_hot" else copied_dims(source, out)
    im.emit(node, "gather", inputs, lookup_of(labels))


def _counted(im: Importer, node: fx.Node) -> None:
    """`histc`, `bincount`: how many entries are of each kind; counts of parts add up."""
    inputs = im.inputs(node)
    ranks = (*(im.flat.values[i].type.rank for i in inputs), im.type_of(node.meta["val"]).rank)
    im.emit(node, "gather", inputs, lookup_of([(None,) * rank for rank in ranks], adds=True))


def _scatter(im: Importer, node: fx.Node) -> None:
    """`scatter(base, dim, ids, source)`: into each row of the other dims, where its own ids say.

    `scatter_reduce` names what becomes of entries of one place; only sums of parts add up.
    """
    base, *rest = (im.type_of(t.meta["val"]).dims for t in im.tensors(node))
    dim = dim_of(node, len(base))
    labels = [_put(base, rest[0], part, dim) for part in rest]
    _put_in(im, node, [tuple(range(len(base))), *labels, tuple(range(len(base)))], "sum" in node.args[4:])


def _put(base: Sequence[Dim], ids: Sequence[Dim], part: Sequence[Dim], dim: int) -> Labels:
    """A source may be longer than its ids; then the dim is its own."""
    at = _beside(base, ids, dim)
    return tuple(label if d == i else None for label, d, i in zip(at, part, ids, strict=True)) if part else ()


def _index_add(im: Importer, node: fx.Node) -> None:
    """`index_add(base, dim, ids, source)`, `index_copy`, `index_fill`: whole rows along one dim."""
    base, ids, *source = (im.type_of(t.meta["val"]) for t in im.tensors(node))
    dim = dim_of(node, base.rank)
    rows = tuple("i" if k == dim else k for k in range(base.rank))
    whole, at = tuple(range(base.rank)), tuple("i" for _ in ids.dims)
    _put_in(im, node, [whole, at, *(rows if t.rank else () for t in source), whole])


def _index_put(im: Importer, node: fx.Node) -> None:
    """`index_put(base, [None, i, j], values, accumulate)`: values broadcast to what indexing the base would give."""
    base, given = node.args[0], node.args[1]
    assert isinstance(base, fx.Node)
    assert isinstance(given, list | tuple)
    at, out = _one_constant(im, given, im.type_of(base.meta["val"]).dims), im.type_of(node.meta["val"])
    if at is not None and not is_inplace(node) and _is_zeros(im, base) and _fills(im, im.inputs(node)[-1], out, at):
        outs = im.flat.emit("pad", im.inputs(node)[-1:], [(out, None)], im.origin(node), at)
        im.bind(node, outs, [node.meta["val"]])
        return
    labels = _advanced(im, base, given)
    if labels is None:
        _put_in(im, node, None)
        return
    values = im.flat.values[im.inputs(node)[-1]].type.dims
    made = labels[-1][len(labels[-1]) - len(values) :]
    put = tuple(None if d == 1 else label for d, label in zip(values, made, strict=True))
    whole = tuple(range(len(labels[0])))
    _put_in(im, node, [whole, *labels[1:-1], put, whole], accumulates=len(node.args) > 3 and bool(node.args[3]))


def _is_zeros(im: Importer, base: fx.Node) -> bool:
    made = next((n for n in reversed(im.flat.nodes) if im.ids.get(base) in n.outputs), None)
    return made is not None and made.attrs == FillAttrs("zeros")


def _fills(im: Importer, values: int, out: TensorType, at: SliceAttrs) -> bool:
    """Whether values have all the other dims of what they are put into, as the gradient of an indexed tensor does."""
    dims = im.flat.values[values].type.dims
    return len(dims) == out.rank and all(
        a == b for d, (a, b) in enumerate(zip(dims, out.dims, strict=True)) if d != at.dim
    )


def _put_in(im: Importer, node: fx.Node, labels: Sequence[Labels] | None, accumulates: bool = False) -> None:
    adds = accumulates or op_name(node) in _ADDING
    outs = im.emit(
        node, "scatter", im.inputs(node), LookupAttrs(adds=adds) if labels is None else lookup_of(labels, adds)
    )
    if is_inplace(node):
        write_back(im, node, outs[0])


HANDLERS: Mapping[str, Handler] = {
    "aten.diagonal": _diagonal,
    "aten.index": _index,
    "aten.index_select": _index_select,
    "aten.gather": _gather,
    **dict.fromkeys(("aten.roll", "aten.flip"), _reordered),
    **dict.fromkeys(("aten.repeat", "aten.tile", "aten.repeat_interleave", "aten.one_hot"), _repeated),
    **dict.fromkeys(("aten.histc", "aten.bincount"), _counted),
    **dict.fromkeys(("aten.scatter", "aten.scatter_add", "aten.scatter_reduce"), _scatter),
    **dict.fromkeys(("aten.index_add", "aten.index_copy", "aten.index_fill"), _index_add),
    **dict.fromkeys(("aten.index_put", "aten._unsafe_index_put"), _index_put),
}
