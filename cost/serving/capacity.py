"""KV cache into how many sequences a replica holds at once.

The cache is distributed in blocks of `block_tokens` tokens, as in paged attention (Kwon et al., arXiv 2309.06180). A
scheduler either sets all blocks of a request aside before it starts (`reserve_output`), or gives them out as it grows;
then sequences in flight are of all ages, and hold on average what they hold over their lives, with half of a block
unused.
"""

from __future__ import annotations

import numpy as np

from ...backends.machine.software.engine import Scheduler
from ...ir.errors import InfeasibleError
from .batching.steps import contexts_of
from .batching.times import Array, Nums, StepTimes
from .traffic.requests import Lengths

GIB = 2.0**30  # bytes, IEC 80000-13


def held_bytes(times: StepTimes, scheduler: Scheduler, tokens: Nums) -> Array:
    """Return the bytes of cache that a sequence of so many tokens holds on the fullest device, in whole blocks."""
    block = float(scheduler.block_tokens)
    return times.kv_bytes(np.ceil(np.asarray(tokens, dtype=np.float64) / block) * block)


def sequence_bytes(times: StepTimes, scheduler: Scheduler, lengths: Lengths, whole: bool = False) -> Array:
    """Return the bytes a request counts for: all it will ever hold, or what it holds on average over its decode.

    `whole` asks for the former whatever the scheduler does, as for batches whose sequences all end at once. Tokens
    that all requests share count for none of them.
    """
    if whole or scheduler.reserve_output:
        held = held_bytes(times, scheduler, lengths.total)
    else:
        unused = (scheduler.block_tokens - 1) / 2
        first, last = contexts_of(lengths)
        held = times.kv_bytes.mean(first + unused, last + unused)
    return np.asarray(held - shared_bytes(times, lengths))


def shared_bytes(times: StepTimes, lengths: Lengths) -> Array:
    """Return the bytes of a prefix that all requests have in common; zero where each has its own."""
    cached = np.asarray(lengths.cached, dtype=np.float64)
    return np.where(lengths.shared & (cached > 0), times.kv_bytes(np.maximum(cached, 1.0)), 0.0)


def room(times: StepTimes, scheduler: Scheduler, lengths: Lengths, whole: bool = False) -> Array:
    """Return how many sequences a replica holds; 0 where one request does not fit.

    `floor((free - shared) / sequence)`, no more than `max_num_seqs`, and than the tokens of a step in each group.
    """
    free = times.free_bytes - shared_bytes(times, lengths)
    num = np.floor(np.maximum(free, 0.0) / np.maximum(sequence_bytes(times, scheduler, lengths, whole), 1e-9))
    most = min(scheduler.max_num_seqs, scheduler.max_batched_tokens * times.groups)
    alone = held_bytes(times, scheduler, lengths.total) <= times.free_bytes
    return np.where(alone, np.clip(num, 1.0, float(most)), 0.0)


def max_batch(times: StepTimes, scheduler: Scheduler, lengths: Lengths, whole: bool = False) -> Array:
    """Return how many sequences a replica runs at once; InfeasibleError where not even one request fits."""
    num = room(times, scheduler, lengths, whole)
    if (num < 1).any():
        needed = np.broadcast_to(held_bytes(times, scheduler, lengths.total), num.shape)[num < 1].ravel()[0]
        asked = np.broadcast_to(lengths.total, num.shape)[num < 1].ravel()[0]
        raise InfeasibleError(_too_small(times, scheduler, float(asked), float(needed)))
    return num


def room_of_prompts(times: StepTimes, scheduler: Scheduler, lengths: Lengths) -> Array:
    """Return how many prompts a worker holds that sends their caches away; 0 where not even one fits."""
    held = held_bytes(times, scheduler, lengths.prompt) - shared_bytes(times, lengths)
    free = np.maximum(times.free_bytes - shared_bytes(times, lengths), 0.0)
    return np.asarray(np.floor(free / np.maximum(held, 1e-9)))


def check_prompts(times: StepTimes, scheduler: Scheduler, lengths: Lengths, num: int) -> None:
    """Raise InfeasibleError where a worker cannot hold so many prompts at once, with how many it can."""
    most = int(np.min(room_of_prompts(times, scheduler, lengths)))
    if most >= num:
        return
    if most >= 1:
        raise InfeasibleError(f"a prefill worker holds {most} prompts at once, and {num} are asked for")
    prompt = float(np.max(lengths.prompt))
    raise InfeasibleError(
        f"prefill workers: {_too_small(times, scheduler, prompt, float(held_bytes(times, scheduler, prompt)))}"
    )


def longest_request(times: StepTimes, scheduler: Scheduler) -> int:
    """Return the tokens of prompt and answer that fit with one request alone, in whole blocks."""
    low, high = 0, 2
    while high < 2**40 and held_bytes(times, scheduler, float(high * scheduler.block_tokens)) <= times.free_bytes:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        fits = held_bytes(times, scheduler, float(middle * scheduler.block_tokens)) <= times.free_bytes
        low, high = (middle, high) if fits else (low, middle)
    return low * scheduler.block_tokens


def _too_small(times: StepTimes, scheduler: Scheduler, asked: float, needed: float) -> str:
    if times.free_bytes <= 0:
        return (
            f"no memory is left for a KV cache: weights and temporaries take {-times.free_bytes / GIB:.2f} GiB more "
            f"than the {scheduler.memory_utilization:.0%} of a device that the engine may use; use more devices, or "
            "fewer bits a weight"
        )
    longest = longest_request(times, scheduler)
    nearest = f"the longest request that fits has {longest:,} tokens" if longest else "no request fits"
    return (
        f"the KV cache cannot hold one request: {asked:,.0f} tokens of prompt and answer need {needed / GIB:.2f} GiB, "
        f"and {times.free_bytes / GIB:.2f} GiB are free; {nearest}"
    )
