"""One op of a layer as rows of the tables of kernels, and the time that their models give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast

import numpy as np

from ...backends.kernels.rowwise import RowwiseConstants, RowwiseSizes, rowwise_times
from ...backends.machine.system import System
from ...ir.errors import InternalError
from ...ir.records import dataclass
from ..rows.cases import Array, Case, Judge
from ..rows.machine_room import MachineRoom
from ..rows.rows import NotJudged, Row
from ..rows.words import system_of
from .collectives import CollectiveJudge
from .gemm import GemmJudge

# Row-wise kernels: norms, softmax, activations, sums and lookups, one measured kernel a row.

# Of an element: bytes read and written, vector FLOPs, results of the special function units. All sets are 16 bit; a
# lookup reads and writes a row, whatever the size of its table.
_PER_ELEMENT = MappingProxyType(
    {
        "embedding_lookup": (4, 0, 0),
        "gelu": (4, 10, 2),
        "layernorm": (4, 7, 0),
        "residual_add": (6, 1, 0),
        "rmsnorm": (4, 4, 0),
        "rope": (4, 3, 0),
        "silu_and_mul": (6, 11, 2),
        "softmax": (4, 5, 1),
    }
)
# The kind of kernel of each op, by the framework that the row names. Sarathi's activation, rotary embedding and norm
# are vLLM's own kernels of 2023; its sum, lookup, GeLU and layer norm are PyTorch's.
_VLLM = "PyTorch/vLLM kernels (Sarathi)"
_KINDS = MappingProxyType(
    {
        (_VLLM, "embedding_lookup"): "embedding",
        (_VLLM, "gelu"): "gelu",
        (_VLLM, "layernorm"): "layernorm",
        (_VLLM, "residual_add"): "add",
        (_VLLM, "rmsnorm"): "vllm_rmsnorm",
        (_VLLM, "rope"): "vllm_rope",
        (_VLLM, "silu_and_mul"): "vllm_silu_mul",
        ("PyTorch", "gelu"): "gelu",
        ("PyTorch", "layernorm"): "layernorm",
        ("PyTorch", "softmax"): "softmax",
    }
)
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
        rows = row.number("rows")
        cols = row.number("cols")
        elements = float(rows) * cols
        moved, flops, specials = (np.array(n * elements) for n in _PER_ELEMENT[op])
        sizes = RowwiseSizes(np.array(float(rows)), np.array(float(cols)), moved, flops, specials)
        outlier = "1.9x slower than 32768 x 4096: rows too long for one pass" if row.id == _TOO_LONG else ""
        measured_s = (
            time_us * 1e-6 / (2 if row.text("op") == "residual_add" and row.text("note").startswith(_TWO_SUMS) else 1)
        )
        # Rows of one width belong to one model and its split; a sweep of single shapes has a group each.
        shape = [row.text("cols")] if _library(row) == "pytorch" else [row.text("rows"), row.text("cols")]
        return Case(
            row,
            system_of(row),
            _library(row),
            "rowwise",
            kind,
            ",".join([row.text("op"), *shape]),
            sizes,
            measured_s,
            outlier,
        )

    def seconds(self, cases: Sequence[Case[RowwiseSizes]], system: System, constants: object) -> Array:
        """Predict kernels of one kind."""
        if not isinstance(constants, RowwiseConstants):
            raise InternalError(f"row-wise kernels are priced with RowwiseConstants, not {type(constants).__name__}")
        sizes = [c.sizes for c in cases]
        stacked = RowwiseSizes(
            np.array([s.rows for s in sizes]),
            np.array([s.cols for s in sizes]),
            np.array([s.num_bytes for s in sizes]),
            np.array([s.flops for s in sizes]),
            np.array([s.specials for s in sizes]),
        )
        return rowwise_times(stacked, system.chip, constants).time_s

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Arithmetic never bounds a row of these tables, and their operands are taken to come from memory."""
        return ("arithmetic", "warm")


