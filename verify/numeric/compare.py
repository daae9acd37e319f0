"""A graph on simulated ranks against the module itself, in float64: loss, logits and every gradient."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...frontend.fold.blocks import Identity
from ...frontend.fold.trace import trace
from ...frontend.huggingface.configs.architectures import choose
from ...frontend.huggingface.configs.building import build_noted, config_object
from ...frontend.huggingface.configs.models import Config
from ...frontend.huggingface.recording import hints_on
from ...frontend.loss import returned_tensor
from ...frontend.record.preserve import FunctionMode
from ...ir.graph import Graph, Workload
from ...ir.records import dataclass
from ...ir.types import DType
from .call import LayoutMismatchError, Mesh, NotComputedError
from .layout import LocalSizes
from .run import TOLERANCE, Runner

_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)


class Double(FunctionMode):
    """Turns every mention of a narrower floating type in a call into float64, so that nothing is rounded on the way."""

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run the call with the types replaced."""
        if func in _CASTS:
            (given, *_) = args
            assert isinstance(given, Tensor)
            return given.double()
        return func(*map(_widened, args), **{name: _widened(value) for name, value in kwargs.items()})


def _widened(given: object) -> object:
    return torch.float64 if isinstance(given, torch.dtype) and given in _NARROW else given


@contextmanager
def in_double() -> Iterator[None]:
    """Run under this: numbers are float64, made with one thread, for small tensors are slower with many."""
    threads, kind = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    try:
        with Double():
            yield
    finally:
        torch.set_default_dtype(kind)
        torch.set_num_threads(threads)


# How far weights are moved from where the library initialises them: norms of one stay near one, nothing stays zero.
_SPREAD = 0.15


@dataclass(frozen=True)
class ModuleResults:
    """What the module itself computes: loss, logits, and the gradient of each parameter that has one."""

    loss: Tensor
    logits: Tensor | None
    grads: Mapping[str, Tensor]


@dataclass(frozen=True)
class ComparedModule:
    """A module with weights, and the graph that was recorded of it anew, with what each node computes."""

    name: str
    module: nn.Module
    graph: Graph
    vocabulary: int

    @property
    def state(self) -> Mapping[str, Tensor]:
        """Parameters and buffers by every name that they have."""
        parameters = self.module.named_parameters(remove_duplicate=False)
        buffers = self.module.named_buffers(remove_duplicate=False)
        return {n: t.detach() for n, t in (*parameters, *buffers)}

    def inputs(self, batch: int, seq: int) -> Mapping[str, Tensor]:
        """Return tokens and labels, the same ones each time."""
        made = torch.Generator().manual_seed(7)
        ids, labels = (torch.randint(3, self.vocabulary, (batch, seq), generator=made) for _ in range(2))
        return {"input_ids": ids, "labels": labels}

    def answer(self, inputs: Mapping[str, Tensor]) -> ModuleResults:
        """Run the module forward and backward."""
        labels = inputs["labels"]
        with in_double():
            self.module.zero_grad(set_to_none=True)
            logits = returned_tensor(self.module(input_ids=inputs["input_ids"], use_cache=False), "logits")
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
            torch.autograd.backward(loss)
        grads = {n: p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        return ModuleResults(loss.detach(), logits.detach(), grads)


def subject_of(config: Config, workload: Workload = Workload.TRAIN) -> ComparedModule:
    """Build the model of a config twice: fake, to record it, and real, with seeded weights."""
    built = build_noted(config.text, DType.BF16)
    identity = Identity(config.name, workload, DType.BF16, hints=hints_on(built.module))
    graph = trace(built.module, identity, is_transformers=True)
    module = _real(config, workload)
    # The number of tokens that a model knows; one that also sees or hears says it of its text part.
    said: object = module.config
    found = getattr(said, "vocab_size", 0) or getattr(getattr(said, "text_config", None), "vocab_size", 0)
    return ComparedModule(config.name, module, graph, int(found))


def _real(config: Config, workload: Workload) -> nn.Module:
    fields: dict[str, object] = json.loads(config.text)
    model_type = str(fields.pop("model_type"))
    chosen = choose(config_object(model_type, fields))
    torch.manual_seed(0)
    options = {"dtype": torch.float64, "attn_implementation": "eager"}
    settable = getattr(chosen.model_class, "_can_set_experts_implementation", None)
    options |= {"experts_implementation": "eager"} if settable is not None and settable() else {}
    with in_double():
        module = chosen.model_class._from_config(chosen.config, **options)
    assert isinstance(module, nn.Module)
    return with_random_weights(module, workload)


def with_random_weights(module: nn.Module, workload: Workload) -> nn.Module:
    """Return the module in float64, its weights moved from where it initialises them: seeded."""
    module = module.double().train(workload is Workload.TRAIN)
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=made, dtype=torch.float64) * _SPREAD)
    return module


# Mesh axes that deal out the batch.
BATCH_AXES = ("fsdp", "dp", "ep")

# What is smaller than so much of the largest gradient is compared with that: rounding is of the size of what is added.
_NOISE = 1e-6


