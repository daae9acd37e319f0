"""A module of any kind: traced in training and inference, put under plans, and counted by torch on the same module."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from slipstick.frontend.loss import returned
from slipstick.frontend.record.adapter import FakeWorld, faked
from slipstick.ir.graph import Graph, Phase

from ..markdown import by_reason, short, without_folders
from .counter import Counted, Counter
from .graphs import LENGTHS, counted
from .plans import Planned

# A ratio of FLOPs this near to one agrees.
AGREES = 0.005
WORKLOADS = ("train", "prefill")
# Each ratio with the workload and the phases that it is of.
RATIOS: Mapping[str, tuple[str, tuple[Phase, ...]]] = {
    "forward": ("train", (Phase.FORWARD,)),
    "step": ("train", (Phase.FORWARD, Phase.BACKWARD)),
    "inference": ("prefill", (Phase.FORWARD,)),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """What came out for a module.

    Attributes:
        model_type: as transformers calls it, or the package and the name.
        class_name: of the class that was built.
        layers: kinds of layers of the graph.
        parameters: ours, the module's, and those of the module that a training step gives a gradient.
        why_not: why a workload could not be traced.
        ratios: FLOPs of our graph over torch's, `forward`, `step` (forward and backward) and `inference`.
        trace_s: seconds that the recordings took.
        notes: what the module reads, and what the graphs say of how they were recorded.
        oracle: why torch's own count could not be made.
        plans: what came of the training step under the plans.
    """

    model_type: str
    class_name: str = ""
    layers: str = ""
    parameters: tuple[int, int, int] = (0, 0, 0)
    why_not: dict[str, str] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    trace_s: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    oracle: str = ""
    plans: Planned = field(default_factory=Planned)

    @property
    def is_traced(self) -> bool:
        """Whether there is a graph of training and of inference."""
        return not self.why_not

    @property
    def agrees(self) -> bool:
        """Whether all was traced and counted alike, parameters exactly."""
        ours, theirs, used = self.parameters
        within = len(self.ratios) == len(RATIOS) and all(abs(r - 1.0) <= AGREES for r in self.ratios.values())
        return self.is_traced and ours in (theirs, used) and within

    def to_json(self) -> str:
        """Return a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read what `to_json` wrote."""
        told = json.loads(line)
        plans = Planned(**told.pop("plans"))
        return cls(**{**told, "parameters": tuple(told["parameters"]), "notes": tuple(told["notes"])}, plans=plans)


def failed(name: str, why_not: str) -> list[Compared]:
    """Return what is said of a module that could not be built or took too long, or whose process died."""
    return [Compared(name, why_not=dict.fromkeys(WORKLOADS, why_not), oracle=why_not)]


def said(rows: list[Compared]) -> str:
    """Return a line of what came out."""
    (found,) = rows
    told = {**found.why_not, **({"oracle": found.oracle} if found.oracle else {}), **found.plans.why_not}
    verdict = "agrees" if found.agrees else "DIFFERS"
    return f"{verdict} {found.ratios} {found.parameters} {found.trace_s} {found.layers} {told or ''}"


def ratios(
    graphs: Mapping[str, Graph], theirs: Mapping[str, Counted], lengths: Mapping[str, int] = LENGTHS
) -> Iterator[tuple[str, float]]:
    """Yield FLOPs of our graphs over those that torch counted, at these lengths.

    Recurrences that we have as scans are left out on both sides: a loop over positions runs other products.
    """
    for name, (workload, phases) in RATIOS.items():
        if workload in graphs and name in theirs:
            ours = [counted(graphs[workload], phase, lengths) for phase in phases]
            scans = any(one.recurrent_flops for one in ours)
            own = sum(one.plain_flops if scans else one.flops for one in ours)
            whole = theirs[name].plain_flops if scans else theirs[name].flops
            yield name, round(own / whole, 6) if whole else float(own == 0)


def sum_of_outputs(out: object) -> Tensor:
    """Return the sum of all floating point tensors in what a module returned."""
    found = [t.float().sum() for t in returned(out) if t.is_floating_point()]
    return torch.stack(found).sum() if len(found) > 1 else found[0]


def count(
    module: nn.Module,
    inputs: Callable[[], Mapping[str, object]],
    loss: Callable[[object], Tensor] = sum_of_outputs,
    in_inference: Mapping[str, object] = MappingProxyType({}),
) -> tuple[dict[str, Counted], int]:
    """Let torch count a step and a forward pass on fake tensors; return that and the parameters that get a gradient.

    Frozen parameters are among the latter where they would get one if they were trained. `in_inference` is handed to
    the forward pass beside the inputs, or in place of one.
    """
    with _fake(module):
        module.train()
        with Counter() as counter, counter.watching(module):
            total = loss(module(**inputs()))
            forward = counter.counted
            torch.autograd.backward(total)
            step = counter.counted
        if any(not p.requires_grad for p in module.parameters()):
            torch.autograd.backward(loss(module.requires_grad_()(**inputs())))
        used = sum(p.numel() for p in module.parameters() if p.grad is not None)
        module.eval()
        with torch.no_grad(), Counter() as counter, counter.watching(module):
            module(**{**inputs(), **in_inference})
            return {"forward": forward, "step": step, "inference": counter.counted}, used


@contextmanager
def _fake(module: nn.Module) -> Iterator[None]:
    """Fake parameters; and no kernels that torch counts as nothing: fused attention of a layer, recurrent layers."""
    world = FakeWorld(FakeTensorMode(allow_non_fake_inputs=True))
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with faked(module, world), world.mode, torch.backends.mkldnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def cells(found: Compared) -> tuple[str, ...]:
    """Return the cells that all tables have: layers, parameters, ratios, plans and remarks."""
    numbers = (f"{found.ratios[n]:.4f}" if n in found.ratios else "-" for n in RATIOS)
    is_own = bool(found.oracle) and found.oracle not in found.why_not.values()
    counted = [f"not counted: {short(found.oracle)}"] if is_own else []
    told = "; ".join([*map(without_folders, found.notes), *by_reason(found.why_not), *counted, *found.plans.remarks])
    total = found.parameters[1] or found.parameters[0]
    return (found.layers or "-", f"{total:,}", *numbers, found.plans.cell, told)


HEADING = ("layers", "parameters", *RATIOS, "plans", "remarks")

__all__ = [
    "AGREES", "HEADING", "WORKLOADS", "Compared", "cells", "count", "failed", "ratios", "said", "sum_of_outputs",
]  # fmt: skip
