"""What a rank computes for its experts: rows put in order, grouped products, activation, rows put back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ...ir.records import dataclass
from .grouped import PaddedGroups, padded, product_times, spread_evenly, tile_rows, widening_s
from .limits import ConstantRange, Overhead, Scope
from .operands import OPERAND_BYTES
from .terms import Array, KernelTimes

if TYPE_CHECKING:
    from ...ir.sizes.expr import Num
    from ..machine.chip import Chip

# Bytes of an element outside of the products: rows travel, are activated and added up in 16 bits at every precision.
ROW_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class ExpertsConstants:
    """Constants of a bank of experts at one precision of its products.

    Attributes:
        overhead_s: O, the launches and fixed work of all its kernels.
        tensor: u_c, part of the matrix peak.
        memory: u_m, part of the memory's bandwidth, for the weights.
        row_passes: c_x, how often the rows pass through memory over what they must.
        token_passes: c_t, how often the tokens do: routing, quantisation, sums.
    """

    overhead_s: Overhead
    tensor: Annotated[float, ConstantRange(Scope.CHIP, 0.1, 1.0)]
    memory: Annotated[float, ConstantRange(Scope.CHIP, 0.1, 1.0)]
    row_passes: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 50.0)]
    token_passes: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 50.0)]


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Sizes of one rank's bank; all arrays broadcast.

    Attributes:
        padded_rows: rows of all its experts, each padded to whole tiles.
        rows: rows that hold data.
        touched: experts with a row, whose weights are read.
        tokens: tokens that enter the bank's group of ranks.
        hidden: width of a token.
        ffn: inner size of an expert on this rank.
        up_width: columns of the first product: twice `ffn` with gates.
        weight_bytes: bytes of an element of a weight, scales included.
        passes: 1 forward; 2 backward, which has two products for each and writes gradients of rows and weights.
    """

    padded_rows: Array
    rows: Array
    touched: Array
    tokens: Array
    hidden: Array
    ffn: Array
    up_width: Array
    weight_bytes: Array
    passes: float = 1.0


def experts_times(
    sizes: ExpertSizes,
    peak: Num,
    chip: Chip,
    constants: ExpertsConstants,
    clocks: float = 0.0,
    most: PaddedGroups | None = None,
) -> KernelTimes:
    """Price banks of experts in seconds.

    T = O + ((c^2 + q^2)^2 + w^4)^(1/4) + (c_x X + c_t Y) / BW with c = 2 W R / (u_c P), q = W e E / (u_m BW): W
    elements of an expert's weights, R padded rows, E touched experts; w is that of widening, once a tile of rows.
    X = 2 B rows (2 hidden + up + ffn) and Y = 2 B tokens hidden are what rows and tokens pass through memory once.
    Products of both projections share the square root, since both have the same ratio of c to q.

    Args:
        sizes: of the rank; with several draws of the load, one element a draw: average the times, not the loads.
        peak: the chip's matrix peak for the operands, FLOP/s.
        chip: the chip.
        constants: those of the precision.
        clocks: of a multiprocessor to widen one weight, 0 where the matrix units take them as they are.
        most: what products take at most on these units; None where only tiles of measured kernels count.
    """
    weights = sizes.hidden * (sizes.up_width + sizes.ffn)
    flops = sizes.passes * 2.0 * weights * sizes.padded_rows
    moved = sizes.passes * weights * sizes.weight_bytes * sizes.touched
    rows = sizes.passes * ROW_BYTES * sizes.rows * (2.0 * sizes.hidden + sizes.up_width + sizes.ffn)
    tokens = sizes.passes * ROW_BYTES * sizes.tokens * sizes.hidden
    terms = {
        "overhead": np.array(constants.overhead_s),
        "tensor": flops / (constants.tensor * peak),
        "weights": moved / (constants.memory * chip.hbm_bytes_per_s),
        "row_passes": constants.row_passes * rows / chip.hbm_bytes_per_s,
        "token_passes": constants.token_passes * tokens / chip.hbm_bytes_per_s,
    }
    widen_s = sizes.passes * widening_s(weights, sizes.touched, sizes.padded_rows, chip, clocks) if clocks else 0.0
    terms |= {"widen": np.asarray(widen_s)} if clocks else {}
    both = product_times(flops, moved, peak, chip, constants.tensor, constants.memory, widen_s)
    if most is not None:
        width, groups = sizes.up_width + sizes.ffn, sizes.touched * sizes.passes
        products = most.held(
            KernelTimes(both, terms), sizes.rows * sizes.passes, groups, (width, sizes.hidden), moved, widen_s
        )
        both, terms = products.time_s, dict(products.terms)
    return KernelTimes(terms["overhead"] + both + terms["row_passes"] + terms["token_passes"], terms)


def of_loads(loads: Array, tokens: Array, hidden: Array, ffn: Array, gated: bool, dtype: str) -> ExpertSizes:
    """Return the sizes of a bank whose experts get so many rows each, the last axis of `loads`."""
    return ExpertSizes(
        padded(loads, tile_rows(dtype)),
        loads.sum(axis=-1),
        np.asarray((loads > 0).sum(axis=-1), dtype=np.float64),
        tokens,
        hidden,
        ffn,
        ffn * (2.0 if gated else 1.0),
        np.array(OPERAND_BYTES[dtype]),
    )


def of_mean(sizes: ExpertSizes, num_experts: Array, imbalance: Array, dtype: str) -> ExpertSizes:
    """Return the sizes of the busiest rank, from those of the mean one, whose `rows` are spread over its experts.

    Rows go to its experts as `spread_evenly` has it.

    Args:
        sizes: with the mean rows of a rank; what is padded and touched is worked out here.
        num_experts: experts of the rank.
        imbalance: rows of the busiest rank over the mean.
        dtype: of the products, or of weights in fewer bits.
    """
    rows = sizes.rows * imbalance
    touched, padded_rows = spread_evenly(rows, num_experts, dtype)
    return replace(sizes, rows=rows, touched=touched, padded_rows=padded_rows)
