"""One model type with all its parts: traced in training and inference, counted by torch on the same class, compared."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from slipstick.frontend import config_of, load_config
from slipstick.frontend.adapter import FakeWorld, faked
from slipstick.frontend.architectures import Architecture, ModelConfig, choose, speaks
from slipstick.frontend.failures import first_line
from slipstick.frontend.modalities.feeding import NO_TENSOR, OF_TOKENS, Feeds, all_feeds
from slipstick.frontend.modalities.pictures import unchecked
from slipstick.frontend.models import Config
from slipstick.frontend.small_configs import small_config
from slipstick.frontend.source_length import SOURCE
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Phase, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.types import DType

from ..coverage.counter import Counted, Counter
from ..coverage.graphs import layers_of, num_parameters
from ..foreign.measure import sum_of_outputs
from ..foreign.packages import define_torchvision_operators

AGREES = 0.005
_MISSING = re.compile(r"ImportError: .* requires the \S+ library")
WORKLOADS = ("train", "prefill")


@dataclass(frozen=True, slots=True)
class Result:
    """What came out for a type.

    Attributes:
        model_type: as transformers calls it.
        class_name: of the class that was built.
        reads: its inputs.
        layers: kinds of layers of the graph.
        parameters: ours, the module's, and those of the module that a training step gives a gradient.
        why_not: why a workload could not be traced.
        ratios: FLOPs of our graph over torch's, `forward`, `step` (forward and backward) and `inference`.
        oracle: why torch's own count could not be made.
    """

    model_type: str
    class_name: str = ""
    reads: str = ""
    layers: str = ""
    parameters: tuple[int, int, int] = (0, 0, 0)
    why_not: dict[str, str] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    oracle: str = ""

    @property
    def is_traced(self) -> bool:
        """Whether there is a graph of training and of inference."""
        return not self.why_not

    @property
    def agrees(self) -> bool:
        """Whether all was traced and counted alike, parameters exactly."""
        ours, theirs, used = self.parameters
        within = len(self.ratios) == 3 and all(abs(r - 1.0) <= AGREES for r in self.ratios.values())
        return self.is_traced and ours in (theirs, used) and within

    @property
    def not_on_tensors(self) -> str:
        """Why a type cannot be called on tensors here: a package that is not installed, an object that it takes."""
        told = [*self.why_not.values(), self.oracle] if self.why_not else []
        return next((t for t in told if _MISSING.search(t) or NO_TENSOR in t), "")

    def to_json(self) -> str:
        """Return a line of JSON."""
        return json.dumps(asdict(self))


def from_json(line: str) -> Result:
    """Read what `to_json` wrote."""
    fields = json.loads(line)
    return Result(**{**fields, "parameters": tuple(fields["parameters"])})


def model_types() -> tuple[str, ...]:
    """Return every model type for which transformers has a class without a head, in order."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return tuple(sorted(MODEL_MAPPING_NAMES))


def failed(model_type: str, why_not: str) -> list[Result]:
    """Return what is said of a type that took too long, or whose process died."""
    return [Result(model_type, why_not=dict.fromkeys(WORKLOADS, why_not), oracle=why_not)]


def measure(model_type: str) -> list[Result]:
    """Trace a small config of a type with all its parts, one picture a sequence, and compare it with torch's count."""
    torch.set_num_threads(1)
    define_torchvision_operators()
    try:
        fields = {"model_type": model_type, **small_config(model_type, is_whole=True)}
    except Exception as error:
        return failed(model_type, f"no config: {first_line(error)}")
    graphs: dict[str, Graph] = {}
    why_not: dict[str, str] = {}
    for workload in WORKLOADS:
        try:
            graphs[workload] = _graph(config_of(model_type, fields), Workload(workload))
        except SlipstickError as error:
            why_not[workload] = " ".join(str(error).split())
        except Exception as error:
            why_not[workload] = f"internal: {first_line(error)}"
    return [_compared(model_type, fields, graphs, why_not)]


def _graph(config: Config, workload: Workload) -> Graph:
    """Trace in bf16, and in fp32 a model that makes fp32 numbers of its own and so runs in that type alone."""
    try:
        return load_config(config, workload, images=1)
    except SlipstickError as error:
        if "bfloat16" not in str(error).lower():
            raise
        return load_config(config, workload, DType.FP32, images=1)


