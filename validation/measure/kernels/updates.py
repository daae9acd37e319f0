"""What comes behind the backward: gradients added to running sums, and AdamW's step with the sums set to zero again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ....frontend.record.dtypes import torch_dtype
from ....ir.types import DType
from ..device import Device
from .cold import cold
from .probe import Call, Probe

# (hidden, ffn) of the layer whose weights are updated at once.
FULL = ((192, 512), (384, 1024), (640, 1792), (1280, 3456))
# Embeddings and heads: one large weight.
TABLES = ((4096, 384), (12288, 640))
TABLES_LARGE = ((32000, 4096),)
QUICK = ((32, 80), (128, 320), (384, 1024))
LARGE = ((2048, 8192), (4096, 14336))
SUMS_FULL = tuple((rows, cols) for rows in (256, 768, 2176, 4352) for cols in (384, 768, 1536))
SUMS_QUICK = ((128, 256), (768, 768))
SUMS_LARGE = tuple((rows, cols) for rows in (2048, 8192, 32000) for cols in (2048, 4096))


def update_probes(device: Device, dtype: DType, quick: bool) -> Iterator[Probe]:
    """Yield steps over the weights of a layer or over a table, and sums of one gradient."""
    yield from (_step(device, dtype, layer_shapes(*size)) for size in device.sizes(quick, QUICK, FULL, LARGE))
    yield from (_step(device, dtype, (table,)) for table in device.sizes(quick, (), TABLES, TABLES_LARGE))
    yield from (_sum(device, dtype, *size) for size in device.sizes(quick, SUMS_QUICK, SUMS_FULL, SUMS_LARGE))


def layer_shapes(hidden: int, ffn: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of the weights of a Llama layer with half as many heads for keys and values.

    >>> layer_shapes(4, 6)[:3]
    ((4, 4), (2, 4), (2, 4))
    """
    half = hidden // 2
    attention = ((hidden, hidden), (half, hidden), (half, hidden), (hidden, hidden))
    return (*attention, (ffn, hidden), (ffn, hidden), (hidden, ffn), (hidden,), (hidden,))


def _step(device: Device, dtype: DType, shapes: tuple[tuple[int, ...], ...]) -> Probe:
    numel = sum(torch.Size(s).numel() for s in shapes)
    # Weight, both moments read and written; gradient read; low precision keeps no master weight here.
    moved = numel * (7 * torch_dtype(dtype).itemsize)

    def prepare() -> Call:
        weights = [device.random(dtype, *s).requires_grad_() for s in shapes]
        sums = [torch.zeros_like(w) for w in weights]
        for w in weights:
            w.grad = torch.randn_like(w)
        optimizer = torch.optim.AdamW(weights)
        return lambda: _update(optimizer, sums)

    return _row(device, dtype, "optimizer", len(shapes), numel // len(shapes), numel, moved, prepare)


def _update(optimizer: torch.optim.AdamW, sums: list[Tensor]) -> None:
    """Step, and set sums to zero: others than the gradients, which would leave moments without normal numbers."""
    optimizer.step()
    for total in sums:
        total.zero_()


def _sum(device: Device, dtype: DType, rows: int, cols: int) -> Probe:
    def one() -> Call:
        total, grad = device.random(dtype, rows, cols), device.random(dtype, rows, cols)
        return lambda: total.add_(grad)

    def prepare() -> Call:
        return cold(one, 2.0 * rows * cols * torch_dtype(dtype).itemsize, device)

    numel = rows * cols
    return _row(device, dtype, "accumulate", rows, cols, numel, 3 * numel * torch_dtype(dtype).itemsize, prepare)


def _row(
    device: Device, dtype: DType, op: str, rows: int, cols: int, numel: int, moved: int, prepare: Callable[[], Call]
) -> Probe:
    del device
    cells: dict[str, str | int | float] = {
        "op": op,
        "dtype": dtype.value,
        "rows": rows,
        "cols": cols,
        "n_elements": numel,
        "bytes_moved_min": moved,
    }
    return Probe("elementwise", f"{dtype.value}_{op}_{rows}_{cols}", cells, prepare)
