"""Tables that `slipstick calibrate --device` wrote: every row is of one machine, and names its kernel by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from ...backends.kernels.attention.flash import FlashConstants, flash_times
from ...backends.kernels.attention.sizes import AttentionSizes
from ...backends.kernels.gemm import GemmConstants, gemm_sizes, gemm_times
from ...backends.kernels.operands import OPERAND_BYTES
from ...backends.kernels.rowwise import RowwiseConstants, RowwiseSizes, rowwise_times
from ...backends.machine.system import System
from ...ir.errors import InternalError
from ...ir.records import dataclass
from ..rows.cases import Array, Case, Judge
from ..rows.rows import NotJudged, Row

if TYPE_CHECKING:
    from ...backends.kernels.terms import KernelTimes

# Of these kernels: scores are never written, whatever PyTorch takes for it on a device.
ATTENTION_KIND = "sdpa"
LIBRARY = "pytorch"
# Constants that one machine cannot tell, or that stand for others: see the attributes of each class.
_FIXED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gemm": ("quantise", "warm", "cache", "split_s", "waves", "smallest_tile", "largest_tile", "most_splits"),
        "rowwise": ("column", "pace", "arithmetic"),
        "attention": ("tail", "reload"),
    }
)


# The class of kernels of each table; what goes over a network has no constants of kernels.
CLASSES: Mapping[str, str] = MappingProxyType({"gemm": "gemm", "attention": "attention", "elementwise": "rowwise"})
_DATASET = "measured_"


def judge_of(judge: Judge[object], row: Row) -> Judge[object]:
    """Return the judge of a row: that of its kind of table, or the one of measured tables where it is of one."""
    if not row.dataset.startswith(_DATASET) or judge.name not in CLASSES:
        return judge
    return cast("Judge[object]", MeasuredJudge(CLASSES[judge.name]))


@dataclass(frozen=True, slots=True)
class MeasuredJudge:
    """Predicts measured rows of one class of kernels."""

    cls: str

    @property
    def name(self) -> str:
        """The table: that of the class, but for row-wise kernels."""
        return {"rowwise": "elementwise"}.get(self.cls, self.cls)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every measured table has."""
        return ("id", "dataset", "accelerator", "time_us")

    def case(self, row: Row) -> Case[Row]:
        """Read a row, whose sizes are read when it is predicted; NotJudged where it has no time."""
        kind, group = _KINDS[self.cls](row)
        time_us = row.measured("time_us")
        if time_us is None:
            raise NotJudged("time_us is not given")
        return Case(row, row.text("accelerator"), LIBRARY, self.cls, kind, group, row, time_us * 1e-6)

    def seconds(self, cases: Sequence[Case[Row]], system: System, constants: object) -> Array:
        """Predict rows of one kind."""
        return _times([case.sizes for case in cases], system, constants).time_s

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Name what a machine's own tables cannot tell."""
        return _FIXED[cls]


def _times(rows: Sequence[Row], system: System, constants: object) -> KernelTimes:
    if isinstance(constants, GemmConstants):
        return _products(rows, system, constants)
    if isinstance(constants, RowwiseConstants):
        # Arithmetic is left out: what is measured whole has it in the pace at which its bytes are moved.
        nothing = np.zeros(len(rows))
        moved = _column(rows, "bytes_moved_min")
        return rowwise_times(
            RowwiseSizes(_column(rows, "rows"), _column(rows, "cols"), moved, nothing, nothing), system.chip, constants
        )
    if isinstance(constants, FlashConstants):
        return flash_times(_attention_sizes(rows), system.chip, constants)
    raise InternalError(f"no measured table is priced with {type(constants).__name__}")


def _products(rows: Sequence[Row], system: System, constants: GemmConstants) -> KernelTimes:
    dtype = rows[0].text("dtype")
    m, n, k, batch = (_column(rows, name) for name in ("m", "n", "k", "batch"))
    sizes = gemm_sizes(m, n, k, dtype, batch=batch, c_bytes=OPERAND_BYTES[dtype])
    return gemm_times(sizes, system.chip, constants)


def _attention_sizes(rows: Sequence[Row]) -> AttentionSizes:
    batch, heads, kv_heads, q_len, kv_len, width = (
        _column(rows, name) for name in ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
    )
    dtype, count = rows[0].text("dtype"), len(rows)
    each = np.full(count, OPERAND_BYTES[dtype])
    no, yes = np.zeros(count, dtype=np.bool_), np.ones(count, dtype=np.bool_)
    backward = np.array([row.text("phase") == "train_bwd" for row in rows])
    return AttentionSizes(
        batch=batch, heads=heads, kv_heads=kv_heads, q_len=q_len, kv_len=kv_len, qk_dim=width, v_dim=width, causal=yes,
        window=np.zeros(count), balanced=no, latent=no, backward=backward, operand_bytes=each, kv_bytes=each,
        dtype=dtype,
    )  # fmt: skip


def _column(rows: Sequence[Row], name: str) -> Array:
    return np.array([float(row.text(name)) for row in rows])


def _product_kind(row: Row) -> tuple[str, str]:
    return row.text("dtype"), f"{row.text('n')}x{row.text('k')}"


def _rowwise_kind(row: Row) -> tuple[str, str]:
    return row.text("op"), row.text("cols")


def _attention_kind(row: Row) -> tuple[str, str]:
    return ATTENTION_KIND, f"{row.text('heads')} heads of {row.text('head_dim')}, {row.text('q_len')} long"


# Row to its kind of kernel and the configuration it belongs to.
_KINDS: Mapping[str, Callable[[Row], tuple[str, str]]] = MappingProxyType(
    {"gemm": _product_kind, "rowwise": _rowwise_kind, "attention": _attention_kind}
)