@dataclass(frozen=True)
class Difference:
    """One tensor of the graph against the module's: the largest difference, relative to the largest entry."""

    what: str
    relative: float

    @property
    def equal(self) -> bool:
        """Whether the two are one but for rounding."""
        return self.relative <= TOLERANCE


@dataclass(frozen=True)
class Verdict:
    """What a comparison found. `broken` says why the graph is no program of its ranks, `reason` why it was not run."""

    differences: tuple[Difference, ...] = ()
    missing: tuple[str, ...] = ()
    num_ranks: int = 0
    num_nodes: int = 0
    time_s: float = 0.0
    broken: str = ""
    reason: str = ""

    @property
    def equal(self) -> bool:
        """Whether everything was run and is equal; what compared nothing is not."""
        refused = self.broken or self.reason or self.missing or not self.differences
        return not refused and all(d.equal for d in self.differences)

    @property
    def worst(self) -> Difference | None:
        """The largest difference."""
        return max(self.differences, key=lambda d: d.relative, default=None)


def compare(
    subject: ComparedModule,
    lowered: Graph,
    degrees: Mapping[str, int],
    batch: int,
    seq: int,
    answer: ModuleResults | None = None,
) -> Verdict:
    """Run a lowered graph with these degrees (those not named are 1) and compare it with the module.

    Stages take turns: `pp` says on how many the layers stand, and what is read across a cut must have been sent.
    """
    inputs = subject.inputs(batch, seq)
    theirs = answer or subject.answer(inputs)

    def run(layout: LocalSizes) -> Verdict:
        found = Runner(layout, subject.state, inputs, degrees.get("pp", 1)).run()
        floor = _NOISE * max((float(g.abs().max()) for g in theirs.grads.values()), default=0.0)
        rows = [Difference("loss", relative(found.results["result0"], theirs.loss))]
        if "logits" in found.results and theirs.logits is not None:
            rows.append(Difference("logits", relative(found.results["logits"], theirs.logits)))
        rows += [Difference(n, relative(found.grads[n], g, floor)) for n, g in theirs.grads.items() if n in found.grads]
        missing = tuple(n for n, g in theirs.grads.items() if n not in found.grads and bool((g != 0).any()))
        return Verdict(tuple(rows), missing, num_nodes=found.num_nodes)

    return judged(lowered, degrees, {"batch": batch, "seq": seq}, run)


def judged(
    lowered: Graph, degrees: Mapping[str, int], lengths: Mapping[str, int], run: Callable[[LocalSizes], Verdict]
) -> Verdict:
    """Return what a run on simulated ranks finds, or why there is none, with the ranks and the time that it took."""
    start = perf_counter()
    mesh = Mesh({a: degrees.get(a, 1) for a in lowered.axes if a != "pp"})
    batch_ranks = math.prod(mesh.degrees.get(axis, 1) for axis in BATCH_AXES)
    sizes = {**mesh.degrees, "pp": 1, "imb": 1, **lengths, "mbs": lengths["batch"] // batch_ranks}
    try:
        with in_double():
            refused = next(_uneven(lowered, sizes), "")
            found = Verdict(reason=refused) if refused else run(LocalSizes(lowered, mesh, sizes))
    except NotComputedError as error:
        found = Verdict(reason=str(error))
    except LayoutMismatchError as error:
        found = Verdict(broken=str(error))
    except (RuntimeError, LookupError, TypeError, ValueError, AssertionError) as error:
        found = Verdict(reason=f"the run on simulated ranks failed: {type(error).__name__}: {error}")
    return replace(found, num_ranks=len(mesh.ranks), time_s=perf_counter() - start)


def _uneven(graph: Graph, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield what these degrees do not divide and must: no plan with them is legal."""
    numbers = {name: float(n) for name, n in sizes.items()}
    for c in graph.constraints:
        size = c.dim if isinstance(c.dim, int) else round(float(c.dim.evaluate(numbers)))
        degree = math.prod(sizes.get(a, 1) for a in c.axes)
        if size % degree and not (c.copied and degree % size == 0):
            yield f"{c.axis} = {degree} does not divide {size} ({c.where})"


def relative(ours: Tensor, theirs: Tensor, floor: float = 0.0) -> float:
    """Return the largest difference over the largest entry; infinite where shapes differ or one is no number.

    A gradient that is nothing but rounding (of a bias of keys, which a softmax does not see) has no size of its own:
    it is compared with `floor`. NotComputedError where the module itself gives inf or nan and the graph another
    entry there, or where it gives nothing else.
    """
    if ours.numel() != theirs.numel():
        return float("inf")
    theirs = theirs.reshape(ours.shape)
    if not (finite := theirs.isfinite()).all():
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        if not finite.any() or not same[~finite].all():
            raise NotComputedError("the module itself gives inf or nan; not judged")
        ours, theirs = ours[finite], theirs[finite]
    scale = max(float(theirs.abs().max()), floor, float(torch.finfo(torch.float64).tiny))
    found = float((ours - theirs).abs().max()) / scale
    return found if found == found else float("inf")
