"""Measured experts of one rank, and grouped products: rows to sizes, sizes to seconds."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from ...backends.kernels.experts import ExpertsConstants, ExpertSizes, experts_times, of_loads
from ...backends.kernels.grouped import GroupedConstants, GroupedSizes, grouped_times, padded, tile_rows
from ...backends.kernels.loads import balanced_loads, power_law_loads
from ...backends.kernels.operands import UNITS
from ...backends.kernels.terms import Array
from ...backends.machine.system import System
from ...ir.plan.experts.power_law import DRAWS
from ..rows.cases import Case
from ..rows.rows import NotJudged, Row
from ..rows.words import system_of
from .moe_sizes import MoeSizes

DTYPES = MappingProxyType(
    {
        "bfloat16": "bf16",
        "bf16": "bf16",
        "fp8_block": "fp8",
        "fp8 blockwise": "fp8",
        "nvfp4": "nvfp4",
        "fp8 in, bf16 out": "fp8",
    }
)
_POWER_LAW = "power_law_"
# Rows that no smooth model follows, by id; the rest of their sweeps is followed.
_OUTLIERS = MappingProxyType(
    {
        "aic_moe_h100_sxm_bfloat16_1024_7168_2048_256_tp8_ep1_power_law_1.01": "4.6x slower than its neighbours",
        "aic_moe_h100_sxm_fp8_block_1_7168_2048_256_tp4_ep1_power_law_1.01": "2.6x slower than with two ranks fewer",
        **{
            f"aic_moe_b200_sxm_nvfp4_{row}": "width 256 a rank breaks the tile of nvfp4: 2.1x slower"
            for row in (
                "8_7168_2048_256_tp8_ep1_power_law_1.2",
                "8_7168_2048_256_tp8_ep1_power_law_1.01",
                "128_7168_2048_256_tp8_ep1_power_law_1.01",
            )
        },
    }
)


def experts_case(row: Row) -> Case[MoeSizes]:
    """Read the compute of a rank's experts; several draws of the load are one element each."""
    dtype = dtype_of(row)
    tp, ffn = row.number("tp"), row.number("inter_size")
    sizes = of_loads(
        _loads(row),
        np.array(float(row.number("tokens_per_gpu"))),
        np.array(float(row.number("hidden"))),
        np.array(ffn / tp),
        True,
        dtype,
    )
    columns = ("hidden", "inter_size", "n_experts", "topk", "tp", "ep", "distribution")
    group = ",".join(row.text(c) for c in columns)
    return Case(row, system_of(row), "trtllm", "experts", dtype, group, sizes, measured_s(row), _outlier(row))


def experts_seconds(sizes: Sequence[ExpertSizes], dtype: str, system: System, constants: ExpertsConstants) -> Array:
    """Predict banks: the mean over draws of the time of each draw."""
    peak = system.chip.matmul_flop_per_s(UNITS.get(dtype, dtype))
    times = experts_times(stacked(sizes), peak, system.chip, constants)
    return np.asarray(times.time_s.mean(axis=1))


def grouped_case(row: Row) -> Case[MoeSizes]:
    """Read a grouped product of even groups."""
    layout, dtype = row.text("kernel").split(" ")[0], dtype_of(row)
    rows, groups = float(row.number("m_per_group")), float(row.number("n_groups"))
    n, k = (float(row.number(c)) for c in ("n", "k"))
    each = padded(np.array([rows]), tile_rows(dtype))
    sizes = GroupedSizes(each * groups, np.array(rows * groups), np.array(groups), np.array(n), np.array(k), 1.0, 2.0)
    group = ",".join([layout, row.text("n"), row.text("k")])
    return Case(row, system_of(row), "deepgemm", "grouped", f"{dtype}_{layout}", group, sizes, measured_s(row))


def grouped_seconds(sizes: Sequence[GroupedSizes], system: System, constants: GroupedConstants) -> Array:
    """Predict grouped products."""
    peak = system.chip.matmul_flop_per_s("fp8")
    return np.array([float(grouped_times(s, peak, system.chip, constants).time_s) for s in sizes])


def stacked(sizes: Sequence[ExpertSizes]) -> ExpertSizes:
    """Return banks as one, banks x draws."""
    return ExpertSizes(
        _stack([s.padded_rows for s in sizes]),
        _stack([s.rows for s in sizes]),
        _stack([s.touched for s in sizes]),
        _stack([s.tokens for s in sizes]),
        _stack([s.hidden for s in sizes]),
        _stack([s.ffn for s in sizes]),
        _stack([s.up_width for s in sizes]),
        _stack([s.weight_bytes for s in sizes]),
        sizes[0].passes,
    )


def _stack(values: Sequence[Array]) -> Array:
    return np.stack([np.broadcast_to(v, (DRAWS,)) for v in values])


def dtype_of(row: Row) -> str:
    """Return the dtype of a row's products; NotJudged where nobody has constants for it."""
    given = row.text("dtype")
    if given not in DTYPES:
        raise NotJudged(f"no products of '{given}' are modelled here")
    return DTYPES[given]


def measured_s(row: Row) -> float:
    """Return the measured time in seconds; NotJudged where there is none."""
    found = row.measured("time_us")
    if found is None:
        raise NotJudged("time_us is not given")
    return found * 1e-6


def _loads(row: Row) -> Array:
    given = row.text("distribution")
    sizes = tuple(row.number(c) for c in ("tokens_per_gpu", "n_experts", "topk", "ep"))
    if given == "balanced":
        return balanced_loads(*sizes)
    if not given.startswith(_POWER_LAW):
        raise NotJudged(f"no loads of experts are drawn by '{given}'")
    return power_law_loads(*sizes, float(given.removeprefix(_POWER_LAW)))


def _outlier(row: Row) -> str:
    deepseek = row.text("hidden") == "7168" and row.text("n_experts") == "256" and row.text("dtype") == "bfloat16"
    hopper = row.text("accelerator").startswith("H100")
    if hopper and deepseek and row.text("ep") == "64" and row.text("tp") in ("2", "4"):
        return "2.6 to 3.5x slower than with tp 1 or 8: a kernel that was not tuned"
    return _OUTLIERS.get(row.id, "")
