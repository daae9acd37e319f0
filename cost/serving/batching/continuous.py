"""Continuous batching in its steady state: requests come and go between steps, as fast as they are answered.

With `B` requests in flight in a group, each of `o = output - 1` decode steps and `f` prompt tokens to compute, in
steps of at most `Q` tokens, a request's life takes

    N = max(o + n, B (f + o) / Q)   steps, n = max(1, f / Q) of them with its own prompt, or for want of budget more
    b = 1 + (B - 1) o / N           decode beside it, and r = (B - 1) / N prefills of other requests are in each step
    TPOT = decode(b) + x r prefill  where prefill is what a step grows by, and x the engine's interference
    TTFT = n steps with its own prompt, and N - o - n of others' that it waits for

Ranks that attend apart and share experts (`times.coupled`) wait for the one with most prompts in a step: see `met`.
Where prompts run in steps of their own (`mixed` is off) nothing decodes meanwhile: `N = o + 1`, `b = B`, and prefill
is that of prompts alone. Little's law ties both to the rate: requests in flight = rate x (TTFT + o TPOT).

What prefills take and do not add between tokens, `(1 - x) o r prefill`, is spent before the first one where enough
requests are always waiting: rates are those of all the work. Of clients that wait for their answers no more than a
fifth of what prefills add between tokens, `x o r prefill`, comes before the first: the rest is spared, as long as the
rate is within what the engine can do. The fifth is that of the half of the measured closed loops of
`inference_latency` to which engines are fitted; of the other half, where x is below 0.7, it takes the median error of
TTFT from a factor of 1.7 to 1.5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....backends.machine.software.engine import Engine
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ..capacity import max_batch
from ..metrics import ServingMetrics
from ..traffic.requests import Lengths
from .steps import attention_over, budget, decode_pass_s, groups_of, host_s, prefill_s, stretch, way_in_s
from .times import Array, Curve, Nums, StepTimes

# Ranks that attend apart and share experts: what is a rank's own takes as long as on the one with most prompts.

# Prompts a step beyond which the spread around the mean is that of a normal law.
_MANY = 30.0
_TERMS = 80  # of the law of such numbers: at a mean of _MANY those beyond weigh 3e-14


def met(prompts: Array, ranks: int, shared: float, most: Array) -> Array:
    """Return the prompts a step that a request meets, of `ranks` of which each has `prompts` on average.

    `shared * mean + (1 - shared) * busiest`, where `shared` is the part of a prompt's work that all ranks share.

    >>> float(met(np.array(0.1), 8, 1.0, np.array(9.0)))
    0.1
    """
    return np.asarray(shared * prompts + (1.0 - shared) * busiest(prompts, ranks, most))


def busiest(prompts: Array, ranks: int, most: Array) -> Array:
    """Return the prompts of the busiest of `ranks` in a step, where each has `prompts` on average, at random moments.

    The mean of the greatest of so many Poisson numbers, sum over k of 1 - P(N <= k)^ranks; beyond thirty
    `r + sqrt(2 ln(ranks) r)`. No rank takes more than `most`, nor fewer than the mean.

    >>> busiest(np.array([0.1]), 1, np.array([9.0])), busiest(np.array([0.1]), 8, np.array([9.0])).round(2)
    (array([0.1]), array([0.59]))
    """
    if ranks <= 1:
        return prompts
    few = np.minimum(prompts, _MANY)
    term = np.exp(-few)
    below, found = term.copy(), np.zeros_like(few)
    for k in range(1, _TERMS):
        found += 1.0 - np.power(np.minimum(below, 1.0), ranks)
        term = term * few / k
        below = below + term
    many = prompts + np.sqrt(2.0 * np.log(ranks) * prompts)
    greatest = np.where(prompts > _MANY, many, found)
    return np.asarray(np.maximum(np.minimum(greatest, most), prompts))


# Of what prefills add between tokens, the most that comes before the first token as well: see the head of this file.
_BEFORE = 0.2
# Batches that are tried for the greatest throughput.
_TRIED = 64


@dataclass(frozen=True, slots=True, eq=False)
class Life:
    """A request from the scheduler's hand to its last token, with `batch` in flight.

    Attributes:
        alone_s: its prompt, by itself.
        first_s: until its first token, among the others.
        tpot_s: mean time of a token behind the first.
        burst_s: until the last first token of all that are in flight, had they come at the same moment.
        stall_s: the longest gap.
        total_s: until its last token.
        decodes: requests that decode in a step beside it, itself among them; of all groups.
        step_s: a step without prompts.
        prompt_s: what a prompt of another adds to a step.
        others_s: what prefills of other requests add to its own steps, on average.
        spared_s: what of the time until the first token clients that wait for their answers are spared.
    """

    alone_s: Array
    first_s: Array
    tpot_s: Array
    burst_s: Array
    stall_s: Array
    total_s: Array
    decodes: Array
    step_s: Array
    prompt_s: Array
    others_s: Array
    spared_s: Array


@dataclass(frozen=True, slots=True, eq=False)
class _Mix:
    """What a step holds on average: see the head of this file."""

    chunks: Array
    steps: Array
    decodes: Array
    prompts: Array
    chunk: Array


@dataclass(frozen=True, slots=True, eq=False)
class Prompts:
    """What requests of some lengths take whatever else is in flight: worked out once where many loads are tried.

    Attributes:
        decode_attention: mean attention of their decode steps, by sequences: see `attention_over`.
        attention_s: attention of one prompt.
        alone_s: one prompt by itself.
    """

    decode_attention: Curve | None
    attention_s: Array
    alone_s: Array

    @classmethod
    def of(cls, times: StepTimes, engine: Engine, lengths: Lengths) -> Prompts:
        """Work them out."""
        attention_s = times.chunk_attention_s(lengths.cached, lengths.prompt)
        return cls(attention_over(times, lengths), attention_s, prefill_s(times, engine, lengths))


def steady(times: StepTimes, engine: Engine, concurrency: Nums, lengths: Lengths) -> ServingMetrics:
    """Return latencies and rates with `concurrency` requests in flight: each answer is followed by a new request.

    Requests beyond what the cache holds wait; their wait is part of TTFT. InfeasibleError where no request fits.
    """
    clients = np.asarray(concurrency, dtype=np.float64)
    if (clients < 1).any():
        raise UsageError(f"concurrency={clients[clients < 1].ravel()[0]:g}; allowed: 1 or more requests in flight")
    most = max_batch(times, engine.scheduler, lengths)
    batch = np.minimum(clients, most)
    found, full = life(times, engine, batch, lengths), np.where(clients >= most, 1.0, 0.0)
    able: Nums = np.inf
    if (found.spared_s > 0).any():
        able = most_throughput(times, engine, lengths).requests_per_s
        spared = found.spared_s
        found = replace(found, first_s=found.first_s - spared, total_s=found.total_s - spared)
    way_in = way_in_s(engine.overheads, lengths)
    answers = _metrics(clients, batch, found, way_in, lengths, able)
    # The last client of a full engine may find no place before the next answer ends.
    last_s = way_in + found.burst_s + full * found.total_s / batch
    return replace(answers, ttft_high_s=np.maximum(answers.ttft_high_s, last_s))


def most_throughput(times: StepTimes, engine: Engine, lengths: Lengths) -> ServingMetrics:
    """Return the steady state of the most requests a second: enough are always waiting, and the batch is the best.

    Batches up to what the cache holds are tried. TTFT is that of a request that finds room at once.
    """
    most = max_batch(times, engine.scheduler, lengths)
    tried = np.unique(np.rint(np.geomspace(1.0, np.maximum(most.max(), 1.0), _TRIED)))
    batches = np.minimum(tried, most[..., None])
    # The same lengths with a last axis, for a quantity that is tried at several values.
    prompt, output, cached = (np.asarray(n)[..., None] for n in (lengths.prompt, lengths.output, lengths.cached))
    rates = batches / life(times, engine, batches, Lengths(prompt, output, cached, lengths.shared)).total_s
    best = np.take_along_axis(batches, rates.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    found = life(times, engine, best, lengths)
    return _metrics(best, best, found, np.zeros_like(best), lengths)


def life(times: StepTimes, engine: Engine, batch: Nums, lengths: Lengths, prompts: Prompts | None = None) -> Life:
    """Return what a request goes through with `batch` of its kind in flight on the replica, whether or not they fit.

    `prompts` is what is known of requests of these lengths.
    """
    prompts = prompts or Prompts.of(times, engine, lengths)
    groups = groups_of(times, batch)
    in_group = np.asarray(batch, dtype=np.float64) / groups
    slower, over = stretch(times, batch), engine.overheads
    mix = _mixed(engine, in_group, lengths) if engine.scheduler.mixed else _apart(engine, in_group, lengths)
    decode = decode_pass_s(times, mix.decodes, lengths, prompts.decode_attention)
    # The others of ranks that wait for one another have as many requests, and none of them is the one asked for.
    mean = mix.prompts + (1.0 - 1.0 / times.coupled) / mix.steps
    beside = met(mean, times.coupled, times.shared, budget(engine.scheduler, lengths) / lengths.fresh)
    added = _prompts_s(times, engine, mix, lengths, prompts.attention_s)
    prompt = slower * added
    others = beside * prompt
    joined = _joined_s(times, engine, mix, lengths, mix.prompts * added, mix.prompts * prompts.attention_s)
    step = slower * decode + host_s(over, mix.decodes)
    tpot = step + over.interference * others
    # What others' prompts take and do not add between tokens they add before the first: the work is done all the same.
    before = lengths.gaps * np.maximum(1.0 - over.interference, 0.0) * others
    spared = np.maximum(before - _BEFORE * over.interference * lengths.gaps * others, 0.0)
    waits = (mix.steps - lengths.gaps - mix.chunks) * (step + others) + mix.chunks * slower * joined + before
    alone = prompts.alone_s
    first = alone + slower * _beside_s(times, engine, mix, lengths, decode) + waits
    # Steps of a prompt where all have come at once and steps are full; none beside decodes if it runs apart.
    packed = np.asarray(lengths.fresh / budget(engine.scheduler, lengths) * engine.scheduler.mixed)
    burst = slower * prefill_s(times, engine, lengths, in_group) + (in_group - 1.0) * packed * step
    stall = step + slower * _longest_s(times, engine, mix, lengths)
    total, stall = first + lengths.gaps * tpot, np.maximum(stall, tpot)
    decodes = groups * mix.decodes
    own = mix.chunks * slower * joined
    return Life(alone, first, tpot, np.maximum(burst, first), stall, total, decodes, step, prompt, own, spared)


def _mixed(engine: Engine, batch: Array, lengths: Lengths) -> _Mix:
    most, fresh, gaps = budget(engine.scheduler, lengths), lengths.fresh, lengths.gaps
    chunks = np.maximum(1.0, fresh / most)
    steps = np.maximum(gaps + chunks, batch * (fresh + gaps) / most)
    prompts = (batch - 1.0) / steps
    return _Mix(chunks, steps, 1.0 + prompts * gaps, prompts, np.maximum(fresh / chunks, prompts * fresh))


def _apart(engine: Engine, batch: Array, lengths: Lengths) -> _Mix:
    most, fresh = budget(engine.scheduler, lengths), lengths.fresh
    prompts = (batch - 1.0) / (lengths.gaps + 1.0)
    chunk = np.clip(prompts * fresh, np.minimum(fresh, most), most)
    return _Mix(np.ones_like(chunk), lengths.gaps + 1.0 + 0.0 * batch, batch, prompts, chunk)


def _prompts_s(times: StepTimes, engine: Engine, mix: _Mix, lengths: Lengths, attention_s: Array) -> Array:
    """What one prompt of others adds, in steps of `chunk` tokens of prompts."""
    if engine.scheduler.mixed:
        grown = times.prompt_rest(mix.decodes + mix.chunk) - times.prompt_rest(mix.decodes)
    else:
        grown = times.prompt_rest(mix.chunk) + engine.overheads.step_s
    return np.asarray(lengths.fresh / mix.chunk * np.maximum(grown, 0.0) + attention_s)


def _joined_s(times: StepTimes, engine: Engine, mix: _Mix, lengths: Lengths, alone: Array, attention: Array) -> Array:
    """What other prefills add to a request's own chunks: beside them as much as fits, the rest in steps before.

    `alone` is what they add to steps of their own, `attention` the part of it that their attention takes.
    """
    if not engine.scheduler.mixed:
        return np.asarray(alone)
    own = lengths.fresh / mix.chunks
    beside = np.minimum(mix.chunk, np.maximum(budget(engine.scheduler, lengths) - own, 0.0))
    before = mix.decodes + own
    grown = np.maximum(times.prompt_rest(before + beside) - times.prompt_rest(before), 0.0)
    left = 1.0 - beside / mix.chunk
    return np.asarray(mix.prompts * lengths.fresh / mix.chunk * grown + attention + left * (alone - attention))


def _beside_s(times: StepTimes, engine: Engine, mix: _Mix, lengths: Lengths, decode_s: Array) -> Array:
    """What decodes of others add to the steps of a request's own prompt; nothing where it is alone."""
    if not engine.scheduler.mixed:
        return np.zeros_like(decode_s)
    chunk = lengths.fresh / mix.chunks
    both = decode_s + times.prompt_rest(mix.decodes + chunk) - times.prompt_rest(mix.decodes)
    others = np.minimum(mix.decodes - 1.0, 1.0)
    return np.asarray(others * mix.chunks * np.maximum(both - times.prompt_rest(chunk), 0.0))


