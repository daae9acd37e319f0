"""Fourier transforms: one operator for the three kernels of ATen, which cannot run on tensors of open sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor, fx

from ...ir.errors import TraceError
from ...ir.graph import Phase
from ...ir.ops.tensors.images import WindowAttrs
from ...ir.ops.tensors.lookup import Labels, spec_of
from ..semantic.semantic import NAMESPACE, custom_op
from .fx_import import Handler, Importer

# FLOPs of a transform of N points over N log2 N: the radix-2 count by which FFTW states its rate (www.fftw.org/speed).
_COMPLEX, _REAL = 5.0, 2.5


@custom_op(f"{NAMESPACE}::fft")
def transform(x: Tensor, dims: Sequence[int], length: int, is_complex: bool) -> Tensor:
    """X transformed along some dims, `length` entries along the last of them; scaling is part of the last pass."""
    raise NotImplementedError("slipstick::fft describes a computation and runs on fake tensors only")


@transform.register_fake
def _(x: Tensor, dims: Sequence[int], length: int, is_complex: bool) -> Tensor:
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


HANDLERS: Mapping[str, Handler] = {f"{NAMESPACE}.fft": _fft}
DECOMPOSITIONS: Mapping[str, Callable[..., object]] = {
    "aten._fft_r2c.default": _to_complex, "aten._fft_c2r.default": _to_real, "aten._fft_c2c.default": _of_complex,
}  # fmt: skip

__all__ = ["DECOMPOSITIONS", "HANDLERS", "transform"]