def _library(row: Row) -> str:
    return "pytorch-host" if row.text("timing_method").startswith("host") else "pytorch"


Cells = Mapping[str, str]
# Host clocks around an eager call, as the ops of these layers were timed.
_EAGER = MappingProxyType({"framework": "PyTorch", "timing_method": "host wall clock + synchronize"})
_BYTES = 2


@dataclass(frozen=True, slots=True)
class Op:
    """A kernel of a layer: which table it belongs to, its row there, and how many of it the layer has."""

    table: str
    cells: Cells
    times: int = 1


def op_of(row: Row) -> Op:
    """Return the kernel that a row is; NotJudged for an op that is none of a GPT's layer.

    LLMCompass splits a layer over tp as Megatron-LM does: queries, keys and values are three products, and the bytes
    of an all-reduce are those of the hidden tensor.
    """
    made = _OPS.get(row.text("op"))
    if made is None:
        raise NotJudged(f"no op of a layer is '{row.text('op')}'")
    return made(row)


def op_seconds(row: Row, room: MachineRoom) -> float:
    """Return the predicted time of a row that is one op."""
    op = op_of(row)
    if op.table == "gemm":
        judge = cast("Judge[object]", GemmJudge())
    else:
        judge = cast("Judge[object]", ElementwiseJudge() if op.table == "elementwise" else CollectiveJudge())
    dtype = "fp16" if op.table == "gemm" else row.text("dtype")
    cells = {**row.cells, **_EAGER, **op.cells, "accelerator": row.text("accelerator"), "dtype": dtype}
    case: Case[object] = judge.case(replace(row, cells=cells))
    constants = room.constants(case.system, case.library, case.cls, case.kind)
    return op.times * float(judge.seconds([case], room.system(case.system), constants)[0])


def _tokens(row: Row) -> int:
    return row.number("batch") * row.number("seq_len")


def _product(m: int, n: int, k: int, batch: int = 1, times: int = 1) -> Op:
    sizes = {"m": m, "n": n, "k": k, "batch": batch}
    return Op("gemm", {name: str(size) for name, size in sizes.items()}, times)


def _qkv(row: Row) -> Op:
    hidden = row.number("hidden")
    return _product(_tokens(row), hidden // row.number("tp"), hidden, times=3)


def _values(row: Row) -> Op:
    """Scores by values, a product for each sequence and head; a cached sequence is as long as `kv_len`."""
    heads, seq = row.number("heads"), row.number("seq_len")
    return _product(
        seq, row.number("hidden") // heads, row.number("kv_len", seq), row.number("batch") * heads // row.number("tp")
    )


def _out(row: Row) -> Op:
    hidden = row.number("hidden")
    return _product(_tokens(row), hidden, hidden // row.number("tp"))


def _up(row: Row) -> Op:
    hidden = row.number("hidden")
    return _product(_tokens(row), 4 * hidden // row.number("tp"), hidden)


def _norm(row: Row) -> Op:
    """Its source took the launch off the time, so that the kernel alone is left."""
    sizes = {"op": "layernorm", "rows": str(_tokens(row)), "cols": row.text("hidden"), "timing_method": "kernel"}
    return Op("elementwise", sizes)


def _reduction(row: Row) -> Op:
    num_bytes = _BYTES * _tokens(row) * row.number("hidden")
    return Op(
        "collectives",
        {
            "collective": "all_reduce",
            "n_gpus": row.text("tp"),
            "size_bytes": str(num_bytes),
            "library": "NCCL",
            "dataset": "llmcompass_allreduce",
        },
    )


_OPS: Mapping[str, Callable[[Row], Op]] = MappingProxyType(
    {
        "Q_K_V": _qkv,
        "A_mul_V": _values,
        "Wo_proj": _out,
        "W1_proj": _up,
        "LayerNorm_MHA": _norm,
        "LayerNorm_FFN": _norm,
        "AllReduce_MHA": _reduction,
    }
)
