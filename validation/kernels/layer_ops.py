"""One op of a layer as rows of the tables of kernels, and the time that their models give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from ..rows.cases import Case, Judge
from ..rows.machine_room import MachineRoom
from ..rows.rows import NotJudged, Row
from .collectives import CollectiveJudge
from .elementwise import ElementwiseJudge
from .gemm import GemmJudge

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
    judge = _judge(op.table)
    dtype = "fp16" if op.table == "gemm" else row.text("dtype")
    cells = {**row.cells, **_EAGER, **op.cells, "accelerator": row.text("accelerator"), "dtype": dtype}
    case: Case[object] = judge.case(Row(cells, row.line))
    constants = room.constants(case.system, case.library, case.cls, case.kind)
    return op.times * float(judge.seconds([case], room.system(case.system), constants)[0])


def _judge(table: str) -> Judge[object]:
    if table == "gemm":
        return cast("Judge[object]", GemmJudge())
    return cast("Judge[object]", ElementwiseJudge() if table == "elementwise" else CollectiveJudge())


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
        {"collective": "all_reduce", "n_gpus": row.text("tp"), "size_bytes": str(num_bytes), "library": "NCCL",
         "dataset": "llmcompass_allreduce"},
    )  # fmt: skip


_OPS: Mapping[str, Callable[[Row], Op]] = MappingProxyType(
    {
        "Q_K_V": _qkv, "A_mul_V": _values, "Wo_proj": _out, "W1_proj": _up, "LayerNorm_MHA": _norm,
        "LayerNorm_FFN": _norm, "AllReduce_MHA": _reduction,
    }
)  # fmt: skip
