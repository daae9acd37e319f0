"""Matrix products of a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....ir.ops import OpClass
from ....ir.types import DType
from ...kernels.gemm import GemmConstants, GemmMachine, GemmSizes
from ...kernels.operands import gemm_kinds, unit_of
from ...machine.power import powered
from ...machine.system import System
from ..amounts import Amounts
from ..program import Entry, Group
from ..roofline import Pricer
from .kinds import USUAL, Rows, by_kind, first_kind


@dataclass(frozen=True, slots=True)
class GemmModel:
    """Matrix products by tiles and waves."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "gemm"

    @property
    def formula(self) -> str:
        """How its terms make up the time."""
        return "overhead + hypot(tensor, memory) + split, not below sustained, + quantise"

    def claims(self, entry: Entry) -> bool:
        """Products of two matrices."""
        return entry.kind is OpClass.MATMUL and len(entry.work.gemms) == 1

    def numbers(self, entry: Entry, system: System) -> tuple[str, ...]:
        """Peak, bandwidth, SMs and the constants of the operands' dtype."""
        dtype = _multiplied(str(entry.dtype), system)
        kind = _gemm_kind(dtype, system)
        return (
            f"chip.matmul.{unit_of(dtype)}",
            "chip.memory.hbm.bandwidth",
            "chip.num_sms",
            f"calibration.gemm.{kind}.",
        )

    def bind(self, group: Group, system: System) -> Pricer:
        """Price products, those of one dtype and one of weights at a time."""
        chip, trains = powered(system.chip), group.entries[0].trains

        def of_types(types: tuple[str, str], rows: Rows) -> Pricer:
            dtype, weights = types
            unit = unit_of(_multiplied(dtype, system))
            constants = _constants(_multiplied(dtype, system), system, trains)
            machine = GemmMachine.of(chip, unit, constants, weights if weights != dtype else None)
            return lambda amounts: machine.times(replace(_gemm_sizes(amounts, rows, dtype, weights), unit=unit))

        return by_kind([(str(e.dtype), str(e.second or e.dtype)) for e in group.entries], of_types)


def _multiplied(dtype: str, system: System) -> str:
    """The type in which products run: that of their operands, or tf32 for fp32 where the stack allows it."""
    has = system.chip.peak_flop_per_s.tf32 is not None
    return "tf32" if dtype == "fp32" and system.stack.tf32 and has else dtype


def _gemm_kind(dtype: str, system: System) -> str:
    """The dtype's own constants, those of its unit, or those of bf16."""
    return first_kind(system.kernels.gemm, *gemm_kinds(dtype), USUAL)


def _constants(dtype: str, system: System, trains: bool) -> GemmConstants:
    """The constants of a dtype; in inference without launches of casts, which are nodes of their own.

    Tables of products in low precision time the cast with the product, so that the overhead holds both launches. In
    training, where products are long, that is kept as it was fitted.
    """
    own, usual = system.kernels.gemm[_gemm_kind(dtype, system)], system.kernels.gemm[USUAL]
    return own if trains else replace(own, overhead_s=min(own.overhead_s, usual.overhead_s))


def _gemm_sizes(amounts: Amounts, rows: Rows, dtype: str, weights: str) -> GemmSizes:
    """Sizes of the products of some entries, of which each has one; what is not operands is the result."""
    p = amounts.products
    batch, m, n, k = (x[rows] for x in (p.batch, p.m, p.n, p.k))
    left, right = (np.asarray(DType(name).num_bytes) for name in (dtype, weights))
    operands = batch * (m * k * left + k * n * right)
    written = np.maximum(amounts.num_bytes[rows] - operands, 0.0) / (batch * m * n)
    return GemmSizes(m, n, k, unit_of(dtype), batch, left, right, written, np.asarray(0.0))
