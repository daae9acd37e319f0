"""Plans of a size held against requests one by one: what they have at the limits, and how many replicas that takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....cost.serving.simulate.result import SimulatedServing
from ....cost.serving.simulate.run import Pool, Transfer, simulate, simulate_apart
from ....cost.serving.traffic.sizes import Fixed, LengthMix
from ....cost.serving.traffic.traffic import Traffic, poisson
from ....ir.errors import InfeasibleError
from ..pools import Pools, most_of
from ..server import Server, replicated
from .sizing import Confirmed, Question, SizedPlan, Sizing

# Replicas that are simulated of more that are all alike, each with its part of the load.
_REPLICAS = 8
# Requests of a simulation: so many times those in flight, within bounds; the share of answers cut off at each end.
_TIMES, _FEWEST, _MOST, _CUT = 12, 4000, 24_000, 0.15
# How much is added at a time, and how often, until the simulation meets what is asked.
_MORE, _TRIES = 1.06, 12


def confirmed(found: Sizing, most: int, only_first: bool = False) -> Sizing:
    """Return a size whose first plans were simulated; each has the replicas that its requests took to be in time.

    Requests go to the replica with the fewest in flight. Plans that no replicas make fast enough are left out; order
    and limits are those of `size`. InfeasibleError where none is left. With `only_first`, plans are left out that the
    first would come before whatever their requests took: a simulation only adds GPUs.
    """
    question = found.question
    kept: list[SizedPlan] = []
    why, num_behind = "", 0
    for choice in found.choices:
        if len(kept) + num_behind >= most:
            break
        if only_first and kept and _place(choice) >= min(map(_place, kept)):
            num_behind += 1
            continue
        try:
            held = _enough(question, choice)
        except InfeasibleError as error:
            why = str(error)
            continue
        if held.num_gpus <= question.most_gpus:
            kept.append(held)
    if not kept:
        told = why or f"their requests take more than the {question.most_gpus} GPUs that may be bought"
        raise InfeasibleError(f"no plan keeps {question.target} request by request: {told}")
    return replace(found, choices=tuple(sorted(kept, key=_place)))


def _place(choice: SizedPlan) -> tuple[int, float]:
    """Fewest GPUs first, of as many those that answer most."""
    return choice.num_gpus, -choice.most_per_s


def spared(found: Sizing, spare: int) -> Sizing:
    """Return a size whose plans have so many replicas more than their load takes, of pools as many of each."""
    return replace(found, choices=tuple(_with_spare(found.question, choice, spare) for choice in found.choices))


def _with_spare(question: Question, choice: SizedPlan, spare: int) -> SizedPlan:
    if choice.pools is None:
        num = choice.copies + spare
        server = replicated(choice.server, num * choice.shapes[0].dp)
        return replace(choice, spare=spare, most_per_s=choice.most_per_s / choice.copies * num, server=server)
    prefill, decode = (replicated(one, one.num_replicas + spare) for one in (choice.pools.prefill, choice.pools.decode))
    pools = replace(choice.pools, prefill=prefill, decode=decode)
    return replace(
        choice, spare=spare, most_per_s=most_of(pools, question.lengths, question.target), server=decode, pools=pools
    )


def _enough(question: Question, choice: SizedPlan) -> SizedPlan:
    """The plan with as many replicas as keep the limits; InfeasibleError where more do not help."""
    tried, seen = choice, seen_by(question, choice)
    for _ in range(_TRIES):
        if seen.meets(question.target):
            return replace(tried, confirmed=replace(seen, added=tried.num_gpus - choice.num_gpus))
        tried = _larger(question, tried, seen)
        seen = seen_by(question, tried)
    raise InfeasibleError(
        f"{choice.name}: {tried.name} has {question.target.labels[0]} {seen.ttft_s:.3g} s and "
        f"{question.target.labels[1]} {seen.tpot_s:.3g} s"
    )


def seen_by(question: Question, choice: SizedPlan, seed: int = 0) -> Confirmed:
    """Simulate a plan, and return what its requests have at the limits."""
    answer, target = choice.answer(question), question.target
    of = 1.0 if choice.pools is not None else min(_REPLICAS / choice.server.num_replicas, 1.0)
    in_flight = answer.metrics["concurrency"] * of
    num = int(np.clip(_TIMES * in_flight, _FEWEST, _MOST))
    prompt, output, cached = (
        int(np.max(n)) for n in (question.lengths.prompt, question.lengths.output, question.lengths.cached)
    )
    sizes = LengthMix(Fixed(prompt), Fixed(output), cached_tokens=cached)
    traffic = poisson(question.requests_per_s * of, sizes, num, seed)
    run = _run(choice.server, choice.pools, traffic).middle(_CUT)
    first, gap = target.seen(answer.found)
    return Confirmed(
        ttft_s=_at(run.ttft_s, target.ttft_share),
        tpot_s=_at(run.tpot_s[run.served.output > 1], target.tpot_share),
        num_requests=len(run.served.output),
        predicted_ttft_s=float(first),
        predicted_tpot_s=float(gap),
    )


def _run(server: Server, pools: Pools | None, traffic: Traffic) -> SimulatedServing:
    if pools is None:
        replicas = min(_REPLICAS, server.num_replicas)
        return simulate(traffic, Pool(server.times, server.engine.at_random, replicas))
    link = pools.link
    transfer = Transfer(link.bytes_per_s, link.latency_s, link.layers > 1, link.layers)
    first, then = (Pool(one.times, one.engine.at_random, one.num_replicas) for one in (pools.prefill, pools.decode))
    return simulate_apart(traffic, first, then, transfer)


def _at(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], share: float | None) -> float:
    if not len(values):
        return float("nan")
    return float(values.mean() if share is None else np.quantile(values, share))


def _larger(question: Question, choice: SizedPlan, seen: Confirmed) -> SizedPlan:
    """The plan with a few more replicas, or workers of the pool that is too slow."""
    if choice.pools is None:
        copies = _more(choice.copies)
        server = replicated(choice.server, copies * choice.shapes[0].dp)
        return replace(choice, most_per_s=choice.most_per_s / choice.copies * copies, server=server)
    prefill, decode = choice.pools.prefill, choice.pools.decode
    if seen.ttft_s > question.target.bounds[0]:
        prefill = replicated(prefill, _more(prefill.num_replicas))
    else:
        decode = replicated(decode, _more(decode.num_replicas))
    pools = replace(choice.pools, prefill=prefill, decode=decode)
    return replace(choice, most_per_s=most_of(pools, question.lengths, question.target), server=decode, pools=pools)


def _more(num: int) -> int:
    """The next number that is tried.

    >>> _more(1), _more(100)
    (2, 106)
    """
    return max(num + 1, int(num * _MORE))
