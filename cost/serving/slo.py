"""What users ask of latencies: the most load under which they get it, and how many replicas that takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...backends.machine.software.engine import Engine
from ...ir.errors import InfeasibleError, UsageError
from ...ir.records import dataclass
from ...ir.units import format_time, parse_typed
from .batching.continuous import most_throughput
from .batching.open_loop import at_rate
from .batching.tails import Flights
from .batching.times import Array, StepTimes
from .metrics import ServingMetrics
from .search import last_meeting
from .traffic.requests import Lengths

# Rates that are tried at once, and how often the gap between two of them is searched again: to a millionth; a coarser
# search, to a thousandth, takes a quarter of the time.
FINE, COARSE = (33, 4), (11, 3)
# Of the greatest rate: what counts as no load, and as full load.
_IDLE, _FULL = 1e-6, 1.0 - 1e-6
# Percentiles of which the closed form has points enough.
_MOST_SHARE = 0.999

_Bools = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


# A share of the requests, or their mean, before a limit: `p99:500ms`, `mean:500ms`.
_SHARE = re.compile(r"\s*(?:(mean)|p([0-9]{1,2}(?:\.[0-9]+)?))\s*:\s*(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SLO:
    """Service-level objectives: latencies that must not be exceeded; None where nothing is asked.

    Attributes:
        ttft_s: time to the first token.
        tpot_s: time of a token behind it.
        ttft_share: share of the requests that must keep the first, 0.99 for p99; None for their mean.
        tpot_share: likewise of the second; the time of a token is a mean over the answer of each request.

    >>> str(SLO(ttft_s=0.5, tpot_s=0.03)), bool(SLO())
    ('TTFT <= 500 ms, TPOT <= 30 ms', False)
    >>> str(SLO.of("p99:500ms", "p95:30ms"))
    'p99 TTFT <= 500 ms, p95 TPOT <= 30 ms'
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    ttft_share: float | None = None
    tpot_share: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no request can meet."""
        for name, value in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} {value:g} s; allowed: more than 0 s")
        for name, share in (("TTFT", self.ttft_share), ("TPOT", self.tpot_share)):
            if share is not None and not 0.5 <= share <= _MOST_SHARE:
                raise UsageError(f"{name} p{share * 100:g}; allowed: p50 to p{_MOST_SHARE * 100:g}, or mean")

    @classmethod
    def of(cls, ttft: str | None, tpot: str | None) -> SLO:
        """Read limits as people write them: `500ms` and `mean:500ms` are of the mean, `p99:500ms` of 99 in 100."""
        first, gap = _limit_of(ttft, "--ttft"), _limit_of(tpot, "--tpot")
        return cls(first[0], gap[0], first[1], gap[1])

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return self.ttft_s is not None or self.tpot_s is not None

    def __str__(self) -> str:
        """As people write it: `TTFT <= 500 ms, p99 TPOT <= 30 ms`."""
        asked = zip(self.labels, (self.ttft_s, self.tpot_s), strict=True)
        return ", ".join(f"{name} <= {format_time(s)}" for name, s in asked if s is not None)

    @property
    def labels(self) -> tuple[str, str]:
        """What the limits are on: `TTFT` of means, else `p99 TTFT`."""
        shares = (self.ttft_share, self.tpot_share)
        first, gap = ("" if share is None else f"p{share * 100:g} " for share in shares)
        return f"{first}TTFT", f"{gap}TPOT"

    @property
    def of_tails(self) -> bool:
        """Whether a limit is on a percentile."""
        return self.ttft_share is not None or self.tpot_share is not None

    @property
    def bounds(self) -> tuple[float, float]:
        """TTFT and TPOT; infinite where nothing is asked."""
        return (math.inf if self.ttft_s is None else self.ttft_s, math.inf if self.tpot_s is None else self.tpot_s)

    def seen(self, metrics: ServingMetrics) -> tuple[Array, Array]:
        """Return what the limits are on: means, or the percentiles that `with_tails` has put beside them."""
        first = metrics.ttft_s if self.ttft_share is None else metrics.ttft_tail_s
        gap = metrics.tpot_s if self.tpot_share is None else metrics.tpot_tail_s
        return np.asarray(first), np.asarray(gap)

    def met_by(self, metrics: ServingMetrics) -> _Bools:
        """Return whether both latencies are kept; an answer of one token has no TPOT."""
        (ttft_s, tpot_s), (first, gap) = self.bounds, self.seen(metrics)
        return np.asarray((first <= ttft_s) & (~(gap > tpot_s) | np.isnan(metrics.tpot_s)) & ~self._unknown(metrics))

    def _unknown(self, metrics: ServingMetrics) -> _Bools:
        """Return where a percentile is asked for that nobody has worked out."""
        first, gap = self.seen(metrics)
        return np.asarray(np.isnan(first) | (np.isnan(gap) & ~np.isnan(metrics.tpot_s)))

    def missed_by(self, ttft_s: float, tpot_s: float, when: str) -> InfeasibleError:
        """Return the error that names what is asked, and the least that can be reached."""
        pairs = zip(self.labels, self.bounds, (ttft_s, tpot_s), strict=True)
        said = (
            f"{name} {_time(asked)} asked; the least is {_time(least)} {when}"
            for name, asked, least in pairs
            if least > asked
        )
        return InfeasibleError(f"{'; '.join(said)}: use faster or more devices for a replica, or ask for less")

    def missed(self, best: ServingMetrics, when: str) -> InfeasibleError:
        """Return the same of metrics that are the best there are."""
        first, gap = self.seen(best)
        return self.missed_by(float(np.min(first)), float(np.min(gap)), when)


def _limit_of(text: str | None, flag: str) -> tuple[float | None, float | None]:
    """Read a limit, and the share of the requests that must keep it."""
    if text is None:
        return None, None
    match = _SHARE.fullmatch(text)
    if match is None:
        if ":" in text:
            raise UsageError(
                f"{flag} {text[:40]}: a time, as in 500ms, or with a percentile before it, as in p99:500ms"
            )
        return parse_typed(text, "s", flag), None
    return parse_typed(match[3], "s", flag), None if match[1] else round(float(match[2]) / 100.0, 6)


ANYTHING = SLO()


def most_concurrency(serve: Callable[[float], ServingMetrics], slo: SLO, most: int) -> ServingMetrics:
    """Return what `serve` says of the greatest concurrency, 1 to `most`, that meets an SLO.

    Latencies must not fall as concurrency grows. InfeasibleError where one request alone misses it.
    """
    found = last_meeting(lambda num: bool(np.all(slo.met_by(serve(float(num))))), most)
    if found == 0:
        raise slo.missed(serve(1.0), "with one request alone")
    return serve(float(found))


def most_rate(
    serve: Callable[[Array], ServingMetrics], slo: SLO, most_per_s: float, grid: tuple[int, int] = FINE
) -> ServingMetrics:
    """Return what `serve` says of the greatest rate below `most_per_s` that meets an SLO, as finely as `grid` looks.

    `serve` takes many rates at once; latencies must not fall as the rate grows. InfeasibleError where it is missed with
    next to no load.
    """
    low, high = most_per_s * _IDLE, most_per_s * _FULL
    if not np.all(slo.met_by(least := serve(np.array(low)))):
        raise slo.missed(least, "with next to no load")
    num, rounds = grid
    for _ in range(rounds):
        tried = np.linspace(low, high, num)
        missed = np.flatnonzero(~slo.met_by(serve(tried)))
        first = int(missed[0]) if len(missed) else num
        low, high = float(tried[max(first - 1, 0)]), float(tried[min(first, num - 1)])
    return serve(np.array(low))


def rate_under(
    times: StepTimes, engine: Engine, lengths: Lengths, slo: SLO, grid: tuple[int, int] = FINE
) -> ServingMetrics:
    """Return the open loop of the most requests a second, coming at random, that meets an SLO on a replica."""
    most = float(np.min(most_throughput(times, engine, lengths).requests_per_s))
    tails = tails_of(times, engine, lengths, slo)
    return most_rate(lambda rate: tails(at_rate(times, engine, rate, lengths)), slo, most, grid)


def tails_of(
    times: StepTimes, engine: Engine, lengths: Lengths, slo: SLO
) -> Callable[[ServingMetrics], ServingMetrics]:
    """Return what puts the percentiles of an SLO beside the means of a replica, at the rate that they have.

    Requests come at random, whatever the load of the means: a limit on a percentile is one on those that nobody times.
    Static batches have no such form: their percentiles stay unknown, and an SLO on them is not met.
    """
    if not slo.of_tails or engine.scheduler.batching == "static":
        return lambda found: found
    flights = Flights.of(times, engine, lengths)

    def with_tails(found: ServingMetrics) -> ServingMetrics:
        spread, shape = flights.tails(found.requests_per_s), found.requests_per_s.shape
        first, gap = (spread.at(0.5 if share is None else share) for share in (slo.ttft_share, slo.tpot_share))
        return replace(found, ttft_tail_s=first[0].reshape(shape), tpot_tail_s=gap[1].reshape(shape))

    return with_tails


def num_for(asked: float, each: float) -> int:
    """Return how many of something that does `each` do what is asked; one in a billion too little is enough.

    >>> num_for(3.0, 1.5), num_for(3.1, 1.5), num_for(0.1, 1.5)
    (2, 3, 1)
    """
    return max(1, math.ceil(asked / each * (1.0 - 1e-9)))


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"
