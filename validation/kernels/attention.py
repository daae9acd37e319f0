"""Measured attention kernels: what a row ran, and how long it is predicted to take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import MappingProxyType

import numpy as np

from ...backends.kernels.attention.decode import DecodeConstants, decode_times
from ...backends.kernels.attention.flash import FlashConstants, flash_times
from ...backends.kernels.attention.sizes import AttentionSizes
from ...backends.kernels.attention.unfused import UnfusedConstants, unfused_times
from ...backends.kernels.limits import limits_of
from ...backends.kernels.terms import KernelTimes
from ...backends.machine.chip import Chip
from ...backends.machine.load import load_system
from ...backends.machine.system import System
from ...ir.errors import InternalError
from ...ir.records import dataclass
from ..rows.cases import Array, Case
from ..rows.rows import NotJudged, Row
from ..rows.words import system_of

# Latent attention as DeepSeek has it (arXiv 2412.19437): widths of queries and keys, and of values, expanded in prefill
# and as they are cached in decode.
EXPANDED, CACHED = (192.0, 128.0), (576.0, 512.0)
# TensorRT-LLM 1.3.0rc10 has no decode kernel for grouped heads on this machine: its times grow with heads of queries.
BY_HEAD_SYSTEM = "dgx-b200"
# Above this part of the data sheet's bandwidth caches much larger than L2 were not read from memory.
IMPOSSIBLE_BANDWIDTH = 0.95
IMPOSSIBLE = "its cache, more than twice the size of L2, was read faster than memory can: pages shared or resident"
_KERNELS = MappingProxyType(
    {
        "FlashAttention-2": ("flash-attention", "attention", "flash2"),
        "FlashAttention-3": ("flash-attention", "attention", "flash3"),
        "PyTorch unfused": ("pytorch-eager", "unfused_attention", "eager"),
        "Standard attention": ("pytorch-eager", "unfused_attention", "eager"),
    }
)
# What rows of a kind cannot tell: it is fixed by what the kernel is, or no two rows differ in what it acts on.
_PLOTTED = ("overhead_s", "row_clocks", "tail", "passes", "reload")
_BACKWARD = ("backward", "backward_exponent", "backward_start")
_SERVED = ("exponent", "start", "edge", "reload", *_BACKWARD)
_GIVEN = ("tensor", "group_limit", "min_rows", "warm", "page")
# On chips where memory is slower than the blocks, it hides what the blocks do; `by-head` rows tell that.
_HIDDEN = ("head_rate", "block_clocks", "ramp", "split", "split_keys", "row_clocks")
_FIXED: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("attention", "flash2"): (*_PLOTTED, "start"),
        ("attention", "flash3"): (*_PLOTTED, "exponent", *_BACKWARD),
        ("attention", "serving"): _SERVED,
        ("attention", "serving-fp8"): _SERVED,
        ("attention", "serving-mla"): (*_SERVED, "row_clocks", "tail", "passes"),
        ("decode", "grouped"): (*_GIVEN, *_HIDDEN),
        ("decode", "by-head"): (*_GIVEN, "group_rate"),
        ("decode", "latent"): (*_GIVEN, *_HIDDEN, "group_rate"),
        ("unfused_attention", "eager"): ("overhead_s", "memory", "tensor"),
    }
)


@dataclass(frozen=True, slots=True)
class TimedAttention:
    """What a row timed: one call, in training with the backward phase in one figure."""

    sizes: AttentionSizes
    with_backward: bool = False


@dataclass(frozen=True, slots=True)
class AttentionJudge:
    """Reads tables of attention kernels: prefill, decode, latent attention, training forward and backward."""

    @property
    def name(self) -> str:
        """What people call the table."""
        return "attention"

    @property
    def columns(self) -> tuple[str, ...]:
        """What tells it from other tables."""
        return (
            "id",
            "dataset",
            "accelerator",
            "kernel",
            "phase",
            "dtype",
            "batch",
            "q_len",
            "kv_len",
            "heads",
            "time_us",
        )

    def case(self, row: Row) -> Case[TimedAttention]:
        """Read a row; NotJudged where shape or time are missing, or the kernel is none of those modelled."""
        measured_us = row.measured("time_us")
        if measured_us is None or row.measured("q_len") is None:
            raise NotJudged("shape and time are not given, an upper bound of the speed alone")
        system = system_of(row)
        if row.text("phase").startswith("train"):
            return _training(row, system, measured_us * 1e-6)
        if row.text("phase") == "prefill":
            return _prefill(row, system, measured_us * 1e-6)
        if row.text("phase") == "decode":
            return _decode(row, system, measured_us * 1e-6)
        raise NotJudged(f"phase '{row.text('phase')}' is none of prefill, decode, train_fwd, train_fwdbwd")

    def seconds(self, cases: Sequence[Case[TimedAttention]], system: System, constants: object) -> Array:
        """Predict cases of one system, library, class and kind."""
        price = _pricer(constants, system.chip)
        one = price(_stacked([case.sizes.sizes for case in cases], backward=False)).time_s
        both = np.array([case.sizes.with_backward for case in cases])
        if not both.any():
            return one
        return np.asarray(one + both * price(_stacked([case.sizes.sizes for case in cases], backward=True)).time_s)

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Name what rows of a kind cannot tell."""
        return _FIXED[cls, kind]


