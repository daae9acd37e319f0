"""The fewest devices that answer so many requests a second within given latencies, and the plan that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from ....backends.machine.system import System
from ....cost.serving.batching.continuous import most_throughput, steady
from ....cost.serving.batching.open_loop import at_rate
from ....cost.serving.capacity import max_batch
from ....cost.serving.disaggregated import WorkerGroup
from ....cost.serving.metrics import ServingMetrics
from ....cost.serving.slo import SLO, num_for, tails_of
from ....cost.serving.split import fewest_workers
from ....ir.errors import InfeasibleError, NotBuiltError, PlanError, UsageError
from ....ir.records import dataclass
from ....ir.text.stages import stage
from ....ir.units import format_time
from ..load import Load, latencies_text
from ..pools import Pools, link_of, most_of
from ..serve_pools import serve_pools
from ..server import Server, replicated
from .shapes import ReplicaShape
from .sizing import Lower, Missed, Question, SizedPlan, Sizing

# Sizes of pools: the fewest workers of prompts and of answers for a rate, over pairs of shapes.

# Shares of the time that workers may be busy, tried in turn until queues leave the target.
_BUSY = (0.95, 0.85, 0.7, 0.5)
# Pairs of shapes, those of fewest devices, that are looked at more closely.
_PAIRS = 6
# Most prompts per step of a prefill worker.
_PROMPTS = 8


# What puts percentiles beside the means of a replica.
Tails = Callable[[ServingMetrics], ServingMetrics]


@dataclass(frozen=True, slots=True)
class PricedShape:
    """A shape and a server of it, whose steps are priced."""

    shape: ReplicaShape
    server: Server


def pool_choices(question: Question, servers: Mapping[ReplicaShape, PricedShape]) -> list[SizedPlan | Missed]:
    """Return the fewest workers for pairs of shapes; stages only where nothing else holds the model."""
    plain = [one for one in servers.values() if one.shape.dp == 1]
    short = [one for one in plain if one.shape.pp == 1] or plain
    pairs = [(first, then, _split(question, first, then, _BUSY[0])) for first, then in product(short, short)]
    small = sorted(((f, t, pools) for f, t, pools in pairs if pools is not None), key=lambda pair: pair[2].num_gpus)
    found = (_pair(question, first, then) for first, then, _ in small[:_PAIRS])
    return [one for one in found if one is not None]


def _pair(question: Question, first: PricedShape, then: PricedShape) -> SizedPlan | None:
    """The fewest workers of two shapes whose queues leave the target; None where none do."""
    for busiest in _BUSY:
        pools = _split(question, first, then, busiest)
        if pools is None:
            return None
        load = Load(requests_per_s=question.requests_per_s)
        answer = serve_pools(pools, question.lengths, load, question.target)
        if bool(question.target.met_by(answer.found)):
            return SizedPlan(
                (first.shape, then.shape), most_of(pools, question.lengths, question.target), pools.decode, pools
            )
    return None


def _split(question: Question, first: PricedShape, then: PricedShape, busiest: float) -> Pools | None:
    """Pools whose workers are busy for a share of the time at most; None where one request misses the target."""
    system = first.server.system
    link = link_of(system, first.shape.num_gpus + then.shape.num_gpus)
    try:
        split = fewest_workers(
            question.requests_per_s,
            _worker(first, _PROMPTS),
            _worker(then, 0),
            link,
            question.lengths,
            question.target,
            busiest,
        )
    except (InfeasibleError, UsageError):
        return None
    prefill, decode = replicated(first.server, split.prefill.workers), replicated(then.server, split.decode.workers)
    return Pools(prefill, decode, link_of(system, split.gpus), split.prefill.batch)


def _worker(tried: PricedShape, batch: int) -> WorkerGroup:
    server = tried.server
    return WorkerGroup(times=server.times, engine=server.engine, workers=1, gpus=tried.shape.num_gpus, batch=batch)


# Shares of the greatest rate that are looked at; the last is short of it, for at it the queue has no end.
_SHARES = np.concatenate([np.geomspace(1e-3, 0.5, 16), np.linspace(0.55, 0.99, 45)])


def size(
    question: Question, system: System, shapes: Iterable[ReplicaShape], lowered: Lower, disagg: str = "auto"
) -> Sizing:
    """Try shapes; fewest devices first, of equal ones those with the most room left.

    Replicas do both phases, pools one each (`disagg` is `on`), or both are tried (`auto`).
    InfeasibleError where none meets the target, with the nearest that can be had.
    """
    with stage(f"steps of all shapes on {system.name}"):
        tried = [_tried(question, system, shape, lowered) for shape in shapes]
    servers = {server.shape: server for server in tried if isinstance(server, PricedShape)}
    found: list[SizedPlan | Missed] = []
    for num, one in enumerate(servers.values() if disagg != "on" else (), 1):
        with stage(f"rates of {one.shape} on {system.name}, {num} of {len(servers)}"):
            found.append(_choice(question, one))
    if disagg != "off":
        with stage(f"disaggregated pools on {system.name}"):
            found += pool_choices(question, servers)
    choices = sorted((c for c in found if isinstance(c, SizedPlan)), key=lambda c: (c.num_gpus, -c.most_per_s))
    missed = tuple(m for m in (*tried, *found) if isinstance(m, Missed))
    missed += tuple(map(_alone(question), servers.values())) if not choices and disagg == "on" else ()
    affordable = tuple(c for c in choices if c.num_gpus <= question.most_gpus)
    if not affordable:
        raise InfeasibleError(_nearest(question, choices, missed))
    return Sizing(question, affordable, missed)


def _tried(question: Question, system: System, shape: ReplicaShape, lowered: Lower) -> PricedShape | Missed:
    try:
        served, plan = lowered(shape)
        longest = int(np.max(question.lengths.total))
        server = replace(Server.of(served, system, plan, question.engine, longest), convention=question.convention)
        max_batch(server.times, server.engine.scheduler, question.lengths)
        return PricedShape(shape, server)
    except (PlanError, NotBuiltError, InfeasibleError) as error:
        return Missed(shape, str(error))


def _choice(question: Question, tried: PricedShape) -> SizedPlan | Missed:
    """The greatest rate of a replica within the target says how many it takes."""
    shape, server, lengths = tried.shape, tried.server, question.lengths
    engine = server.engine
    most = float(most_throughput(server.times, engine, lengths).requests_per_s)
    rates = most * _SHARES
    # Far below what it can answer a request is alone.
    tails = tails_of(server.times, engine, lengths, question.target)
    found = tails(at_rate(server.times, engine, rates, lengths))
    good = question.target.met_by(found)
    if not good[0]:
        return Missed(shape, "", tails(steady(server.times, engine, 1.0, lengths)))
    last = len(rates) - 1 if good.all() else int(np.argmin(good)) - 1
    best = _refined(question, server, tails, rates[last], rates[min(last + 1, len(rates) - 1)])
    copies = num_for(question.requests_per_s, best * shape.dp)
    return SizedPlan((shape,), best * copies * shape.dp, replicated(server, copies * shape.dp))


def _alone(question: Question) -> Callable[[PricedShape], Missed]:
    """What one request has on a shape by itself."""

    def alone(one: PricedShape) -> Missed:
        server, lengths = one.server, question.lengths
        tails = tails_of(server.times, server.engine, lengths, question.target)
        return Missed(one.shape, "", tails(steady(server.times, server.engine, 1.0, lengths)))

    return alone


def _refined(question: Question, server: Server, tails: Tails, low: float, high: float) -> float:
    """The greatest rate between two that still meets the target."""
    rates = np.linspace(low, high, 33)
    good = question.target.met_by(tails(at_rate(server.times, server.engine, rates, question.lengths)))
    return float(rates[len(rates) - 1 if good.all() else max(int(np.argmin(good)) - 1, 0)])


def _nearest(question: Question, choices: Sequence[SizedPlan], missed: Sequence[Missed]) -> str:
    """What is asked, and what comes nearest to it."""
    if choices:
        least = choices[0]
        return (
            f"{question.requests_per_s:g} requests/s with {question.target or 'any latency'} take {least.num_gpus} "
            f"GPUs, {least.name}, and {question.most_gpus} may be bought"
        )
    alone = [(m.shape, m.alone) for m in missed if m.alone is not None]
    if not alone:
        return "no shape holds the model and one request: " + "; ".join(f"{m.shape}: {m.why}" for m in missed[-2:])
    return "; ".join(_shortfalls(question.target, alone))


def _shortfalls(target: SLO, alone: Sequence[tuple[ReplicaShape, ServingMetrics]]) -> Iterator[str]:
    """Each latency that no shape meets; else that no shape meets both."""
    told = False
    for place, (name, asked) in enumerate(zip(target.labels, (target.ttft_s, target.tpot_s), strict=True)):
        if asked is None:
            continue
        shape, least = min(((s, float(target.seen(m)[place])) for s, m in alone), key=lambda pair: pair[1])
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
