"""Rows of a table of matrix products as cases, and what the model says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from ...backends.kernels.gemm import GemmConstants, GemmSizes, gemm_sizes, gemm_times, stacked
from ...backends.machine.system import System
from ...ir.errors import InternalError, UsageError
from ...ir.records import dataclass
from ..rows.cases import Array, Case
from ..rows.rows import NotJudged, Row
from ..rows.words import system_of

GEMM_COLUMNS = ("id", "dataset", "accelerator", "dtype", "m", "n", "k", "time_us")
# How the framework of a table, by its first words, and its way of timing make a library.
_LIBRARIES = MappingProxyType(
    {"PyTorch": "pytorch", "TensorRT-LLM": "trtllm", "TransformerEngine": "transformer-engine", "DeepGEMM": "deepgemm"}
)
# fp16 and bf16 run on the same units at the same rate: one set of constants.
_KINDS = MappingProxyType(
    {"bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "fp16/bf16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
)
# Constants that these tables cannot tell: those of the form, and how operands were left in the cache.
_FORM = ("warm", "cache", "waves", "smallest_tile", "largest_tile", "most_splits", "slack", "ramp_s")


@dataclass(frozen=True, slots=True)
class GemmJudge:
    """Judges tables with a product a row."""

    @property
    def name(self) -> str:
        """What people call the table."""
        return "gemm"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it needs."""
        return GEMM_COLUMNS

    def case(self, row: Row) -> Case[GemmSizes]:
        """Read a row; NotJudged where dtype, machine or library is not known, UsageError for a size that is none."""
        kind = _KINDS.get(row.text("dtype").lower())
        if kind is None:
            raise NotJudged(f"products of {row.text('dtype')} have no table to compare with")
        outlier = next((rule.reason for rule in _OUTLIERS if rule.holds(row)), "")
        return Case(
            row,
            system_of(row),
            _library(row),
            "gemm",
            kind,
            f"{_size(row, 'n')}x{_size(row, 'k')}",
            _sizes(row, kind),
            _time_s(row),
            outlier,
        )

    def seconds(self, cases: Sequence[Case[GemmSizes]], system: System, constants: object) -> Array:
        """Predict cases of one system, library and kind."""
        if not isinstance(constants, GemmConstants):
            raise InternalError(f"products take GemmConstants, not {type(constants).__name__}")
        return gemm_times(stacked([c.sizes for c in cases]), system.chip, constants).time_s

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Name the constants that rows of a kind cannot tell: what is not quantised knows nothing of quantisation."""
        return {"bf16": (*_FORM, "quantise", "pace"), "fp8": (*_FORM, "feed", "small")}.get(
            kind, (*_FORM, "feed", "small", "split_s")
        )


def _library(row: Row) -> str:
    given = row.text("framework")
    for words, library in _LIBRARIES.items():
        if given.startswith(words):
            host = "host" in row.text("timing_method")
            return f"{library}-host" if host else library
    raise NotJudged(f"the framework '{given}' is not known")


def _sizes(row: Row, kind: str) -> GemmSizes:
    """Return what the model knows; TensorRT-LLM's products of fewer than 16 bits hold the quantisation of A."""
    accumulated = "accumulate=true" in row.text("note").lower()
    c_bytes = (2 if accumulated else 1) * (4.0 if row.text("out_dtype") == "fp32" else 2.0)
    quantised = float("activation quantisation" in row.text("note") and kind != "bf16")
    m, n, k = (_size(row, name) for name in ("m", "n", "k"))
    return gemm_sizes(
        m, n, k, kind, batch=_size(row, "batch") if row.text("batch") else 1, c_bytes=c_bytes, quantised=quantised
    )


def _size(row: Row, name: str) -> int:
    size = row.measured(name)
    if size is None:
        raise NotJudged(f"{name} is not given")
    if not (size >= 1.0 and size.is_integer()):
        raise UsageError(f"row '{row.id}', column '{name}': {size:g} is no size")
    return int(size)


def _time_s(row: Row) -> float:
    time_us = row.measured("time_us")
    if time_us is None:
        raise NotJudged("time_us is not given")
    if not 0.0 < time_us < float("inf"):
        raise UsageError(f"row '{row.id}', column 'time_us': {time_us:g} is no time")
    return time_us * 1e-6


@dataclass(frozen=True, slots=True)
class _Rule:
    """Rows that no sane model fits, and why."""

    reason: str
    holds: Callable[[Row], bool]


def _shape(row: Row) -> tuple[int, int, int]:
    return _size(row, "m"), _size(row, "n"), _size(row, "k")


def _on(row: Row, dataset: str, accelerator: str, dtype: str) -> bool:
    given = (row.dataset, row.text("accelerator"), row.text("dtype"))
    return given == (dataset, accelerator, dtype)


def _slow_vector(row: Row) -> bool:
    """B200, one row, four shapes."""
    narrow = ((1024, 8192), (1024, 16384), (2048, 2048), (2048, 4096))
    m, n, k = _shape(row)
    return _on(row, "aiconfigurator_gemm", "B200-SXM", "bfloat16") and m == 1 and (n, k) in narrow


def _slow_kernel(row: Row) -> bool:
    """H100, 1024 rows, n 8192, three k."""
    m, n, k = _shape(row)
    return _on(row, "vidur_linear", "H100-SXM-80GB", "fp16") and (m, n) == (1024, 8192) and k in (8192, 22016, 28672)


def _unaligned(row: Row) -> bool:
    return row.dataset == "simumax_b200_gemm" and min(_shape(row)[1:]) <= 576


def _fast_clock(row: Row) -> bool:
    """Rows of 4096 at 0.60 to 0.655 of the peak of 2250 TFLOP/s, where longer ones of the table reach 0.5."""
    m, n, k = _shape(row)
    share = 2.0 * m * n * k / _time_s(row) / 2250e12
    return row.dataset == "simumax_b200_gemm" and m == 4096 and 0.5995 <= share <= 0.6555


_SLOWER = (
    "aic_l40s_bfloat16_1_4096_2048",
    "aic_l40s_bfloat16_1_8192_1024",
    "aic_l40s_bfloat16_8_1024_2048",
    "aic_b200_sxm_bfloat16_2048_8192_16384",
    "vidur_a100_internlm-20b_tp1_attn_pre_proj_128",
    "vidur_a40_Llama-2-70b-hf_tp1_mlp_down_proj_512",
)
_OUTLIERS = (
    _Rule("1.3 to 3 times slower than its neighbours on both sides", lambda row: row.id in _SLOWER),
    _Rule("1.3 to 1.7 times slower than 32 to 128 rows of the same product", _slow_vector),
    _Rule("1.3 to 1.6 times slower than half and twice as many rows: the kernel chosen", _slow_kernel),
    _Rule("k or n so short that tiles are mostly padding", _unaligned),
    _Rule("measured at a faster clock than the rest of the table", _fast_clock),
)