def _longest_s(times: StepTimes, engine: Engine, mix: _Mix, lengths: Lengths) -> Array:
    """The most that prompts add to one step: the last chunk of a prompt, or as many prompts as fit, or were asked."""
    most = np.minimum(budget(engine.scheduler, lengths), lengths.fresh)
    tail = times.chunk_attention_s(np.maximum(lengths.prompt - most, 0.0), lengths.prompt)
    under = mix.decodes if engine.scheduler.mixed else 0.0
    base = times.prompt_rest(under) if engine.scheduler.mixed else 0.0
    added = np.maximum(times.prompt_rest(under + most) - base, 0.0) + tail
    return np.where(mix.prompts > 0, added, 0.0)


def _metrics(
    clients: Array, batch: Array, life: Life, way_in_s: Array, lengths: Lengths, able: Nums = np.inf
) -> ServingMetrics:
    rate = np.minimum(np.minimum(clients / (life.total_s + way_in_s), batch / life.total_s), able)
    waits = np.maximum(clients / rate - life.total_s - way_in_s, 0.0)
    waves = (np.ceil(clients / batch) - 1.0) * life.total_s
    ttft = way_in_s + waits + life.first_s
    shape = rate.shape
    return ServingMetrics(
        concurrency=np.broadcast_to(clients, shape),
        batch=np.broadcast_to(batch, shape),
        decodes=np.broadcast_to(life.decodes, shape),
        prompt=np.broadcast_to(np.asarray(lengths.prompt, dtype=np.float64), shape),
        output=np.broadcast_to(np.asarray(lengths.output, dtype=np.float64), shape),
        ttft_s=ttft,
        ttft_low_s=np.broadcast_to(way_in_s + life.alone_s, shape),
        ttft_high_s=np.maximum(way_in_s + life.burst_s + np.maximum(waits, waves), ttft),
        tpot_s=np.where(lengths.gaps > 0, life.tpot_s, np.nan),
        requests_per_s=rate,
        stall_s=life.stall_s,
    )
