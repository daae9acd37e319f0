"""Banks of experts and grouped products of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ....ir.ops import OpClass
from ....ir.ops.fused.experts import ExpertsAttrs, GroupedAttrs
from ....ir.records import dataclass
from ....ir.types import DType
from ...kernels.dequantise import converts_fp4, widen_clocks, widens
from ...kernels.experts import ROW_BYTES, ExpertsConstants, ExpertSizes, experts_times, of_mean
from ...kernels.grouped import GroupedConstants, GroupedSizes, PaddedGroups, grouped_times, spread_evenly
from ...kernels.operands import gemm_kinds, unit_of
from ...machine.power import powered
from ...machine.system import System
from ..amounts import Amounts, Index
from ..program import PricedEntry, PricingGroup
from ..roofline import Pricer
from .kinds import USUAL, Rows, by_kind, first_kind

# Banks whose rows come in order and leave in order: other nodes permute them and add them up.
_BANKS = ("expert_bank", "expert_bank_bwd")
_PRODUCTS_OF_BACKWARD = 4
# Passes over the rows of a bank, forward and of each of the two backward: both halves limited, then joined again, are 8
# bytes an element of the first product's result forward and 10 backward. One pass has 5 and 10 for each where hidden
# and inner size are alike (Megatron-Core `core/fusions/fused_bias_geglu.py`, `weighted_bias_quick_geglu_impl`).
_LIMITS = (1.6, 1.0)


@dataclass(frozen=True, slots=True)
class ExpertsModel:
    """Experts by their grouped products, the weights of those that get rows, and the passes of rows and tokens."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "experts"

    @property
    def formula(self) -> str:
        """How its terms make up the time."""
        return "overhead + max(hypot(tensor, weights or memory, widen), ingest) + row_passes + token_passes"

    def claims(self, entry: PricedEntry) -> bool:
        """Banks of experts, forward and backward, and single grouped products."""
        return entry.kind is OpClass.EXPERTS and len(entry.work.gemms) in (1, 2, _PRODUCTS_OF_BACKWARD)

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        """Peak, bandwidth and the constants of the dtype."""
        dtype = str(entry.dtype)
        k = system.kernels
        of, kinds = ("grouped", k.grouped) if len(entry.work.gemms) == 1 else ("experts", k.experts)
        constants = f"calibration.{of}.{_kind(kinds, dtype if of == 'grouped' else _served(entry.op, dtype))}."
        return (f"chip.matmul.{unit_of(dtype)}", "chip.memory.hbm.bandwidth", constants)

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        """Price banks of one op, dtype and type of weights at a time."""
        chip, k = powered(system, steady=group.entries[0].trains), system.kernels

        def of_kind(of: tuple[str, int, bool, str, str, bool], rows: Rows) -> Pricer:
            op, products, weight_grad, dtype, weights, limited = of
            peak, places = chip.matmul_flop_per_s(unit_of(dtype)), np.arange(len(group.entries))[rows]
            clocks = widen_clocks(weights, converts_fp4(chip)) if widens(unit_of(dtype), weights) else 0.0
            single, like = k.grouped[_kind(k.grouped, dtype)], k.gemm[_kind(k.gemm, dtype)]
            if products == 1:
                most = PaddedGroups.of(chip, chip.hbm_bytes_per_s * single.memory, peak * single.tensor, like)
                return lambda amounts: grouped_times(
                    _grouped(amounts, places, weight_grad, dtype, weights), peak, chip, single, clocks, most
                )
            bank = k.experts[_kind(k.experts, _served(op, dtype))]
            if op in _BANKS:
                bank = _in_order(bank, single if DType(dtype).num_bytes < ROW_BYTES else None)
            if limited and system.stack.limits_apart:
                bank = replace(bank, row_passes=bank.row_passes + _LIMITS[products == _PRODUCTS_OF_BACKWARD])
            most = PaddedGroups.of(chip, chip.hbm_bytes_per_s * bank.memory, peak * bank.tensor, like)
            return lambda amounts: experts_times(
                _sizes(amounts, places, products, dtype, weights), peak, chip, bank, clocks, most
            )

        return by_kind([_key(e) for e in group.entries], of_kind)


def _key(entry: PricedEntry) -> tuple[str, int, bool, str, str, bool]:
    """What banks that are priced together have in common."""
    weights = str(entry.second or entry.dtype)
    is_weight_grad = isinstance(entry.attrs, GroupedAttrs) and entry.attrs.weight_grad
    # Experts with biases are those of gpt-oss, whose gates and linear halves are limited.
    return (
        entry.op,
        len(entry.work.gemms),
        is_weight_grad,
        str(entry.dtype),
        weights,
        isinstance(entry.attrs, ExpertsAttrs) and entry.attrs.bias,
    )


def _served(op: str, dtype: str) -> str:
    """The kind of whole banks: with one scale a tensor they run other kernels than with scales of blocks."""
    return "fp8_tensor" if dtype == "fp8" and op not in _BANKS else dtype


def _kind(kinds: Mapping[str, object], dtype: str) -> str:
    """The dtype's own constants, those of its unit, or those of bf16."""
    return first_kind(kinds, *gemm_kinds(dtype), USUAL)


def _in_order(constants: ExpertsConstants, low: GroupedConstants | None) -> ExpertsConstants:
    """Of what goes through memory beside the weights only one pass over the rows is left.

    In low precision the constants of whole banks hold in their passes what the products lose; the products alone run as
    grouped ones do. The one pass holds the cast between the two products, whose results are half as wide in turn.
    """
    made = replace(constants, row_passes=min(constants.row_passes, 1.0), token_passes=0.0)
    return made if low is None else replace(made, tensor=low.tensor, memory=low.memory)


def _sizes(amounts: Amounts, rows: Index, products: int, dtype: str, weights: str) -> ExpertSizes:
    """Sizes of banks by their products: up and down forward; backward the input gradients of down and up come 1st, 3rd.

    Rows that the graph holds are those of the busiest rank already.
    """
    p = amounts.products
    first = np.searchsorted(p.owner, rows)
    backward = products == _PRODUCTS_OF_BACKWARD
    routed, groups = p.m[first], p.groups[first]
    hidden, ffn, width = (
        (p.k[first], p.n[first], p.k[first + 2]) if backward else (p.k[first], p.k[first + 1], p.n[first])
    )
    nothing, each = np.zeros_like(routed), np.array(DType(weights).num_bytes)
    passes = 2.0 if backward else 1.0
    sizes = ExpertSizes(nothing, routed, nothing, amounts.rows[rows], hidden, ffn, width, each, passes)
    return of_mean(sizes, groups, np.array(1.0), _tiled(dtype, weights))


def _tiled(dtype: str, weights: str) -> str:
    """The type whose tiles a kernel has: that of weights in fewer bits than rows."""
    return weights if DType(weights).num_bytes < DType(dtype).num_bytes else dtype


def _grouped(amounts: Amounts, rows: Index, weight_grad: bool, dtype: str, weights: str) -> GroupedSizes:
    """Sizes of single grouped products; a weight gradient sums over the rows, and its result are the matrices."""
    p = amounts.products
    at = np.searchsorted(p.owner, rows)
    groups, n = p.groups[at], p.n[at]
    routed, k = (p.k[at], p.m[at]) if weight_grad else (p.m[at], p.k[at])
    touched, padded = spread_evenly(routed, groups, _tiled(dtype, weights))
    each, matrix = DType(dtype).num_bytes, DType(weights).num_bytes
    return GroupedSizes(padded, routed, touched, n, k, each, max(each, ROW_BYTES), matrix)
