"""Devices into a prefill pool and a decode pool whose rates match."""

from __future__ import annotations

from dataclasses import replace

from ...ir.errors import UsageError
from ...ir.records import dataclass
from .disaggregated import TransferLink, Way, WorkerGroup, decode_tpot_s, rates
from .search import last_meeting
from .slo import ANYTHING, SLO, num_for
from .traffic.requests import Lengths


@dataclass(frozen=True, slots=True)
class Split:
    """Two pools that go together.

    Attributes:
        prefill: pool of prompts, with as many workers as it should have, and their batch.
        decode: pool of answers, likewise.
        requests_per_s: that both can do.
        ttft_s: of a request that finds an idle worker, whose batch is full.
        tpot_s: with decode workers at the batch of the pool.
    """

    prefill: WorkerGroup
    decode: WorkerGroup
    requests_per_s: float
    ttft_s: float
    tpot_s: float

    @property
    def gpus(self) -> int:
        """Devices of both."""
        return self.prefill.workers * self.prefill.gpus + self.decode.workers * self.decode.gpus


def fewest_workers(
    rate_per_s: float,
    prefill: WorkerGroup,
    decode: WorkerGroup,
    link: TransferLink,
    lengths: Lengths,
    slo: SLO = ANYTHING,
    busiest: float = 1.0,
) -> Split:
    """Return the fewest workers of each pool that answer `rate_per_s` requests under an SLO."""
    if not rate_per_s > 0:
        raise UsageError(f"rate={rate_per_s:g} requests/s; allowed: above 0")
    return _smallest(_each(prefill, decode, link, lengths, slo, busiest), rate_per_s, link, lengths)


@dataclass(frozen=True, slots=True)
class _Each:
    """One worker of each kind at its best batch, and requests a second of it."""

    prefill: WorkerGroup
    decode: WorkerGroup
    prefill_per_s: float
    decode_per_s: float


def _each(
    prefill: WorkerGroup, decode: WorkerGroup, link: TransferLink, lengths: Lengths, slo: SLO, busiest: float
) -> _Each:
    if not 0 < busiest <= 1:
        raise UsageError(f"busiest={busiest:g}; allowed: a share of the time, above 0 up to 1")
    prompts, answers = replace(prefill, workers=1), replace(decode, workers=1)
    able = rates(prompts, answers, lengths)
    way = Way(prompts, answers, link, lengths)
    ttft_s, tpot_s = slo.bounds
    num = last_meeting(lambda n: float(way.least_s(float(n))) <= ttft_s, max(prefill.batch, 1))
    batch = last_meeting(lambda n: float(decode_tpot_s(answers, lengths, float(n))) <= tpot_s, int(able.batch))
    if num == 0 or batch == 0:
        least = float(way.least_s()), float(decode_tpot_s(answers, lengths, 1.0))
        raise slo.missed_by(*least, "with one request on idle workers")
    best = replace(prompts, batch=num), replace(answers, batch=batch)
    able = rates(*best, lengths)
    return _Each(*best, busiest * float(able.prefill_per_s), busiest * float(able.decode_per_s))


def _smallest(each: _Each, rate_per_s: float, link: TransferLink, lengths: Lengths) -> Split:
    """The fewest workers that do a rate."""
    of_prompts, of_answers = num_for(rate_per_s, each.prefill_per_s), num_for(rate_per_s, each.decode_per_s)
    prefill, decode = replace(each.prefill, workers=of_prompts), replace(each.decode, workers=of_answers)
    able = min(of_prompts * each.prefill_per_s, of_answers * each.decode_per_s)
    ttft = Way(prefill, decode, link, lengths).least_s(float(prefill.batch))
    return Split(prefill, decode, able, float(ttft), float(decode_tpot_s(decode, lengths, float(decode.batch))))
