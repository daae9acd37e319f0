"""A batch that runs from its first to its last token: all prompts at once, then all answers side by side."""

from __future__ import annotations

import numpy as np

from ....backends.machine.software.engine import Engine
from ..capacity import max_batch
from ..metrics import ServingMetrics
from ..traffic.requests import Lengths
from .steps import decode_step_s, groups_of, prefill_s, way_in_s
from .times import Array, Nums, StepTimes


def static_batch(times: StepTimes, engine: Engine, batch: Nums, lengths: Lengths) -> ServingMetrics:
    """Return latencies and rates of `batch` requests of equal lengths that start together.

    TTFT = request overhead + prefill of the batch; E2EL = TTFT + sum over i = 1 .. output - 1 of
    decode(batch, prompt + i). A batch that does not fit at its full length runs in waves of equal size, one behind the
    other: TTFT is then the mean over waves, its low that of the first and its high that of the last. InfeasibleError
    where no request fits.
    """
    num = np.asarray(batch, dtype=np.float64)
    waves = np.ceil(num / max_batch(times, engine.scheduler, lengths, whole=True))
    wave = num / waves
    first = batch_prefill_s(times, engine, wave, lengths)
    step = decode_step_s(times, engine.overheads, wave, lengths)
    each = first + lengths.gaps * step
    lowest = way_in_s(engine.overheads, lengths) + first
    shape = np.broadcast_shapes(num.shape, each.shape)
    return ServingMetrics(
        concurrency=np.broadcast_to(num, shape),
        batch=np.broadcast_to(wave, shape),
        decodes=np.broadcast_to(wave, shape),
        prompt=np.broadcast_to(np.asarray(lengths.prompt, dtype=np.float64), shape),
        output=np.broadcast_to(np.asarray(lengths.output, dtype=np.float64), shape),
        ttft_s=lowest + (waves - 1) / 2 * each,
        ttft_low_s=lowest,
        ttft_high_s=lowest + (waves - 1) * each,
        tpot_s=np.where(lengths.gaps > 0, step, np.nan),
        requests_per_s=num / (lowest - first + waves * each),
        stall_s=step,
    )


def batch_prefill_s(times: StepTimes, engine: Engine, batch: Nums, lengths: Lengths) -> Array:
    """Return the time of a batch's prompts; with pipeline stages, groups of it pass one behind the other."""
    groups = groups_of(times, batch)
    one = prefill_s(times, engine, lengths, np.asarray(batch, dtype=np.float64) / groups)
    return np.asarray(one * (1.0 + (groups - 1.0) * times.pace))
