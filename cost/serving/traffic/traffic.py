"""Requests as arrays: when each is sent and how long it is, from random processes, closed loops and bursts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ..batching.times import Array
from .sizes import MOST_REQUESTS, LengthSource, Requests

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What clients send.

    Attributes:
        arrival_s: when each request is sent; in a closed loop only the first of each client is.
        requests: tokens of each: of its prompt, of its answer, of its prompt that a cache holds already.
        clients: of a closed loop, each of whom sends a request when the one before is done; 0 where none waits.
        think_s: from an answer to the next request of the same client or session.
        session: number of the conversation of each request, -1 for none: a turn waits for the one before it.
        blocks: names of the blocks of each prompt, each with all before it; None where prompts have none.
        block_tokens: tokens of a block.
        fetch_s: what loading cached tokens takes, by request; None where they are there.

    UsageError where a request cannot be: see `check_traffic`.
    """

    arrival_s: Array
    requests: Requests
    clients: int = 0
    think_s: float = 0.0
    session: Index | None = None
    blocks: Sequence[tuple[int, ...]] | None = None
    block_tokens: int = 512
    fetch_s: Array | None = None

    def __post_init__(self) -> None:
        check_traffic(self.arrival_s, self.requests, lambda i: f"request {i + 1}")
        _check(self.clients >= 0, f"clients must not be negative, and are {self.clients}")
        good = math.isfinite(self.think_s) and self.think_s >= 0
        _check(good, f"the time between requests must not be negative, and is {self.think_s:g} s")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def request_rate(self) -> float:
        """Requests a second over the time in which they are sent; infinite in a burst and in a closed loop."""
        span = float(self.arrival_s[-1] - self.arrival_s[0])
        return (len(self) - 1) / span if span > 0 and not self.clients else math.inf

    def check_positions(self, positions: int) -> None:
        """UsageError where a request has more tokens than a model has positions; 0 positions are no limit."""
        total = self.requests.prompt + self.requests.output
        if positions and (total > positions).any():
            i = int(np.argmax(total > positions))
            raise UsageError(
                f"request {i + 1} has a prompt of {self.requests.prompt[i]:,} tokens and {self.requests.output[i]:,} "
                f"more to come, and the model has {positions:,} positions; the longest request has {total.max():,}"
            )

    def first(self, num: int) -> Traffic:
        """Return the first requests alone."""
        session = None if self.session is None else self.session[:num]
        blocks = None if self.blocks is None else self.blocks[:num]
        fetch_s = None if self.fetch_s is None else self.fetch_s[:num]
        return replace(
            self,
            arrival_s=self.arrival_s[:num],
            requests=self.requests.first(num),
            session=session,
            blocks=blocks,
            fetch_s=fetch_s,
        )


def check_traffic(arrival_s: Array, requests: Requests, named: Callable[[int], str]) -> None:
    """UsageError where requests are none, come before time zero or before the one above, or have no tokens.

    Args:
        arrival_s: when each is sent.
        requests: their tokens.
        named: what a message calls a request of a number, as `line 7`.
    """
    _check(len(arrival_s) > 0, "there is no request")
    _first(~np.isfinite(arrival_s), named, lambda i: f"is sent at '{arrival_s[i]:g}' s; the time must be a number")
    _first(arrival_s < 0, named, lambda i: f"is sent at {arrival_s[i]:g} s, before time 0")
    early = np.concatenate([[False], np.diff(arrival_s) < 0])
    _first(
        early,
        named,
        lambda i: (
            f"is sent at {arrival_s[i]:g} s, before the one above it at {arrival_s[i - 1]:g} s; "
            "requests must be in order of time"
        ),
    )
    prompt, output, cached = requests.prompt, requests.output, requests.cached
    _first(prompt < 1, named, lambda i: f"has a prompt of {prompt[i]} tokens; the least is 1")
    _first(output < 1, named, lambda i: f"has an answer of {output[i]} tokens; the least is 1")
    _first(
        (cached < 0) | (cached >= prompt),
        named,
        lambda i: f"has {cached[i]} tokens of {prompt[i]} in the cache; at least one must be left to compute",
    )


