"""ATen views to the IR's four: reshape, permute, expand, slice."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, fx

from ...ir.errors import UnsupportedOpError
from ...ir.ops.tensors.layout import PermuteAttrs, SliceAttrs
from ...ir.ops.tensors.lookup import copied_dims, lookup_of
from ...ir.sizes.expr import Dim, as_dim, as_expr
from .fx_import import Handler, Importer, argument, dim_of


def _view(op: str) -> Handler:
    """Another look at all elements, or none where the dims stay."""

    def handler(im: Importer, node: fx.Node) -> None:
        (source,) = im.inputs(node)
        if im.flat.values[source].type.dims == im.type_of(node.meta["val"]).dims:
            im.alias(node, source)
        else:
            im.emit(node, op, (source,))

    return handler


def _identity(im: Importer, node: fx.Node) -> None:
    im.alias(node, im.inputs(node)[0])


def _permute(im: Importer, node: fx.Node) -> None:
    (source,) = im.inputs(node)
    rank = im.flat.values[source].type.rank
    dims = _permutation(node, im.rank(node))
    dims += tuple(range(len(dims), rank))
    if dims == tuple(range(rank)):
        im.alias(node, source)
        return
    im.emit(node, "permute", (source,), PermuteAttrs(dims))


def _permutation(node: fx.Node, rank: int) -> tuple[int, ...]:
    name = str(node.target)
    if "permute" in name:
        given = node.args[1]
        assert isinstance(given, list | tuple)
        return tuple(int(d) % rank for d in given)  # type: ignore[arg-type]
    a, b = (0, 1) if ".t." in name else (int(str(node.args[1])) % rank, int(str(node.args[2])) % rank)
    dims = list(range(rank))
    if rank > 1:
        dims[a], dims[b] = dims[b], dims[a]
    return tuple(dims)


def _slice(im: Importer, node: fx.Node) -> None:
    source = im.inputs(node)[0]
    kind = im.flat.values[source].type
    dim = dim_of(node, im.rank(node))
    given = argument(node, "start")
    start = _start(im, 0 if given is None else given, kind.dims[dim])
    step = int(str(argument(node, "step") or 1))
    if step != 1:
        _every(im, node, dim, step, start)
        return
    if kind.dims == im.type_of(node.meta["val"]).dims:
        im.alias(node, source)
        return
    im.emit(node, "slice", (source,), SliceAttrs(dim, start))


def _every(im: Importer, node: fx.Node, dim: int, step: int, start: Dim) -> None:
    """Each `step`-th entry: a column of rows of so many entries, or entries looked up where they make no whole rows."""
    source = im.inputs(node)[0]
    kind, out = im.flat.values[source].type, im.type_of(node.meta["val"])
    size, first = kind.dims[dim], start
    if not isinstance(size, int) or not isinstance(first, int) or out.dims[dim] * step != size:
        im.emit(node, "gather", (source,), lookup_of(copied_dims(kind.dims, out.dims, (dim,))))
        return
    rows = kind.with_dims((*kind.dims[:dim], size // step, step, *kind.dims[dim + 1 :]))
    storage = im.flat.values[source].storage
    (view,) = im.flat.emit("reshape", (source,), [(rows, storage)], im.origin(node))
    im.emit(node, "slice", (view,), SliceAttrs(dim + 1, first, drop=True))


def _start(im: Importer, given: object, size: Dim) -> Dim:
    start = im.dim(given)
    return as_dim(as_expr(size) + start) if isinstance(start, int) and start < 0 else start


def _select(im: Importer, node: fx.Node) -> None:
    source = im.inputs(node)[0]
    kind = im.flat.values[source].type
    dim = dim_of(node, im.rank(node))
    im.emit(node, "slice", (source,), SliceAttrs(dim, _start(im, argument(node, "index"), kind.dims[dim]), drop=True))


def _split(im: Importer, node: fx.Node) -> None:
    """Split, chunk and unbind: one slice a piece."""
    source = im.inputs(node)[0]
    drop = "unbind" in str(node.target)
    dim = dim_of(node, im.rank(node))
    start: Dim = 0
    ids: list[int] = []
    pieces = [t for t in node.meta["val"] if isinstance(t, Tensor)]
    for piece in pieces:
        out = im.type_of(piece)
        storage = im.flat.values[source].storage
        ids += im.flat.emit("slice", (source,), [(out, storage)], im.origin(node), SliceAttrs(dim, start, drop))
        start = as_dim(as_expr(start) + (1 if drop else out.dims[dim]))
    im.bind(node, ids, pieces)


def _pad(im: Importer, node: fx.Node) -> None:
    """The backward of slice and select: `slice_backward(grad, sizes, dim, start, end, step)`."""
    source = im.inputs(node)[0]
    out = im.type_of(node.meta["val"])
    if im.flat.values[source].type.dims == out.dims:
        im.alias(node, source)
        return
    drop = "select" in str(node.target)
    dim = dim_of(node, im.rank(node) + drop)
    im.emit(node, "pad", (source,), SliceAttrs(dim, _start(im, node.args[3], out.dims[dim]), drop))


def _as_strided(im: Importer, node: fx.Node) -> None:
    source = im.inputs(node)[0]
    same = im.flat.values[source].type.dims == im.type_of(node.meta["val"]).dims
    if not same or not isinstance(node.meta["val"], torch.Tensor):
        raise UnsupportedOpError(f"as_strided to another shape is not understood (module '{node.meta.get('scope')}')")
    im.alias(node, source)


HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(
        ("aten.view", "aten._unsafe_view", "aten.unsqueeze", "aten.squeeze", "aten.reshape", "aten.flatten",
         "aten.unflatten", "aten._reshape_alias"), _view("reshape"),
    ),
    **dict.fromkeys(
        ("aten.alias", "aten.contiguous", "aten.view_as", "aten.positive", "aten.view_as_complex", "aten.view_as_real",
         "aten._conj", "aten.resolve_conj", "aten.lift_fresh_copy"), _identity,
    ),
    **dict.fromkeys(("aten.permute", "aten.transpose", "aten.t"), _permute),
    **dict.fromkeys(("aten.expand", "aten.expand_as"), _view("expand")),
    **dict.fromkeys(("aten.slice", "aten.narrow"), _slice),
    "aten.select": _select,
    **dict.fromkeys(("aten.split", "aten.split_with_sizes", "aten.unsafe_split", "aten.unsafe_split_with_sizes",
                     "aten.chunk", "aten.unsafe_chunk", "aten.unbind"), _split),
    **dict.fromkeys(("aten.slice_backward", "aten.select_backward"), _pad),
    "aten.as_strided": _as_strided,
}  # fmt: skip
