"""How latencies spread where requests come at random: percentiles of TTFT and TPOT of one replica, in closed form.

A request takes `S(n)` seconds with `n` in flight, so each of them goes on at the rate `1 / S(n)`. Such a queue is one
of shared processors whose speed depends on how many there are, and the number in flight does not depend on how service
times spread, only on their mean:

    P(n) = P(0) product over k <= n of rate S(k) / k      and beyond the room B a geometric tail of ratio rate S(B) / B

A new request sees these (Poisson arrivals see time averages). Its first token is then late by what differs from one
request to the next: the rest of the step that runs, prefills of other requests there and in its own (each step computes
those that came during the one before, a branching process with `m` of them on average and `m / (1 - (rate p)^2)` the
variance, p the time of a prompt), the queue of prompts where they take the budget of steps, and that for room. The
time of its tokens is a mean over its life: of the number in flight, whose deviations last `S kappa`, kappa their
variance over that of Poisson arrivals without feedback, and of the prompts that come meanwhile.

Percentiles are taken of a fixed set of points that fills the cube of these independent parts evenly (a Kronecker
sequence): the same in every run, and growing with the rate.

Sources: F. P. Kelly, Reversibility and Stochastic Networks, 1979 (insensitive queues); R. W. Wolff, Operations Research
30(2), 1982; M. Roberts' R sequence (generalized golden ratios) for the points. Compared with simulated requests in
`docs/serving_percentiles.md`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ....backends.machine.software.engine import Engine
from ....ir.records import dataclass
from ..capacity import max_batch
from ..traffic.requests import Lengths
from .continuous import Life, life
from .steps import budget, prefill_s, prompt_steps, way_in_s
from .times import Array, Nums, StepTimes

# Points of the sequence, and how many parts differ from request to request.
_POINTS, _PARTS = 1024, 5
# The largest number of prompts in a step that is told apart.
_MOST_PROMPTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Latencies of requests that count alike, in order: one row a rate, the fastest request first.

    Attributes:
        ttft_s: until the first token.
        tpot_s: mean time of a token behind it; not a number where there is none.
    """

    ttft_s: Array
    tpot_s: Array

    def at(self, share: float) -> tuple[Array, Array]:
        """Return TTFT and TPOT that a share of the requests do not exceed, one of each a rate."""
        place = min(max(math.ceil(share * _POINTS) - 1, 0), _POINTS - 1)
        return np.asarray(self.ttft_s[..., place]), np.asarray(self.tpot_s[..., place])


@dataclass(frozen=True, slots=True, eq=False)
class _Beside:
    """What differs from request to request with each number in flight, from one up to the room, at each rate.

    Attributes:
        step_s: a step without prompts.
        prompt_s: what one more prompt takes.
        tpot_s: mean time of a token.
        total_s: a life.
        prompts_s: seconds of steps of prompts for each step of decodes; zero where steps hold both.
        each: prompts in such a step.
    """

    step_s: Array
    prompt_s: Array
    tpot_s: Array
    total_s: Array
    prompts_s: Array
    each: Array


