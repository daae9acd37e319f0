"""The models that come with the product, in the order in which they are asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....ir.ops import OpClass
from ....ir.records import dataclass
from ....ir.types import DType
from ...kernels.constants import KernelConstants
from ...kernels.gemm import GemmConstants, GemmMachine, GemmSizes
from ...kernels.operands import gemm_kinds, unit_of
from ...kernels.rowwise import RowwiseMachine, RowwiseSizes
from ...kernels.terms import KernelTimes
from ...machine.power import powered
from ...machine.system import System
from ..amounts import Amounts
from ..host import HostSide
from ..program import PricedEntry, PricingGroup, functions_of
from ..roofline import Backend, Pricer, Roofline
from .attention import AttentionModel
from .experts import ExpertsModel
from .kinds import USUAL, Rows, by_kind, first_kind
from .rowwise_kinds import DEFAULT, kind_of_op, specials_per_element

# Nodes of a graph that pass over rows.

_CLASSES = frozenset(
    {
        OpClass.NORM,
        OpClass.ELEMENTWISE,
        OpClass.CONV,
        OpClass.REDUCTION,
        OpClass.LOSS,
        OpClass.MEMORY,
        OpClass.OPTIMIZER,
    }
)


@dataclass(frozen=True, slots=True)
class RowwiseModel:
    """Elementwise chains, norms, softmax, lookups, copies, the optimizer."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "rowwise"

    @property
    def formula(self) -> str:
        """How its terms make up the time."""
        return "overhead + max(memory, issue, rows, vector, special)"

    def claims(self, entry: PricedEntry) -> bool:
        """What passes over rows and multiplies no matrices."""
        return entry.kind in _CLASSES and entry.message is None and not entry.work.gemms

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        """Bandwidth, SMs, clock, vector peak and the constants of the kind."""
        memory = ("chip.memory.hbm.bandwidth", "chip.memory.ingest.bandwidth")
        silicon = (*memory, "chip.num_sms", "chip.clock", "chip.vector.fp32")
        return (*silicon, f"calibration.rowwise.{_kind(entry, system)}.")

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        """Price all entries at once, each row under the constants of its kind."""
        specials = np.array([[specials_per_element(e.op, functions_of(e))] for e in group.entries], dtype=np.float64)
        kinds = [_kind(e, system) for e in group.entries]
        distinct = list(dict.fromkeys(kinds))
        machines = [RowwiseMachine.of(system.chip, system.kernels.rowwise[k]) for k in distinct]
        machine = RowwiseMachine.stacked(machines, [distinct.index(k) for k in kinds])

        def price(amounts: Amounts) -> KernelTimes:
            a, count = amounts, amounts.rows * amounts.cols
            return machine.times(RowwiseSizes(a.rows, a.cols, a.num_bytes, a.vector_flops, specials * count))

        return price


def _kind(entry: PricedEntry, system: System) -> str:
    """The kind of an entry: the library's own where it has one, else the usual one, else that of plain chains."""
    usual = kind_of_op(entry.op, functions_of(entry))
    return first_kind(system.kernels.rowwise, f"{system.stack.library}_{usual}", usual, DEFAULT)


# Matrix products of a graph.


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
        tiled = "hypot(tensor, ingest, memory) + split, not below sustained"
        return f"overhead + {tiled}, + quantise; or, if less, overhead + ramp + max(tensor, ingest, memory) + quantise"

    def claims(self, entry: PricedEntry) -> bool:
        """Products of two matrices."""
        return entry.kind is OpClass.MATMUL and len(entry.work.gemms) == 1

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        """Peak, bandwidth, SMs and the constants of the operands' dtype."""
        dtype = _multiplied(str(entry.dtype), system)
        kind = _gemm_kind(dtype, system)
        return (
            f"chip.matmul.{unit_of(dtype)}",
            "chip.memory.hbm.bandwidth",
            "chip.memory.ingest.bandwidth",
            "chip.num_sms",
            f"calibration.gemm.{kind}.",
        )

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        """Price products, those of one dtype and one of weights at a time."""
        trains = group.entries[0].trains
        chip = powered(system, steady=trains)

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


def built_in(kernels: KernelConstants) -> tuple[Backend, ...]:
    """Return the models whose constants there are; what none of them prices is left to the roofline."""
    models: tuple[tuple[object, Backend], ...] = (
        (kernels.gemm, GemmModel()),
        (kernels.attention, AttentionModel()),
        (kernels.experts and kernels.grouped, ExpertsModel()),
        (kernels.rowwise, RowwiseModel()),
    )
    return (HostSide(), *(model for constants, model in models if constants), Roofline())