def _training(row: Row, system: str, seconds: float) -> Case[TimedAttention]:
    if row.text("kernel") not in _KERNELS:
        raise NotJudged(f"kernel '{row.text('kernel')}' is not modelled")
    library, cls, kind = _KERNELS[row.text("kernel")]
    width, length = row.number("head_dim"), row.number("q_len")
    sizes = TimedAttention(_sizes(row, width, width), with_backward=row.text("phase") == "train_fwdbwd")
    return Case(row, system, library, cls, kind, f"{width} wide, {length} long", sizes, seconds)


def _prefill(row: Row, system: str, seconds: float) -> Case[TimedAttention]:
    if _is_latent(row):
        group = f"batch {row.number('batch')}, {row.number('q_len')} long"
        sizes = _sizes(row, *EXPANDED, kv_heads=row.number("heads"))
        return Case(row, system, "trtllm", "attention", "serving-mla", group, TimedAttention(sizes), seconds)
    width = row.number("head_dim")
    kind = "serving-fp8" if row.text("dtype") == "fp8" else "serving"
    heads = f"{row.number('heads')} heads, {row.number('kv_heads')} of keys, {row.number('head_dim')} wide"
    return Case(row, system, "trtllm", "attention", kind, heads, TimedAttention(_sizes(row, width, width)), seconds)


def _decode(row: Row, system: str, seconds: float) -> Case[TimedAttention]:
    group = f"batch {row.number('batch')}, {row.number('kv_len')} keys"
    if _is_latent(row):
        sizes = _sizes(row, *CACHED, latent=True)
        return Case(row, system, "trtllm", "decode", "latent", group, TimedAttention(sizes), seconds)
    width = row.number("head_dim")
    sizes = _sizes(row, width, width)
    kind = "by-head" if system == BY_HEAD_SYSTEM else "grouped"
    group = f"{group}, {row.number('heads')} heads"
    chip = _chip(system)
    read = float(sizes.cache_bytes)
    is_impossible = read > 2.0 * float(chip.l2_bytes) and read / seconds > IMPOSSIBLE_BANDWIDTH * float(
        chip.hbm_bytes_per_s
    )
    why = IMPOSSIBLE if is_impossible else ""
    return Case(row, system, "trtllm", "decode", kind, group, TimedAttention(sizes), seconds, why)


def _is_latent(row: Row) -> bool:
    return "_mla_" in row.dataset


@cache
def _chip(system: str) -> Chip:
    return load_system(system).chip


def _sizes(
    row: Row, qk_dim: float, v_dim: float, *, kv_heads: int | None = None, latent: bool = False
) -> AttentionSizes:
    """Read the sizes of a row; activations come and go in 16 bits, whatever the products take."""
    fp8 = row.text("dtype") == "fp8"
    return AttentionSizes.of(
        row.number("batch"),
        row.number("heads"),
        row.number("kv_heads", row.number("heads")) if kv_heads is None else kv_heads,
        row.number("q_len"),
        row.number("kv_len"),
        qk_dim,
        v_dim,
        causal=row.flag("causal"),
        latent=latent,
        kv_bytes=1 if row.text("kv_dtype") == "fp8" else 2,
        dtype="fp8" if fp8 else "bf16",
    )


def _pricer(constants: object, chip: Chip) -> Callable[[AttentionSizes], KernelTimes]:
    if isinstance(constants, FlashConstants):
        return lambda sizes: flash_times(sizes, chip, constants)
    if isinstance(constants, DecodeConstants):
        return lambda sizes: decode_times(sizes, chip, constants)
    if isinstance(constants, UnfusedConstants):
        return lambda sizes: unfused_times(sizes, chip, constants)
    raise InternalError(
        f"{type(constants).__name__} are no constants of attention: {', '.join(limits_of(type(constants)))}"
    )


def _stacked(sizes: Sequence[AttentionSizes], backward: bool) -> AttentionSizes:
    """Lay calls into arrays, as one phase or the other."""
    arrays = {
        f.name: np.array([getattr(s, f.name) for s in sizes]) for f in fields(AttentionSizes) if f.name != "dtype"
    }
    arrays["backward"] = np.full(len(sizes), backward)
    return AttentionSizes(**arrays, dtype=sizes[0].dtype)
