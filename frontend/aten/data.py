"""ATen data movement to the IR: embeddings, concat, copies and fills; Fourier transforms as one operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor, fx

from ...ir.errors import DataSizeError, TraceError
from ...ir.graph import Phase
from ...ir.ops.tensors.images import WindowAttrs
from ...ir.ops.tensors.layout import ConcatAttrs
from ...ir.ops.tensors.lookup import Labels, spec_of
from ...ir.ops.tensors.pointwise import FillAttrs
from ..semantic.semantic import NAMESPACE, custom_op
from .fx_import import Handler, Importer, dim_of, is_inplace, op_name, plain, write_back

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
    if not isinstance(node.meta["val"], Tensor):
        return  # read off a tensor (`.item()`): a number of the host from there on, whether it is known or not
    outs = im.emit(node, "fill", (), FillAttrs(_FILLS[op_name(node).removeprefix("aten.")]))
    if is_inplace(node):
        write_back(im, node, outs[0])


def _embedding(im: Importer, node: fx.Node) -> None:
    table, ids = im.inputs(node)
    im.emit(node, "embedding", (ids, table))


def _concat(im: Importer, node: fx.Node) -> None:
    inputs = [i for i in im.inputs(node) if im.flat.values[i].type.dims != (0,)]
    if len(inputs) == 1:
        im.alias(node, inputs[0])
        return
    im.emit(node, "concat", inputs, ConcatAttrs(dim_of(node, node.meta["val"].dim())))


def _stack(im: Importer, node: fx.Node) -> None:
    """Stacking is a concat along a new dim, of size one in each piece."""
    out = im.type_of(node.meta["val"])
    dim, inputs = dim_of(node, node.meta["val"].dim()), im.inputs(node)
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


# FLOPs of a transform of N points over N log2 N: the radix-2 count by which FFTW states its rate (www.fftw.org/speed).
_COMPLEX, _REAL = 5.0, 2.5


@custom_op(f"{NAMESPACE}::fft")
def transform(x: Tensor, dims: Sequence[int], length: int, is_complex: bool) -> Tensor:
    """X transformed along some dims, `length` entries along the last of them; scaling is part of the last pass."""
    sizes = list(x.shape)
    sizes[dims[-1]] = length
    kind = x.dtype.to_complex() if is_complex else x.dtype.to_real()
    return torch.empty(sizes, dtype=kind, device=x.device)


def _to_complex(x: Tensor, dims: Sequence[int], scaling: int, halved: bool) -> Tensor:
    """`_fft_r2c`: of real entries, whose transform is known from half of it and one."""
    del scaling
    length = x.shape[dims[-1]]
    return transform(x, dims, length // 2 + 1 if halved else length, True)


def _to_real(x: Tensor, dims: Sequence[int], scaling: int, length: int) -> Tensor:
    """`_fft_c2r`, the way back."""
    del scaling
    return transform(x, dims, length, False)


def _of_complex(x: Tensor, dims: Sequence[int], scaling: int, forward: bool) -> Tensor:
    """`_fft_c2c`; without dims it is a copy."""
    del scaling, forward
    return transform(x, dims, x.shape[dims[-1]], True) if dims else x.clone()


def _fft(im: Importer, node: fx.Node) -> None:
    """A window over whole dims: 5 N log2 N FLOPs for N points, half as many where one side is real."""
    source, over, made = node.args[0], node.args[1], node.meta["val"]
    assert isinstance(source, fx.Node)
    assert isinstance(over, list | tuple)
    given = source.meta["val"]
    dims = {int(str(d)) % made.dim() for d in over}
    labels: Labels = tuple(None if d in dims else d for d in range(made.dim()))
    spec = spec_of([(*labels, *(None,) * given.is_complex())], [(*labels, *(None,) * made.is_complex())])
    forward = im.origin(node).phase is Phase.FORWARD
    points = _points(im, node, made if given.is_complex() else given, dims)
    counted = made if forward else given
    entries = _points(im, node, counted, dims) * (2 if counted.is_complex() else 1)
    flops = (_COMPLEX if given.is_complex() and made.is_complex() else _REAL) * points * math.log2(points) / entries
    im.emit(node, "window" if forward else "window_bwd", im.inputs(node), WindowAttrs("fft", spec, flops))


def _points(im: Importer, node: fx.Node, tensor: Tensor, dims: Collection[int]) -> int:
    sizes = [d for i, d in enumerate(im.type_of(tensor).dims) if i in dims]
    numbers = [d for d in sizes if isinstance(d, int)]
    if len(numbers) < len(sizes):
        open_ = ", ".join(str(d) for d in sizes if not isinstance(d, int))
        raise TraceError(
            f"a Fourier transform over an open size ({open_}) in module '{im.origin(node).scope}': 5 N log2 N is no "
            "polynomial of it; give the size as a number: --fixed seq=2048, in Python fixed={'seq': 2048}"
        )
    return math.prod(numbers)


DECOMPOSITIONS: Mapping[str, Callable[..., object]] = {
    "aten._fft_r2c.default": _to_complex,
    "aten._fft_c2r.default": _to_real,
    "aten._fft_c2c.default": _of_complex,
}


HANDLERS: Mapping[str, Handler] = {
    **{f"aten.{name}": _fill for name in _FILLS},
    f"{NAMESPACE}.fft": _fft,
    "aten.embedding": _embedding,
    "aten.embedding_dense_backward": plain("embedding_bwd", most=2),
    "aten.cat": _concat,
    "aten.stack": _stack,
    "aten._to_copy": _cast,
    "aten.clone": plain("copy", most=1),
    "aten.copy": _copy_into,
    **dict.fromkeys(("aten.nonzero", "aten.masked_select", "aten.unique", "aten._unique2"), _data_dependent),
}