def poisson(rate: float, sizes: LengthSource, num: int = 1000, seed: int = 0, burstiness: float = 1.0) -> Traffic:
    """Return requests that come at random, so many a second on average, each by itself.

    Gaps are gamma distributed with mean 1 / rate and shape `burstiness`: 1 is a Poisson process, less comes in
    bursts, more comes evenly. The first request is sent at time 0. The same seed gives the same gaps at every rate,
    scaled. Source: `--burstiness` of vLLM's `bench serve`.

    >>> from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
    >>> traffic = poisson(4.0, LengthMix(Fixed(512), Fixed(128)), num=10_000)
    >>> 3.9 < traffic.request_rate < 4.2
    True
    """
    _check(math.isfinite(rate) and rate > 0, f"a request rate must be above 0, and is {rate:g}/s")
    _check(math.isfinite(burstiness) and burstiness > 0, f"burstiness must be above 0, and is {burstiness:g}")
    times, lengths = random_streams(seed)
    gaps = times.gamma(burstiness, 1.0 / burstiness, _counted(num) - 1) / rate
    return Traffic(np.concatenate([[0.0], np.cumsum(gaps)]), sizes.draw(lengths, num))


def poisson_for(rate: float, sizes: LengthSource, duration_s: float, seed: int = 0, burstiness: float = 1.0) -> Traffic:
    """Return what `poisson` sends until a moment."""
    _check(math.isfinite(duration_s) and duration_s > 0, f"a duration must be above 0, and is {duration_s:g} s")
    mean = rate * duration_s
    _check(mean <= MOST_REQUESTS, f"{rate:g}/s for {duration_s:g} s are more than {MOST_REQUESTS:,} requests")
    most = int(mean + 10.0 * math.sqrt(mean / burstiness) + 10.0)
    traffic = poisson(rate, sizes, most, seed, burstiness)
    return traffic.first(int(np.searchsorted(traffic.arrival_s, duration_s, side="right")))


def closed(
    clients: int, sizes: LengthSource, num: int = 0, seed: int = 0, think_s: float = 0.0, ramp_s: float = 0.0
) -> Traffic:
    """Return a closed loop: so many clients send, and each again when its answer is there and thought over.

    Without a number of requests there are ten a client, and at least 100. The first requests come all at once, or
    evenly over `ramp_s`. Clients that begin together and ask for as many tokens go in step ever after: their prompts
    fall together and their decodes too. A ramp as long as a request takes spreads them out.
    """
    _check(clients >= 1, f"a closed loop needs a client, and has {clients}")
    num = num or max(10 * clients, 100)
    _check(math.isfinite(ramp_s) and ramp_s >= 0, f"a ramp must not be negative, and is {ramp_s:g} s")
    requests = sizes.draw(random_streams(seed)[1], _counted(num))
    start_s = np.minimum(np.arange(num) / clients, 1.0) * ramp_s
    return Traffic(start_s, requests, clients=clients, think_s=think_s)


def burst(num: int, sizes: LengthSource, seed: int = 0) -> Traffic:
    """Return requests that are all sent at once."""
    return Traffic(np.zeros(_counted(num)), sizes.draw(random_streams(seed)[1], num))


def random_streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Random numbers for times and for lengths, so that neither moves with the other."""
    times, lengths = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(times), np.random.default_rng(lengths)


def _counted(num: int) -> int:
    given = f"the number of requests must be 1 or more, and at most {MOST_REQUESTS:,}, and is {num:,}"
    _check(1 <= num <= MOST_REQUESTS, given)
    return num


def _check(good: bool, message: str) -> None:
    if not good:
        raise UsageError(message)


def _first(bad: NDArray[np.bool_], named: Callable[[int], str], said: Callable[[int], str]) -> None:
    if bad.any():
        i = int(np.argmax(bad))
        raise UsageError(f"{named(i)} {said(i)}")
