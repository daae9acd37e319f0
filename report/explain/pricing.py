"""How each op of a traced graph is priced on a machine: by which model, with which constants, how well checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ...backends.machine.system import System
from ...backends.pricing.binding import bind
from ...backends.pricing.program import PricedEntry, compile_graph
from ...backends.pricing.roofline import Backend
from ...ir.graph import Graph, Node, Workload
from ...ir.ops import op_def
from ...ir.ops.unpriced import UnpricedAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..accuracy import RowAccuracy
from ..catalogue.contents import Amount, amount_of
from .trust import accuracy_of_kernel, kinds_of

# What stands for a model where an operator has no rule, and where an op is no kernel.
BYTES_ALONE, NO_KERNEL = "bytes alone", "no kernel"


@dataclass(frozen=True, slots=True)
class PricedOp:
    """The calls of one op that are priced alike.

    Attributes:
        op: the op; of an operator without a rule, the name that its source calls it by.
        kind: its class.
        model: what prices it: `gemm`, `attention`, `experts`, `rowwise`, `roofline`, bytes alone, or no kernel at all.
        constants: the kinds of kernels whose constants it has: `silu_mul`.
        accuracy: how near such kernels came to measurements; None where nothing was measured.
        amount: what the calls do together.
        time_s: how long they take one by one on one device, nothing fused.
    """

    op: str
    kind: str
    model: str
    constants: tuple[str, ...]
    accuracy: RowAccuracy | None
    amount: Amount
    time_s: float


def priced_ops(graph: Graph, system: System, sizes: Mapping[str, Num]) -> tuple[PricedOp, ...]:
    """Say how every op of a traced graph is priced on a machine; those that take longest come first."""
    kernels = {(e.region, e.key): (e, model, s) for e, model, s in _kernels(graph, system, sizes)}
    found: dict[tuple[str, str], PricedOp] = {}
    for region in graph.regions:
        for node in region.nodes:
            kernel = kernels.get((region.name, node.key))
            row = _row(graph, node, amount_of(graph, region, node, sizes), kernel, system)
            key = (row.op, row.model)
            found[key] = _joined(found[key], row) if key in found else row
    return tuple(sorted(found.values(), key=lambda row: (-row.time_s, -row.amount.num_bytes, row.op)))


def _kernels(graph: Graph, system: System, sizes: Mapping[str, Num]) -> Iterator[tuple[PricedEntry, Backend, float]]:
    """Every node that is a kernel, what prices it, and the seconds of all its runs."""
    env = {name: np.array([float(size)]) for name, size in sizes.items()}
    for table in bind(compile_graph(graph), system).tables:
        values = table.source.exprs.evaluate(env, 1)
        for kernels in table.kernels:
            group, distinct, row = kernels.merged.group, kernels.merged.distinct, kernels.merged.row
            times = kernels.price(distinct.amounts_in(values[kernels.rows])).time_s * kernels.factors
            each = times[:, 0] if row is None else times[row, 0]
            for entry, time_s in zip(group.entries, each, strict=True):
                yield entry, kernels.backend, float(time_s) * entry.count


def _row(
    graph: Graph, node: Node, amount: Amount, kernel: tuple[PricedEntry, Backend, float] | None, system: System
) -> PricedOp:
    kind = op_def(node.op).kind
    if kernel is None:
        return PricedOp(node.op, str(kind), NO_KERNEL, (), None, amount, 0.0)
    entry, backend, time_s = kernel
    if isinstance(node.attrs, UnpricedAttrs):
        return PricedOp(node.attrs.name, str(kind), BYTES_ALONE, (), None, amount, time_s)
    decode = graph.workload is Workload.DECODE
    constants = tuple(kind for kinds in kinds_of(entry, backend, system, decode).values() for kind in kinds)
    accuracy = accuracy_of_kernel(entry, backend, system, decode)
    return PricedOp(node.op, str(kind), backend.name, constants, accuracy, amount, time_s)


def _joined(a: PricedOp, b: PricedOp) -> PricedOp:
    """Calls of one op and model together; of two accuracies the one of the calls that take longer."""
    accuracy = a.accuracy if a.time_s >= b.time_s and a.accuracy is not None else b.accuracy or a.accuracy
    return replace(
        a,
        constants=tuple(dict.fromkeys((*a.constants, *b.constants))),
        accuracy=accuracy,
        amount=a.amount + b.amount,
        time_s=a.time_s + b.time_s,
    )
