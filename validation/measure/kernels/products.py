"""Matrix products in the layouts of a training step: forward (NT), gradient of the input (NN), of the weight (TN)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from ....frontend.record.dtypes import torch_dtype
from ....ir.types import DType
from ..device import Device
from .cold import cold
from .probe import Call, Probe

# (tokens, features out, features in) of linear layers. No size of the step that predictions are judged by is here.
FULL = (
    *(
        (tokens, out, into)
        for tokens in (64, 192, 384, 768)
        for out, into in ((384, 384), (768, 256), (768, 768), (768, 2176), (2176, 768), (1536, 1536), (4352, 1536))
    ),
    (320, 12288, 640),
    (640, 6144, 1280),
)
SKINNY = tuple((tokens, out, into) for tokens in (1, 8) for out, into in ((768, 768), (2176, 768), (4096, 4096)))
QUICK = ((64, 384, 384), (192, 768, 768), (384, 768, 768), (192, 2176, 768), (96, 768, 2176))
# What a GPU is kept busy with: the layers of models of 1 to 70 billion parameters.
LARGE = tuple(
    (tokens, out, into)
    for tokens in (1, 64, 512, 2048, 8192)
    for out, into in ((2048, 2048), (4096, 4096), (6144, 4096), (14336, 4096), (4096, 14336), (8192, 8192))
)


def _forward(x: Tensor, w: Tensor, dy: Tensor) -> Call:
    del dy
    t = w.t()
    return lambda: torch.mm(x, t)


def _of_input(x: Tensor, w: Tensor, dy: Tensor) -> Call:
    del x
    return lambda: torch.mm(dy, w)


def _of_weight(x: Tensor, w: Tensor, dy: Tensor) -> Call:
    del w
    t = dy.t()
    return lambda: torch.mm(t, x)


_LAYOUTS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Call]] = MappingProxyType(
    {"NT": _forward, "NN": _of_input, "TN": _of_weight}
)


def product_probes(device: Device, dtypes: tuple[DType, ...], quick: bool) -> Iterator[Probe]:
    """Yield products of each dtype in each layout; those of few tokens only forward, as decoding runs them."""
    sizes = device.sizes(quick, QUICK, FULL, LARGE)
    for dtype in dtypes:
        yield from (_probe(device, dtype, layout, *size) for size in sizes for layout in _LAYOUTS)
        yield from (_probe(device, dtype, "NT", *size) for size in (() if quick or device.is_cuda else SKINNY))


def _probe(device: Device, dtype: DType, layout: str, tokens: int, out: int, into: int) -> Probe:
    m, n, k = {"NT": (tokens, out, into), "NN": (tokens, into, out), "TN": (out, into, tokens)}[layout]
    cells: dict[str, str | int | float] = {
        "kernel": "torch.mm",
        "dtype": dtype.value,
        "out_dtype": dtype.value,
        "batch": 1,
        "m": m,
        "n": n,
        "k": k,
        "layout": layout,
    }

    def one() -> Call:
        x, w, dy = (device.random(dtype, *size) for size in ((tokens, into), (out, into), (tokens, out)))
        return _LAYOUTS[layout](x, w, dy)

    held = float((m * k + k * n + m * n) * torch_dtype(dtype).itemsize)
    name = f"{dtype.value}_{layout}_{m}_{n}_{k}"
    return Probe("gemm", name, cells, lambda: cold(one, held, device))
