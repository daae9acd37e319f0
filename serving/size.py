"""The fewest devices that answer so many requests a second within given latencies, and the plan that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from ..backends.engine import Engine
from ..backends.system import System
from ..cost.serving.continuous import most_throughput, steady
from ..cost.serving.metrics import ServingMetrics
from ..cost.serving.open_loop import at_rate
from ..cost.serving.requests import Lengths
from ..ir.errors import InfeasibleError, NotBuiltError, PlanError, UsageError
from ..ir.plan import Plan
from ..ir.units import format_time
from .answer import ServeEstimate
from .load import Load
from .server import Server, serve
from .shapes import Shape
from .tables import Served
from .target import Target, latencies_text

# Shares of the greatest rate that are looked at; the last is short of it, for at it the queue has no end.
_SHARES = np.concatenate([np.geomspace(1e-3, 0.5, 16), np.linspace(0.55, 0.99, 45)])
# Graphs of a shape and its plan with one replica; PlanError or NotBuiltError where there is none.
Lower = Callable[[Shape], tuple[Served, Plan]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be answered.

    Attributes:
        requests_per_s: that come, at random.
        target: latencies they may have, as means.
        lengths: of each of them.
        engine: what serves.
        most_gpus: devices that may be bought.
    """

    requests_per_s: float
    target: Target
    lengths: Lengths
    engine: Engine
    most_gpus: int = 10**6

    def __post_init__(self) -> None:
        """UsageError for no requests."""
        if not 0 < self.requests_per_s < float("inf"):
            raise UsageError(f"target of {self.requests_per_s:g} requests/s; allowed: more than 0")


@dataclass(frozen=True, slots=True)
class Choice:
    """A shape that answers everything.

    Attributes:
        shape: of what is bought.
        server: as many as it takes of it.
        found: latencies at the rate that each replica gets.
        copies: how many are bought.
        most_per_s: requests that all of them answer within the target.
    """

    shape: Shape
    server: Server
    found: ServingMetrics
    copies: int
    most_per_s: float

    @property
    def num_gpus(self) -> int:
        """Devices of all copies."""
        return self.copies * self.shape.num_gpus


@dataclass(frozen=True, slots=True)
class Missed:
    """A shape that does not, and the least latencies that one request alone has on it; None where it does not fit."""

    shape: Shape
    why: str
    alone: ServingMetrics | None = None


@dataclass(frozen=True, slots=True)
class Sizing:
    """What was found: the choices, fewest devices first, and what misses the target."""

    question: Question
    choices: tuple[Choice, ...]
    missed: tuple[Missed, ...]

    def answers(self, most: int) -> Iterator[ServeEstimate]:
        """Yield the whole answers of the first choices."""
        load = Load(requests_per_s=self.question.requests_per_s)
        return (serve(choice.server, self.question.lengths, load) for choice in self.choices[:most])


def size(question: Question, system: System, shapes: Iterable[Shape], lowered: Lower) -> Sizing:
    """Try shapes; fewest devices first, of equal ones those with the most room left.

    InfeasibleError where none meets the target, with the nearest that can be had.
    """
    tried = [_tried(question, system, shape, lowered) for shape in shapes]
    choices = sorted((c for c in tried if isinstance(c, Choice)), key=lambda c: (c.num_gpus, -c.most_per_s))
    missed = tuple(m for m in tried if isinstance(m, Missed))
    affordable = tuple(c for c in choices if c.num_gpus <= question.most_gpus)
    if not affordable:
        raise InfeasibleError(_nearest(question, choices, missed))
    return Sizing(question, affordable, missed)


def _tried(question: Question, system: System, shape: Shape, lowered: Lower) -> Choice | Missed:
    try:
        served, plan = lowered(shape)
        longest = int(np.max(question.lengths.total))
        server = Server.of(served, system, plan, question.engine, longest)
        return _choice(question, server, shape)
    except (PlanError, NotBuiltError, InfeasibleError) as error:
        return Missed(shape, str(error))


def _choice(question: Question, server: Server, shape: Shape) -> Choice | Missed:
    """The greatest rate of a replica within the target says how many it takes."""
    lengths, engine = question.lengths, server.engine
    most = float(most_throughput(server.times, engine, lengths).requests_per_s)
    rates = most * _SHARES
    # Far below what it can answer a request is alone.
    found = at_rate(server.times, engine, rates, lengths)
    good = question.target.meets(found)
    if not good[0]:
        return Missed(shape, "", steady(server.times, engine, 1.0, lengths))
    last = len(rates) - 1 if good.all() else int(np.argmin(good)) - 1
    best = _refined(question, server, rates[last], rates[min(last + 1, len(rates) - 1)])
    copies = ceil(question.requests_per_s / (best * shape.dp) * (1.0 - 1e-9))
    each = question.requests_per_s / (copies * shape.dp)
    plan = replace(
        server.plan, dp=copies * shape.dp, num_gpus=copies * shape.num_gpus,
        global_batch=server.plan.micro_batch * copies * shape.dp,
    )  # fmt: skip
    bought = replace(server, plan=plan)
    return Choice(shape, bought, at_rate(server.times, engine, each, lengths), copies, best * copies * shape.dp)


def _refined(question: Question, server: Server, low: float, high: float) -> float:
    """The greatest rate between two that still meets the target."""
    rates = np.linspace(low, high, 33)
    good = question.target.meets(at_rate(server.times, server.engine, rates, question.lengths))
    return float(rates[len(rates) - 1 if good.all() else max(int(np.argmin(good)) - 1, 0)])


def _nearest(question: Question, choices: Sequence[Choice], missed: Sequence[Missed]) -> str:
    """What is asked, and what comes nearest to it."""
    if choices:
        least = choices[0]
        return (
            f"{question.requests_per_s:g} requests/s with {question.target or 'any latency'} take {least.num_gpus} "
            f"GPUs, {least.copies} x ({least.shape}), and {question.most_gpus} may be bought"
        )
    alone = [(m.shape, m.alone) for m in missed if m.alone is not None]
    if not alone:
        return "no shape holds the model and one request: " + "; ".join(f"{m.shape}: {m.why}" for m in missed[-2:])
    return "; ".join(_shortfalls(question.target, alone))


def _shortfalls(target: Target, alone: Sequence[tuple[Shape, ServingMetrics]]) -> Iterator[str]:
    """Each latency that no shape meets; else that no shape meets both."""
    told = False
    for name, asked, field in (("TTFT", target.ttft_s, "ttft_s"), ("TPOT", target.tpot_s, "tpot_s")):
        if asked is None:
            continue
        shape, least = min(((s, float(getattr(m, field))) for s, m in alone), key=lambda pair: pair[1])
        if least > asked:
            told = True
            own = f"the least is {format_time(least)} with {shape}, one request alone"
            yield f"{name} {format_time(asked)} asked; {own}"
    if not told:
        first = min(alone, key=lambda pair: float(pair[1].ttft_s))
        step = min(alone, key=lambda pair: float(pair[1].tpot_s))
        yield (
            f"{target} asked, and no shape has both: {first[0]} has {latencies_text(first[1])}, {step[0]} "
            f"{latencies_text(step[1])}, one request alone"
        )