@dataclass(frozen=True, slots=True, eq=False)
class Flights:
    """One replica with each number of requests in flight, from one up to its room; what a law of their number needs."""

    times: StepTimes
    engine: Engine
    lengths: Lengths
    lives: Life

    @classmethod
    def of(cls, times: StepTimes, engine: Engine, lengths: Lengths) -> Flights:
        """Work out a life for each number. InfeasibleError where no request fits."""
        room, random = int(np.min(max_batch(times, engine.scheduler, lengths))), engine.at_random
        return cls(times, random, lengths, life(times, random, np.arange(1.0, room + 1.0), lengths))

    @property
    def room(self) -> int:
        """The most requests in flight."""
        return len(self.lives.total_s)

    def tails(self, rate_per_s: Nums) -> Tails:
        """Return how latencies spread at rates; infinite where more come than can be answered."""
        rate = np.atleast_1d(np.asarray(rate_per_s, dtype=np.float64)).reshape(-1, 1)
        beside = self._mixed(rate) if self.engine.scheduler.mixed else self._apart(rate)
        numbers = np.arange(1.0, self.room + 1.0)
        able = np.maximum.accumulate(numbers / beside.total_s, axis=-1)
        full = rate / able[:, -1:]
        law = number_in_flight(np.minimum(rate, able[:, -1:] * (1.0 - 1e-9)), able)
        points = _points()
        others = np.array([np.searchsorted(row, points[0]) for row in np.cumsum(law, axis=1)], dtype=np.float64)
        at = np.minimum(others, self.room - 1).astype(np.intp)
        first = self._beside_s if self.engine.scheduler.mixed else self._before_s
        waits = np.maximum(others - self.room + 1.0, 0.0) / able[:, -1:]
        ttft = way_in_s(self.engine.overheads, self.lengths) + first(rate, others, _taken(beside, at), points) + waits
        tpot = self._gap_s(rate, others, law, beside, points)
        late = np.where(full < 1.0, 0.0, np.inf)
        return Tails(np.sort(ttft + late, axis=-1), np.sort(tpot + late, axis=-1))

    def _mixed(self, rate: Array) -> _Beside:
        """Steps that hold prompts and decodes: what the lives say, the same at all rates."""
        lives = self.lives
        rows = (lives.step_s, lives.prompt_s, lives.tpot_s, lives.total_s, np.zeros(self.room), np.zeros(self.room))
        return _Beside(*(np.broadcast_to(row, (len(rate), self.room)) for row in rows))

    def _apart(self, rate: Array) -> _Beside:
        """Steps of prompts come before decodes, as soon as a prompt is there; those that come meanwhile run next.

        A step of decodes, d, is followed by x steps of prompts, of a + b k seconds for k of them, until none waits.
        """
        lives, lengths = self.lives, self.lengths
        step = np.broadcast_to(lives.step_s, (len(rate), self.room))
        alone, more, spent, each = prompt_steps(self.times, self.engine, lengths, rate, step)
        tpot = step + spent
        total = alone + tpot / 2 + lengths.gaps * tpot
        return _Beside(step, np.broadcast_to(more, step.shape), tpot, total, spent, each)

    def _beside_s(self, rate: Array, others: Array, at: _Beside, points: Array) -> Array:
        """Seconds until the first token of each point where steps hold prompts and decodes."""
        lives, engine, lengths, step, prompt = self.lives, self.engine, self.lengths, at.step_s, at.prompt_s
        load = np.minimum(rate * prompt, 0.95)
        mean = rate * step / (1.0 - load)
        # The step that runs: long ones are met more often.
        biased = mean + mean / (1.0 - load**2) * prompt / (step + mean * prompt)
        running = step + _prompts(biased, load, points[2]) * prompt
        ahead = _prompts(rate * running, np.zeros_like(load), points[1])
        part = lengths.fresh / budget(engine.scheduler, lengths)
        served = np.minimum(part, 1.0) * (prompt + part * step)
        # A wait that is not zero with a chance, and then exponential.
        chance = np.minimum(rate * served, 0.99)
        left = np.maximum((1.0 - points[4]) / np.maximum(chance, 1e-12), 1e-12)
        queue = np.maximum(-np.log(left), 0.0) * served / 2 / (1.0 - chance)
        place = np.minimum(others, self.room - 1).astype(np.intp)
        own = lives.first_s[place] - lives.others_s[place]
        return np.asarray(own + queue + np.where(others > 0, points[3] * running + ahead * prompt, 0.0))

    def _before_s(self, rate: Array, others: Array, at: _Beside, points: Array) -> Array:
        """Seconds until the first token of each point where prompts run in steps of their own, before decodes."""
        alone = float(np.asarray(prefill_s(self.times, self.engine, self.lengths)))
        several = 1.0 + _prompts(at.each - 1.0, np.zeros_like(at.each), points[2])
        prompts = points[4] < at.prompts_s / at.tpot_s
        running = np.where(prompts, alone + at.prompt_s * (several - 1.0), at.step_s)
        ahead = _prompts(rate * running, np.zeros_like(running), points[1])
        return np.asarray(alone + np.where(others > 0, points[3] * running + ahead * at.prompt_s, 0.0))

    def _gap_s(self, rate: Array, others: Array, law: Array, beside: _Beside, points: Array) -> Array:
        """Mean seconds of a token behind the first, of each point."""
        gaps = float(np.asarray(self.lengths.gaps))
        if gaps < 1:
            return np.full(others.shape, np.nan)
        number = np.arange(law.shape[-1], dtype=np.float64)
        mean = (law * number).sum(axis=-1, keepdims=True)
        wide = np.maximum((law * (number - mean) ** 2).sum(axis=-1, keepdims=True) / np.maximum(mean, 1e-9), 1e-3)
        # Deviations last `wide` lives: what is left of them in the mean over one.
        left = 2.0 * wide**2 * (1.0 / wide + np.expm1(-1.0 / wide))
        each = np.clip(1.0 + mean + np.sqrt(left) * (others - mean), 1.0, float(self.room))
        low = np.minimum(each, self.room - 1.0).astype(np.intp) if self.room > 1 else np.ones(each.shape, dtype=np.intp)
        at = _taken(beside, np.maximum(low - 1, 0))
        next_s = np.take_along_axis(beside.tpot_s, np.minimum(low, self.room - 1), axis=1)
        whole = at.tpot_s + (next_s - at.tpot_s) * (each - low)
        taken = np.where(at.prompts_s > 0, at.prompts_s / np.maximum(rate * at.tpot_s, 1e-12), at.prompt_s)
        more = taken / (1.0 - np.minimum(rate * taken, 0.95))
        # Standard normal numbers at shares, to a thousandth: Tukey's lambda law.
        noise = np.sqrt(0.625 * mean) * (np.power(points[1], 0.14) - np.power(1.0 - points[1], 0.14)) / 0.1975
        return np.asarray(np.maximum(whole + noise * more / gaps, beside.tpot_s[:, :1]))


