"""Nodes of a graph that pass over rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....ir.ops import OpClass
from ....ir.ops.tensors.normalize import NormAttrs
from ....ir.ops.tensors.pointwise import ElementwiseAttrs
from ...kernels.rowwise import RowwiseMachine, RowwiseSizes
from ...kernels.rowwise_kinds import DEFAULT, kind_of_op, specials_per_element
from ...kernels.terms import KernelTimes
from ...machine.system import System
from ..amounts import Amounts
from ..program import Entry, Group
from ..roofline import Pricer
from .kinds import first_kind

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

    def claims(self, entry: Entry) -> bool:
        """What passes over rows and multiplies no matrices."""
        return entry.kind in _CLASSES and entry.message is None and not entry.work.gemms

    def numbers(self, entry: Entry, system: System) -> tuple[str, ...]:
        """Bandwidth, SMs, clock, vector peak and the constants of the kind."""
        silicon = ("chip.memory.hbm.bandwidth", "chip.num_sms", "chip.clock", "chip.vector.fp32")
        return (*silicon, f"calibration.rowwise.{_kind(entry, system)}.")

    def bind(self, group: Group, system: System) -> Pricer:
        """Price all entries at once, each row under the constants of its kind."""
        specials = np.array([[specials_per_element(e.op, _functions(e))] for e in group.entries], dtype=np.float64)
        kinds = [_kind(e, system) for e in group.entries]
        distinct = list(dict.fromkeys(kinds))
        machines = [RowwiseMachine.of(system.chip, system.kernels.rowwise[k]) for k in distinct]
        machine = RowwiseMachine.stacked(machines, [distinct.index(k) for k in kinds])

        def price(amounts: Amounts) -> KernelTimes:
            a, count = amounts, amounts.rows * amounts.cols
            return machine.times(RowwiseSizes(a.rows, a.cols, a.num_bytes, a.vector_flops, specials * count))

        return price


def _functions(entry: Entry) -> tuple[str, ...]:
    if isinstance(entry.attrs, ElementwiseAttrs):
        return entry.attrs.fns
    return (entry.attrs.kind,) if isinstance(entry.attrs, NormAttrs) else ()


def _kind(entry: Entry, system: System) -> str:
    """The kind of an entry: the library's own where it has one, else the usual one, else that of plain chains."""
    usual = kind_of_op(entry.op, _functions(entry))
    return first_kind(system.kernels.rowwise, f"{system.stack.library}_{usual}", usual, DEFAULT)
