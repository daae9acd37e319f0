"""A case traced in training and inference, counted by torch on the same module, and compared."""

from __future__ import annotations

from slipstick.frontend.module import trace
from slipstick.frontend.record.failures import first_line
from slipstick.ir.graph import Graph, Workload

from ..coverage.compared import WORKLOADS, Compared, count, failed, ratios, sum_of_outputs
from ..coverage.counter import Counted
from ..coverage.graphs import traced
from .case import Case
from .packages import cases, define_torchvision_operators


def measure(title: str) -> list[Compared]:
    """Trace and count the case of this title."""
    return [measured(next(c for c in cases() if c.title == title))]


def measured(case: Case) -> Compared:
    """Build a module, trace it in both workloads, let torch count it, compare."""
    define_torchvision_operators()
    try:
        module = case.build()
    except Exception as error:
        return failed(case.title, f"not built: {first_line(error)}")[0]

    def trace_case(workload: Workload) -> Graph:
        inputs, dynamic = case.inputs(module)
        return trace(module, inputs, dynamic, workload, loss=sum_of_outputs if workload is Workload.TRAIN else None)

    found, oracle = traced(trace_case, WORKLOADS), ""
    theirs: dict[str, Counted] = {}
    used = 0
    try:
        theirs, used = count(module, lambda: case.inputs(module)[0])
    except Exception as error:
        oracle = first_line(error)
    return Compared(
        model_type=case.title,
        layers=found.layers,
        parameters=(found.num_parameters, sum(p.numel() for p in module.parameters()), used),
        why_not=found.why_not,
        ratios=dict(ratios(found.graphs, theirs)),
        trace_s=found.trace_s,
        notes=tuple(dict.fromkeys(note for graph in found.graphs.values() for note in graph.notes)),
        oracle=oracle,
        plans=found.plans,
    )


__all__ = ["measure", "measured"]