def _taken(beside: _Beside, at: NDArray[np.intp]) -> _Beside:
    """Return what is so with the numbers in flight at some places of each row."""
    columns = (beside.step_s, beside.prompt_s, beside.tpot_s, beside.total_s, beside.prompts_s, beside.each)
    return _Beside(*(np.take_along_axis(column, at, axis=1) for column in columns))


def number_in_flight(rate: Array, able: Array) -> Array:
    """Return how probable each number in flight is, a row a rate: 0, 1, .. up to the room and what waits beyond."""
    room = able.shape[-1]
    steps = np.log(rate) - np.log(able)
    waiting = max(room, 64)
    last = np.repeat(steps[:, -1:], 3 * waiting, axis=1)
    logs = np.cumsum(np.concatenate([np.zeros_like(rate), steps, last], axis=1), axis=1)
    found = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _points() -> Array:
    """Return numbers between 0 and 1, a row a part: multiples of the generalized golden ratio's powers."""
    ratio = 2.0
    for _ in range(40):
        ratio = np.power(1.0 + ratio, 1.0 / (_PARTS + 1))
    steps = np.power(ratio, -np.arange(1.0, _PARTS + 1.0))
    return np.asarray((0.5 + np.outer(steps, np.arange(1.0, _POINTS + 1.0))) % 1.0)


def _prompts(mean: Array, load: Array, at: Array) -> Array:
    """Return prefills of other requests in a step: negative binomial with `mean / (1 - load^2)` as its variance."""
    spread = 1.0 / np.maximum(1.0 - load**2, 1e-3)
    success = np.minimum(1.0 / spread, 1.0 - 1e-9)
    shape = mean * success / (1.0 - success)
    term = np.exp(shape * np.log(success))
    below, found = term.copy(), np.zeros(np.broadcast_shapes(mean.shape, at.shape))
    for k in range(1, _MOST_PROMPTS):
        more = below < at
        if not more.any():
            break
        found += more
        term = term * (shape + k - 1.0) / k * (1.0 - success)
        below = below + term
    return found
