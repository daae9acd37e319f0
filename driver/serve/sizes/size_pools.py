"""Sizes of pools: the fewest workers of prompts and of answers for a rate, over pairs of shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from ....cost.serving.disaggregated import Pool
from ....cost.serving.split import fewest_workers
from ....ir.errors import InfeasibleError, UsageError
from ..load import Load
from ..pools import Pools, link_of, most_of
from ..serve_pools import serve_pools
from ..server import Server, replicated
from .shapes import Shape
from .sizing import Choice, Missed, Question

# Shares of the time that workers may be busy, tried in turn until queues leave the target.
_BUSY = (0.95, 0.85, 0.7, 0.5)
# Pairs of shapes, those of fewest devices, that are looked at more closely.
_PAIRS = 6
# Prompts that a prefill worker runs at once, at most.
_PROMPTS = 8


@dataclass(frozen=True, slots=True)
class Tried:
    """A shape and a server of it, whose steps are priced."""

    shape: Shape
    server: Server


def pool_choices(question: Question, servers: Mapping[Shape, Tried]) -> list[Choice | Missed]:
    """Return the fewest workers for pairs of shapes; stages only where nothing else holds the model."""
    plain = [one for one in servers.values() if one.shape.dp == 1]
    short = [one for one in plain if one.shape.pp == 1] or plain
    pairs = [(first, then, _split(question, first, then, _BUSY[0])) for first, then in product(short, short)]
    small = sorted(((f, t, pools) for f, t, pools in pairs if pools is not None), key=lambda pair: pair[2].num_gpus)
    found = (_pair(question, first, then) for first, then, _ in small[:_PAIRS])
    return [one for one in found if one is not None]


def _pair(question: Question, first: Tried, then: Tried) -> Choice | None:
    """The fewest workers of two shapes whose queues leave the target; None where none do."""
    for busiest in _BUSY:
        pools = _split(question, first, then, busiest)
        if pools is None:
            return None
        answer = serve_pools(pools, question.lengths, Load(requests_per_s=question.requests_per_s))
        if bool(question.target.met_by(answer.found)):
            workers = pools.prefill.num_replicas, pools.decode.num_replicas
            name = f"{workers[0]} x ({first.shape}) prompts + {workers[1]} x ({then.shape}) answers"
            return Choice(name, pools.num_gpus, most_of(pools, question.lengths), pools.decode, pools)
    return None


def _split(question: Question, first: Tried, then: Tried, busiest: float) -> Pools | None:
    """Pools whose workers are busy for a share of the time at most; None where one request misses the target."""
    system = first.server.system
    link = link_of(system, first.shape.num_gpus + then.shape.num_gpus)
    try:
        split = fewest_workers(
            question.requests_per_s, _worker(first, _PROMPTS), _worker(then, 0), link, question.lengths,
            question.target, busiest,
        )  # fmt: skip
    except (InfeasibleError, UsageError):
        return None
    prefill, decode = replicated(first.server, split.prefill.workers), replicated(then.server, split.decode.workers)
    return Pools(prefill, decode, link_of(system, split.gpus), split.prefill.batch)


def _worker(tried: Tried, batch: int) -> Pool:
    server = tried.server
    return Pool(times=server.times, engine=server.engine, workers=1, gpus=tried.shape.num_gpus, batch=batch)
