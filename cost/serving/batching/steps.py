"""Steps of an engine from the times of their kernels: decode rounds over growing contexts, and prompts by themselves.

With pipeline stages a replica has several batches in flight, its groups. Each is a small replica of its own, whose
steps take `stretch` times as long as one pass through all stages: the slowest stage serves the groups in turn.
"""

from __future__ import annotations

import numpy as np

from ....backends.machine.software.engine import Engine, Overheads, Scheduler
from ..traffic.requests import Lengths
from .times import Array, Curve, Nums, StepTimes

# Rounds in which steps of prompts and the prompts in each are found.
_ROUNDS = 12


def groups_of(times: StepTimes, batch: Nums) -> Array:
    """Return how many groups `batch` sequences form: one a pipeline stage, each with a sequence at least."""
    return np.minimum(np.maximum(np.asarray(batch, dtype=np.float64), 1.0), float(times.groups))


def stretch(times: StepTimes, batch: Nums) -> Array:
    """Return the time between two steps of a group over that of one pass: `groups x pace`, 1 at least."""
    return np.asarray(np.maximum(1.0, groups_of(times, batch) * times.pace))


def contexts_of(lengths: Lengths) -> tuple[Array, Array]:
    """Return between which contexts the mean over a request's decode steps lies.

    Step i of the `output - 1` looks at `prompt + i` tokens. The sum over i is the area from half a token before the
    first to half a token behind the last, exact where the time is linear in the context.
    """
    start = np.asarray(lengths.prompt, dtype=np.float64) + 0.5
    return start, np.asarray(start + np.maximum(lengths.gaps, 1.0))


def attention_over(times: StepTimes, lengths: Lengths) -> Curve | None:
    """Return the mean attention of a decode step over the contexts of a request, by sequences; None for many lengths.

    What asks for it again and again is spared the mean.
    """
    start, stop = contexts_of(lengths)
    return times.decode_attention.mean_curve(start, stop) if start.ndim == stop.ndim == 0 else None


def decode_pass_s(times: StepTimes, batch: Nums, lengths: Lengths, attention: Curve | None = None) -> Array:
    """Return the mean time of one pass of `batch` sequences of a group over the contexts of a request's decode.

    `attention` is that of `attention_over`, where it is known.
    """
    each = np.maximum(np.asarray(batch, dtype=np.float64), 1.0)
    if attention is not None:
        return np.asarray(times.decode_rest(each) + attention(each))
    return np.asarray(times.decode_rest(each) + times.decode_attention.mean(each, *contexts_of(lengths)))


def host_s(overheads: Overheads, batch: Nums) -> Array:
    """Return what the host adds to a step in which `batch` sequences decode."""
    return np.asarray(overheads.step_s + overheads.sequence_s * np.asarray(batch, dtype=np.float64))


def decode_step_s(
    times: StepTimes, overheads: Overheads, batch: Nums, lengths: Lengths, attention: Curve | None = None
) -> Array:
    """Return the mean time from token to token with `batch` sequences on a replica and no prompts beside them."""
    each = np.maximum(np.asarray(batch, dtype=np.float64) / groups_of(times, batch), 1.0)
    return np.asarray(stretch(times, batch) * decode_pass_s(times, each, lengths, attention) + host_s(overheads, each))


def way_in_s(overheads: Overheads, lengths: Lengths) -> Array:
    """Return what a request takes before it reaches the scheduler; it holds no slot and stops nobody meanwhile."""
    return np.asarray(overheads.prompt_s + overheads.prompt_token_s * np.asarray(lengths.prompt, dtype=np.float64))


def budget(scheduler: Scheduler, lengths: Lengths) -> Array:
    """Return the most tokens of a step; where prompts are never cut, one prompt at least."""
    least = 1.0 if scheduler.chunked_prefill else lengths.fresh
    return np.asarray(np.maximum(float(scheduler.max_batched_tokens), least))


def prefill_s(times: StepTimes, engine: Engine, lengths: Lengths, num: Nums = 1.0) -> Array:
    """Return the time of `num` prompts that run by themselves, in as few steps as the budget allows.

    Full steps and what remains; attention of chunks adds up to that of whole prompts. No less than a decode step at
    the same length, which looks at as many tokens for one.
    """
    count = np.asarray(num, dtype=np.float64)
    most, tokens = budget(engine.scheduler, lengths), lengths.fresh * count
    full = np.floor(tokens / most)
    remains = tokens - full * most
    rest = full * times.prompt_rest(most) + np.where(remains > 0, times.prompt_rest(np.maximum(remains, 1.0)), 0.0)
    steps = full + (remains > 0)
    beside = np.maximum(count / steps, 1.0)
    attention = count / beside * times.chunk_attention_s(lengths.cached, lengths.prompt, beside)
    least = times.decode_s(np.maximum(count, 1.0), lengths.prompt)
    return np.asarray(np.maximum(rest + attention, least) + steps * engine.overheads.step_s)


def prompt_steps(
    times: StepTimes, engine: Engine, lengths: Lengths, rate: Array, step: Array
) -> tuple[Array, Array, Array, Array]:
    """Return seconds of a prompt by itself, of one more, of steps of prompts after one of decodes, and prompts in each.

    Of an engine whose prompts run in steps of their own: a step of decodes, d, is followed by x steps of prompts, of
    a + b k seconds for k of them, until none waits that came at the rate meanwhile.
    """
    alone, two = (np.asarray(prefill_s(times, engine, lengths, num)) for num in (1.0, 2.0))
    more = np.minimum(two - alone, alone)
    spent, each = rate * step * alone, np.ones_like(rate * step)
    for _ in range(_ROUNDS):
        again = -np.expm1(-rate * (alone + more * (each - 1.0)))
        turns = -np.expm1(-rate * step) / np.maximum(1.0 - again, 1e-3)
        spent = ((alone - more) * turns + more * rate * step) / np.maximum(1.0 - more * rate, 0.02)
        each = np.maximum(rate * (step + spent) / turns, 1.0)
    return alone, more, spent, each