def _compared(
    model_type: str, fields: Mapping[str, object], graphs: Mapping[str, Graph], why_not: dict[str, str]
) -> Result:
    graph = graphs.get("train") or graphs.get("prefill")
    ours = num_parameters(graph) if graph is not None else 0
    layers = layers_of(graph) if graph is not None else ""
    try:
        chosen, module = _built(fields)
        name, total = chosen.model_class.__name__, sum(p.numel() for p in module.parameters())
        feeds = _recorded(all_feeds(module, Workload.PREFILL, images=1), graph)
    except Exception as error:
        return Result(model_type, layers=layers, parameters=(ours, 0, 0), why_not=why_not, oracle=first_line(error))
    try:
        theirs, used = _counted(module, feeds) if graphs else ({}, 0)
        oracle = ""
    except Exception as error:
        theirs, used, oracle = {}, 0, first_line(error)
    return Result(
        model_type, name, str(feeds), layers, (ours, total, used), why_not, dict(_ratios(graphs, theirs, feeds)), oracle
    )


def _recorded(tried: Iterator[Feeds], graph: Graph | None) -> Feeds:
    """What a graph was recorded with, as its notes say."""
    found = next(tried)
    while graph is not None and not _is_of(graph, found):
        found = next(tried)
    return found


def _is_of(graph: Graph, feeds: Feeds) -> bool:
    numbers = {b.name: b.low for b in graph.bounds if b.low == b.high}
    return str(feeds) in graph.notes and feeds.numbers.items() <= numbers.items()


def _built(fields: Mapping[str, object]) -> tuple[Architecture, nn.Module]:
    """The class that is traced, with the attention that transformers spells out."""
    from transformers import AutoConfig

    given = {name: value for name, value in json.loads(json.dumps(dict(fields))).items() if name != "model_type"}
    chosen = choose(cast(ModelConfig, AutoConfig.for_model(str(fields["model_type"]), **given)), is_whole=True)
    with torch.device("meta"):
        made = chosen.model_class._from_config(chosen.config, dtype=torch.float32, attn_implementation="eager")
    assert isinstance(made, nn.Module)
    return chosen, made


def _counted(module: nn.Module, feeds: Feeds) -> tuple[dict[str, Counted], int]:
    """Torch's own count of a step and of a forward pass, and the parameters that get a gradient."""
    known = replace(feeds, fixed=OF_TOKENS)
    given = {**known.examples(), **known.beside(known.lengths["batch"])}
    given = {n: t.float() if isinstance(t, Tensor) and t.is_floating_point() else t for n, t in given.items()}
    with _fake(module), known.working_out():
        module.train()
        with Counter() as counter, counter.watching(module):
            loss = _loss(module(**given))
            forward = counter.counted
            torch.autograd.backward(loss)
            step = counter.counted
        used = sum(p.numel() for p in module.parameters() if p.grad is not None)
        module.eval()
        with torch.no_grad(), Counter() as counter, counter.watching(module):
            module(**given, **_last(module))
            return {"forward": forward, "step": step, "inference": counter.counted}, used


def _last(module: nn.Module) -> Mapping[str, object]:
    """What makes a model that speaks return logits of the last token alone, as a prefill does."""
    takes = "logits_to_keep" in inspect.signature(type(module).forward).parameters
    return {"logits_to_keep": 1} if takes and speaks(type(module)) else {}


def _loss(out: object) -> Tensor:
    logits = getattr(out, "logits", None)
    return logits.float().sum() if isinstance(logits, Tensor) and logits.dim() == 3 else sum_of_outputs(out)


@contextmanager
def _fake(module: nn.Module) -> Iterator[None]:
    from slipstick.frontend.odd_models import decided

    world = FakeWorld(FakeTensorMode(allow_non_fake_inputs=True))
    with faked(module, world), unchecked(module), world.mode, decided(module):
        yield


def _ratios(graphs: Mapping[str, Graph], theirs: Mapping[str, Counted], feeds: Feeds) -> Iterator[tuple[str, float]]:
    asked = {"forward": ("train", (Phase.FORWARD,)), "step": ("train", (Phase.FORWARD, Phase.BACKWARD)),
             "inference": ("prefill", (Phase.FORWARD,))}  # fmt: skip
    for name, (workload, phases) in asked.items():
        if workload in graphs and name in theirs and _is_of(graphs[workload], feeds):
            ours = sum(_flops(graphs[workload], phase, feeds.lengths) for phase in phases)
            other = theirs[name].plain_flops + theirs[name].recurrent_flops
            yield name, round(ours / other, 6) if other else float(ours == 0)


def _flops(graph: Graph, phase: Phase, lengths: Mapping[str, int]) -> float:
    """FLOPs of products in one phase; what a kernel does a second time is left out."""
    seq, source = float(lengths["seq"]), float(lengths[SOURCE])
    env = {"batch": float(lengths["batch"]), "seq": seq, "kv": seq, SOURCE: source}
    found = 0.0
    for region in graph.regions:
        for node in (n for n in region.nodes if n.phase is phase):
            work = work_of(region, node)
            found += graph.counts[region.name] * float(work.tensor_flops.evaluate(env)) * work.model_share
    return found


__all__ = ["AGREES", "Result", "failed", "from_json", "measure", "model_types"]
