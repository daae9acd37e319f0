"""A graph on simulated ranks against the module itself: loss, logits and every gradient, and what could not be run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from ....ir.graph import Graph
from ..call import NotComputedError
from ..layout import Layout
from ..run import TOLERANCE, Runner
from ..tensors import LayoutMismatchError, Mesh
from .double import in_double
from .subject import Answer, Subject

# Mesh axes that deal out the batch.
_BATCH_AXES = ("fsdp", "dp", "ep")

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
        """Whether everything was run and is equal."""
        return not self.broken and not self.reason and not self.missing and all(d.equal for d in self.differences)

    @property
    def worst(self) -> Difference | None:
        """The largest difference."""
        return max(self.differences, key=lambda d: d.relative, default=None)


def compare(
    subject: Subject, lowered: Graph, degrees: Mapping[str, int], batch: int, seq: int, answer: Answer | None = None
) -> Verdict:
    """Run a lowered graph with these degrees (those not named are 1) and compare it with the module.

    Stages take turns: `pp` says on how many the layers stand, and what is read across a cut must have been sent.
    """
    start = perf_counter()
    mesh = Mesh({a: degrees.get(a, 1) for a in lowered.axes if a != "pp"})
    inputs = subject.inputs(batch, seq)
    answer = answer or subject.answer(inputs)
    sizes = {**mesh.degrees, "pp": 1, "imb": 1, "batch": batch, "mbs": batch // batch_ranks(mesh), "seq": seq}
    refused = next(uneven(lowered, sizes), None)
    if refused is not None:
        return Verdict(num_ranks=len(mesh.ranks), reason=refused, time_s=perf_counter() - start)
    try:
        with in_double():
            found = Runner(Layout(lowered, mesh, sizes), subject.state, inputs, degrees.get("pp", 1)).run()
    except NotComputedError as error:
        return Verdict(num_ranks=len(mesh.ranks), reason=str(error), time_s=perf_counter() - start)
    except LayoutMismatchError as error:
        return Verdict(num_ranks=len(mesh.ranks), broken=str(error), time_s=perf_counter() - start)
    floor = _NOISE * max((float(g.abs().max()) for g in answer.grads.values()), default=0.0)
    rows = [Difference("loss", relative(found.results["result0"], answer.loss))]
    if "logits" in found.results:
        rows.append(Difference("logits", relative(found.results["logits"], answer.logits)))
    rows += [Difference(n, relative(found.grads[n], g, floor)) for n, g in answer.grads.items() if n in found.grads]
    missing = tuple(n for n, g in answer.grads.items() if n not in found.grads and bool((g != 0).any()))
    return Verdict(tuple(rows), missing, len(mesh.ranks), found.num_nodes, perf_counter() - start)


def batch_ranks(mesh: Mesh) -> int:
    """Return among how many ranks the batch is dealt out."""
    return math.prod(mesh.degrees.get(axis, 1) for axis in _BATCH_AXES)


def uneven(graph: Graph, sizes: Mapping[str, int]) -> Iterator[str]:
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
    it is compared with `floor`.
    """
    if ours.numel() != theirs.numel():
        return float("inf")
    theirs = theirs.reshape(ours.shape)
    scale = max(float(theirs.abs().max()), floor, float(torch.finfo(torch.float64).tiny))
    found = float((ours - theirs).abs().max()) / scale
    return found if found == found else float("inf")


__all__ = ["Difference", "Verdict", "batch_ranks", "compare", "relative", "uneven"]
