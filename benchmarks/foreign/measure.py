"""A case traced in training and inference, counted by torch on the same module, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from slipstick.frontend.adapter import FakeWorld, faked
from slipstick.frontend.failures import first_line
from slipstick.frontend.loss import returned
from slipstick.frontend.module import trace
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Phase, Workload

from ..coverage.counter import Counted, Counter
from ..coverage.graphs import counted, layers_of, num_parameters
from ..coverage.plans import Planned, planned
from .case import Case
from .packages import cases, define_torchvision_operators

# A ratio of FLOPs this near to one agrees.
AGREES = 0.005
WORKLOADS = ("train", "prefill")


@dataclass(frozen=True, slots=True)
class Result:
    """What came out for a case.

    Attributes:
        model_type: package and name.
        layers: kinds of layers of the graph.
        parameters: ours, the module's, and those of the module that a training step gives a gradient.
        why_not: why a workload could not be traced.
        ratios: FLOPs of our graph over torch's, `forward`, `step` (forward and backward) and `inference`.
        trace_s: seconds that the recordings took.
        notes: what the graphs say of how they were recorded.
        oracle: why torch's own count could not be made.
        why_no_plan: why a training step could not be estimated under a plan, by the plan's name.
        growth: compute of a GPU with 64 replicas over that with one; 0 where there is no training step.
    """

    model_type: str
    layers: str = ""
    parameters: tuple[int, int, int] = (0, 0, 0)
    why_not: dict[str, str] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    trace_s: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    oracle: str = ""
    why_no_plan: dict[str, str] = field(default_factory=dict)
    growth: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether all was traced and counted alike, parameters exactly."""
        ours, theirs, used = self.parameters
        within = len(self.ratios) == 3 and all(abs(r - 1.0) <= AGREES for r in self.ratios.values())
        return not self.why_not and ours in (theirs, used) and within

    def to_json(self) -> str:
        """Return a line of JSON."""
        return json.dumps(asdict(self))


def from_json(line: str) -> Result:
    """Read what `to_json` wrote."""
    fields = json.loads(line)
    return Result(**{**fields, "parameters": tuple(fields["parameters"]), "notes": tuple(fields["notes"])})


def measure(title: str) -> list[Result]:
    """Trace and count the case of this title."""
    return [measured(next(c for c in cases() if c.title == title))]


def failed(title: str, why_not: str) -> list[Result]:
    """Return what is said of a case that took too long, or whose process died."""
    return [Result(title, why_not=dict.fromkeys(WORKLOADS, why_not), oracle=why_not)]


def measured(case: Case) -> Result:
    """Build a module, trace it in both workloads, let torch count it, compare."""
    define_torchvision_operators()
    try:
        module = case.build()
    except Exception as error:
        return failed(case.title, f"not built: {first_line(error)}")[0]
    graphs: dict[str, Graph] = {}
    why_not: dict[str, str] = {}
    times: dict[str, float] = {}
    for workload in WORKLOADS:
        start = perf_counter()
        try:
            graphs[workload] = _traced(case, module, Workload(workload))
        except SlipstickError as error:
            why_not[workload] = " ".join(str(error).split())
        except Exception as error:
            why_not[workload] = f"internal: {first_line(error)}"
        times[workload] = round(perf_counter() - start, 2)
    theirs, used, oracle = _counted(case, module)
    total = sum(p.numel() for p in module.parameters())
    graph = graphs.get("train") or graphs.get("prefill")
    plans = planned(graphs["train"]) if "train" in graphs else Planned()
    notes = tuple(dict.fromkeys(note for g in graphs.values() for note in g.notes))
    return Result(
        model_type=case.title,
        layers=layers_of(graph) if graph is not None else "",
        parameters=(num_parameters(graph) if graph is not None else 0, total, used),
        why_not=why_not,
        ratios=dict(_ratios(graphs, theirs)),
        trace_s=times,
        notes=notes,
        oracle=oracle,
        why_no_plan=plans.why_not,
        growth=plans.growth,
    )


def _traced(case: Case, module: nn.Module, workload: Workload) -> Graph:
    inputs, dynamic = case.inputs(module)
    loss = sum_of_outputs if workload is Workload.TRAIN else None
    return trace(module, inputs, dynamic, workload, loss=loss)


def sum_of_outputs(out: object) -> Tensor:
    """Return the sum of all floating point tensors in what a module returned."""
    found = [t.float().sum() for t in returned(out) if t.is_floating_point()]
    return torch.stack(found).sum() if len(found) > 1 else found[0]


def _counted(case: Case, module: nn.Module) -> tuple[dict[str, Counted], int, str]:
    """Torch's own count of a step and of a forward pass, the parameters that get a gradient, or why there is none."""
    try:
        with _fake(module):
            forward, backward, used = _step(case, module.train())
            inference = _forward(case, module.eval())
    except Exception as error:
        return {}, 0, first_line(error)
    return {"forward": forward, "step": forward + backward, "inference": inference}, used, ""


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


def _step(case: Case, module: nn.Module) -> tuple[Counted, Counted, int]:
    inputs, _ = case.inputs(module)
    with Counter() as counter, counter.watching(module):
        loss = sum_of_outputs(module(**inputs))
        forward = counter.counted
        torch.autograd.backward(loss)
        used = sum(p.numel() for p in module.parameters() if p.grad is not None)
        return forward, counter.counted - forward, used


def _forward(case: Case, module: nn.Module) -> Counted:
    inputs, _ = case.inputs(module)
    with torch.no_grad(), Counter() as counter, counter.watching(module):
        module(**inputs)
        found: Counted = counter.counted
    return found


def _ratios(graphs: Mapping[str, Graph], theirs: Mapping[str, Counted]) -> Iterator[tuple[str, float]]:
    asked: tuple[tuple[str, str, Callable[[Graph], Counted]], ...] = (
        ("forward", "train", lambda g: counted(g, Phase.FORWARD)),
        ("step", "train", lambda g: counted(g, Phase.FORWARD) + counted(g, Phase.BACKWARD)),
        ("inference", "prefill", lambda g: counted(g, Phase.FORWARD)),
    )
    for name, workload, count in asked:
        if workload in graphs and name in theirs:
            ours, other = (c.plain_flops + c.recurrent_flops for c in (count(graphs[workload]), theirs[name]))
            yield name, round(ours / other, 6) if other else float(ours == 0)


__all__ = ["Result", "failed", "from_json", "measure", "measured", "sum_of_outputs"]
