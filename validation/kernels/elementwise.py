"""Row-wise kernels: norms, softmax, activations, sums and lookups, one measured kernel a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ...backends.kernels.rowwise import RowwiseConstants, RowwiseSizes, rowwise_times
from ...backends.machine.system import System
from ...ir.errors import InternalError
from ..rows.cases import Array, Case
from ..rows.machines import system_of
from ..rows.rows import NotJudged, Row

# Of an element: bytes read and written, vector FLOPs, results of the special function units. All sets are 16 bit; a
# lookup reads and writes a row, whatever the size of its table.
_PER_ELEMENT = MappingProxyType(
    {
        "embedding_lookup": (4, 0, 0), "gelu": (4, 10, 2), "layernorm": (4, 7, 0), "residual_add": (6, 1, 0),
        "rmsnorm": (4, 4, 0), "rope": (4, 3, 0), "silu_and_mul": (6, 11, 2), "softmax": (4, 5, 1),
    }
)  # fmt: skip
# The kind of kernel of each op, by the framework that the row names. Sarathi's activation, rotary embedding and norm
# are vLLM's own kernels of 2023; its sum, lookup, GeLU and layer norm are PyTorch's.
_VLLM = "PyTorch/vLLM kernels (Sarathi)"
_KINDS = MappingProxyType(
    {
        (_VLLM, "embedding_lookup"): "embedding", (_VLLM, "gelu"): "gelu", (_VLLM, "layernorm"): "layernorm",
        (_VLLM, "residual_add"): "add", (_VLLM, "rmsnorm"): "vllm_rmsnorm", (_VLLM, "rope"): "vllm_rope",
        (_VLLM, "silu_and_mul"): "vllm_silu_mul", ("PyTorch", "gelu"): "gelu", ("PyTorch", "layernorm"): "layernorm",
        ("PyTorch", "softmax"): "softmax",
    }
)  # fmt: skip
# phi-2 adds attention, MLP and residual, which the profiler timed as one op: two sums of the same size.
_TWO_SUMS = "phi-2,"
_TOO_LONG = "llmcompass_layernorm_A100_4096_32768"


@dataclass(frozen=True, slots=True)
class ElementwiseJudge:
    """Judges row-wise kernels."""

    @property
    def name(self) -> str:
        """What people call the table."""
        return "elementwise"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tell this kind of table from others."""
        return ("id", "dataset", "accelerator", "framework", "op", "rows", "cols", "time_us", "timing_method")

    def case(self, row: Row) -> Case[RowwiseSizes]:
        """Read a row; NotJudged for an op that has no model, or a kernel that nobody named."""
        op, framework = row.text("op"), row.text("framework")
        kind = _KINDS.get((framework, op))
        time_us = row.measured("time_us")
        if kind is None:
            raise NotJudged(f"no kind of row-wise kernel is '{op}' of '{framework}'")
        if time_us is None:
            raise NotJudged("time_us is not given")
        sizes = _sizes(op, row.number("rows"), row.number("cols"))
        outlier = "1.9x slower than 32768 x 4096: rows too long for one pass" if row.id == _TOO_LONG else ""
        measured_s = time_us * 1e-6 / _calls(row)
        return Case(row, system_of(row), _library(row), "rowwise", kind, _group(row), sizes, measured_s, outlier)

    def seconds(self, cases: Sequence[Case[RowwiseSizes]], system: System, constants: object) -> Array:
        """Predict kernels of one kind."""
        if not isinstance(constants, RowwiseConstants):
            raise InternalError(f"row-wise kernels are priced with RowwiseConstants, not {type(constants).__name__}")
        return rowwise_times(_stacked([c.sizes for c in cases]), system.chip, constants).time_s

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Arithmetic never bounds a row of these tables, and their operands are taken to come from memory."""
        return ("arithmetic", "warm")


def _sizes(op: str, rows: int, cols: int) -> RowwiseSizes:
    elements = float(rows) * cols
    moved, flops, specials = (np.array(n * elements) for n in _PER_ELEMENT[op])
    return RowwiseSizes(np.array(float(rows)), np.array(float(cols)), moved, flops, specials)


def _stacked(sizes: Sequence[RowwiseSizes]) -> RowwiseSizes:
    return RowwiseSizes(
        np.array([s.rows for s in sizes]), np.array([s.cols for s in sizes]), np.array([s.num_bytes for s in sizes]),
        np.array([s.flops for s in sizes]), np.array([s.specials for s in sizes]),
    )  # fmt: skip


def _library(row: Row) -> str:
    return "pytorch-host" if row.text("timing_method").startswith("host") else "pytorch"


def _group(row: Row) -> str:
    """Rows of one width belong to one model and its split; a sweep of single shapes has a group each."""
    shape = [row.text("cols")] if _library(row) == "pytorch" else [row.text("rows"), row.text("cols")]
    return ",".join([row.text("op"), *shape])


def _calls(row: Row) -> int:
    return 2 if row.text("op") == "residual_add" and row.text("note").startswith(_TWO_SUMS) else 1
