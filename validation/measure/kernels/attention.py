"""Attention as `scaled_dot_product_attention` runs it, causal, forward and backward apart."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from ....ir.records import dataclass
from ....ir.types import DType
from ..device import Device
from .probe import Call, Probe


@dataclass(frozen=True, slots=True)
class TimedCallSizes:
    """Sizes of a call: sequences, their length, heads, heads of keys and values, width of a head."""

    batch: int
    length: int
    heads: int
    kv_heads: int
    dim: int


# Lengths fill whole blocks of 128 queries, as those that models are trained on do.
FULL = tuple(
    TimedCallSizes(batch, length, heads, kv_heads, dim)
    for batch, length in ((1, 128), (2, 128), (1, 384), (2, 384), (1, 640), (1, 768), (1, 1280))
    for heads, kv_heads, dim in ((6, 6, 64), (12, 4, 64), (12, 12, 128), (10, 5, 96))
)
QUICK = (TimedCallSizes(1, 128, 4, 2, 64), TimedCallSizes(1, 384, 8, 4, 64), TimedCallSizes(2, 128, 8, 8, 32))
LARGE = tuple(
    TimedCallSizes(batch, length, heads, kv_heads, 128)
    for batch, length in ((1, 512), (1, 2048), (4, 2048), (1, 8192))
    for heads, kv_heads in ((16, 16), (32, 8), (64, 8))
)


def attention_probes(device: Device, dtype: DType, quick: bool) -> Iterator[Probe]:
    """Yield both directions over a grid of sizes."""
    for shape in device.sizes(quick, QUICK, FULL, LARGE):
        yield _probe(device, dtype, shape, "train_fwd")
        yield _probe(device, dtype, shape, "train_bwd")


def _leaves(device: Device, dtype: DType, s: TimedCallSizes) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values as projections leave them: heads beside one another."""
    q, k, v = (device.random(dtype, s.batch, s.length, h, s.dim) for h in (s.heads, s.kv_heads, s.kv_heads))
    return tuple(x.requires_grad_() for x in (q, k, v))  # type: ignore[return-value]


def _attend(leaves: tuple[Tensor, Tensor, Tensor], grouped: bool) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in leaves)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)


def _probe(device: Device, dtype: DType, s: TimedCallSizes, phase: str) -> Probe:
    grouped = s.heads != s.kv_heads
    cells: dict[str, str | int | float] = {
        "kernel": "scaled_dot_product_attention",
        "phase": phase,
        "dtype": dtype.value,
        "kv_dtype": dtype.value,
        "batch": s.batch,
        "q_len": s.length,
        "kv_len": s.length,
        "heads": s.heads,
        "kv_heads": s.kv_heads,
        "head_dim": s.dim,
        "causal": "True",
    }

    def forward() -> Call:
        leaves = _leaves(device, dtype, s)
        return lambda: _attend(leaves, grouped)

    def backward() -> Call:
        leaves = _leaves(device, dtype, s)
        out = _attend(leaves, grouped)
        dy = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True)

    name = f"{dtype.value}_{phase}_b{s.batch}_s{s.length}_h{s.heads}_kv{s.kv_heads}_d{s.dim}"
    return Probe("attention", name, cells, forward if phase == "train_fwd" else backward)
