"""ATen data movement to the IR: embeddings, concat, copies and fills."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from ...ir.errors import DataSizeError
from ...ir.ops.tensors.layout import ConcatAttrs
from ...ir.ops.tensors.pointwise import FillAttrs
from ..record.writes import write_back
from .fx_import import Handler, Importer, is_inplace, op_name

_FILLS = {
    "zeros": "zeros", "zeros_like": "zeros", "new_zeros": "zeros", "zero": "zeros", "ones": "ones",
    "ones_like": "ones", "new_ones": "ones", "full": "constant", "full_like": "constant", "new_full": "constant",
    "scalar_tensor": "constant", "fill": "constant", "arange": "arange", "empty": "empty", "empty_like": "empty",
    "new_empty": "empty", "empty_strided": "empty", "new_empty_strided": "empty", "bernoulli": "random",
    "rand": "random", "randn": "random", "rand_like": "random", "randn_like": "random", "uniform": "random",
    "normal": "random", "exponential": "random", "randint": "random", "multinomial": "random", "eye": "eye",
    "_local_scalar_dense": "constant",
}  # fmt: skip


def _fill(im: Importer, node: fx.Node) -> None:
    if isinstance(node.meta["val"], bool | int | float):
        return  # read off a constant while recording: a plain number from there on
    outs = im.emit(node, "fill", (), FillAttrs(_FILLS[op_name(node).removeprefix("aten.")]))
    if is_inplace(node):
        write_back(im, node, outs[0])


def _embedding(im: Importer, node: fx.Node) -> None:
    table, ids = im.inputs(node)
    im.emit(node, "embedding", (ids, table))


def _embedding_bwd(im: Importer, node: fx.Node) -> None:
    im.emit(node, "embedding_bwd", im.inputs(node)[:2])


def _concat(im: Importer, node: fx.Node) -> None:
    rank = node.meta["val"].dim()
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    inputs = [i for i in im.inputs(node) if im.flat.values[i].type.dims != (0,)]
    if len(inputs) == 1:
        im.alias(node, inputs[0])
        return
    im.emit(node, "concat", inputs, ConcatAttrs(int(str(given)) % rank))


def _stack(im: Importer, node: fx.Node) -> None:
    """Stacking is a concat along a new dim, of size one in each piece."""
    out = im.type_of(node.meta["val"])
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    dim, inputs = int(str(given)) % node.meta["val"].dim(), im.inputs(node)
    piece = out.with_dims((*out.dims[:dim], 1, *out.dims[dim + 1 :]))
    views = [im.flat.emit("reshape", (i,), [(piece, im.flat.values[i].storage)], im.origin(node))[0] for i in inputs]
    if len(views) == 1:
        im.emit(node, "copy", views)
        return
    im.emit(node, "concat", views, ConcatAttrs(dim))


def _cast(im: Importer, node: fx.Node) -> None:
    source = im.inputs(node)[0]
    same = im.flat.values[source].type.dtype is im.type_of(node.meta["val"]).dtype
    im.emit(node, "copy" if same else "cast", (source,))


def _copy(im: Importer, node: fx.Node) -> None:
    im.emit(node, "copy", im.inputs(node)[:1])


def _copy_into(im: Importer, node: fx.Node) -> None:
    """`dst.copy_(src)`: a copy of src, broadcast to dst, that dst's readers see."""
    _, source = im.inputs(node)
    outs = im.emit(node, "copy", (source,))
    write_back(im, node, outs[0])


def _data_dependent(im: Importer, node: fx.Node) -> None:
    raise DataSizeError(
        f"'{op_name(node)}' in module '{node.meta.get('scope')}' makes a size that depends on data; declare the module "
        "as a leaf with a known meaning (experts, attention, scan)"
    )


HANDLERS: Mapping[str, Handler] = {
    **{f"aten.{name}": _fill for name in _FILLS},
    "aten.embedding": _embedding,
    "aten.embedding_dense_backward": _embedding_bwd,
    "aten.cat": _concat,
    "aten.stack": _stack,
    "aten._to_copy": _cast,
    "aten.clone": _copy,
    "aten.copy": _copy_into,
    **dict.fromkeys(("aten.nonzero", "aten.masked_select", "aten.unique", "aten._unique2"), _data_dependent),
}  # fmt: skip
