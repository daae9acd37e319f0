"""Lengths of requests: fixed, from a range, log-normal, or as they were measured."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....ir.errors import UsageError
from ....ir.records import dataclass

Index = NDArray[np.int64]
# Of one prompt or answer, and of what is simulated request by request: a billion tokens are more than any model takes,
# and two million requests some gigabyte of memory.
MOST_TOKENS, MOST_REQUESTS = 10**9, 2_000_000
# Standard deviation over mean: measured traces have 0.5 to 3.
_MOST_SPREAD = 100.0


@dataclass(frozen=True, slots=True)
class Requests:
    """Tokens of each request: of its prompt, of its answer, and of its prompt that a cache holds already."""

    prompt: Index
    output: Index
    cached: Index

    def first(self, num: int) -> Requests:
        """Return the first of them alone."""
        return Requests(self.prompt[:num], self.output[:num], self.cached[:num])


class LengthSource(Protocol):
    """What gives requests their lengths."""

    def draw(self, random: np.random.Generator, num: int) -> Requests:
        """Return so many requests."""
        ...


class Length(Protocol):
    """A number of tokens that may differ from request to request."""

    def draw(self, random: np.random.Generator, num: int) -> Index:
        """Return so many lengths, each of at least one token."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same number of tokens each time."""

    tokens: int

    def draw(self, random: np.random.Generator, num: int) -> Index:
        """Return it so many times."""
        return np.full(num, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every number of tokens from `low` to `high` as often as the others."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= MOST_TOKENS:
            given = f"{self.low:.15g}..{self.high:.15g}" if self.high < 1e18 else "beyond it"
            raise UsageError(f"a range of lengths goes from 1 or more upwards, to {MOST_TOKENS:,}, and is {given}")

    def draw(self, random: np.random.Generator, num: int) -> Index:
        """Return so many of them."""
        return random.integers(self.low, self.high, size=num, endpoint=True)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Lengths whose logarithm is normal, by their mean and their standard deviation over the mean."""

    mean: float
    cv: float

    def __post_init__(self) -> None:
        if not (1 <= self.mean <= MOST_TOKENS and 0 <= self.cv <= _MOST_SPREAD):
            given = f"mean {self.mean:g}, deviation {self.cv:g}"
            raise UsageError(
                f"log-normal lengths have a mean of 1 or more, to {MOST_TOKENS:,}, and no negative deviation, of "
                f"{_MOST_SPREAD:g} times the mean at most, not {given}"
            )

    def draw(self, random: np.random.Generator, num: int) -> Index:
        """Return so many, rounded, none below 1.

        >>> lengths = Lognormal(500.0, 1.0).draw(np.random.default_rng(0), 100_000)
        >>> round(float(lengths.mean()), -1), round(float(lengths.std() / lengths.mean()), 1)
        (500.0, 1.0)
        """
        spread = math.log1p(self.cv**2)
        drawn = random.lognormal(math.log(self.mean) - spread / 2, math.sqrt(spread), num)
        return np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int64)


@dataclass(frozen=True, slots=True)
class LengthMix:
    """Prompts and answers whose lengths have nothing to do with each other.

    Attributes:
        prompt: tokens of a prompt.
        output: tokens of an answer.
        cached: share of each prompt that is in the cache.
        cached_tokens: tokens of each prompt that are, where the share is 0.
    """

    prompt: Length
    output: Length
    cached: float = 0.0
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.cached < 1:
            raise UsageError(
                f"the share of a prompt in the cache must be 0 or more and below 1, and is {self.cached:g}"
            )

    def draw(self, random: np.random.Generator, num: int) -> Requests:
        """Return so many requests."""
        prompt, output = self.prompt.draw(random, num), self.output.draw(random, num)
        share = np.minimum((prompt * self.cached).astype(np.int64), prompt - 1)
        return Requests(prompt, output, share if self.cached else np.full(num, self.cached_tokens, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class DrawnRequests:
    """Requests drawn from those of a file, prompt and answer together."""

    requests: Requests

    def draw(self, random: np.random.Generator, num: int) -> Requests:
        """Return so many of them, each as often as the others."""
        chosen = random.integers(0, len(self.requests.prompt), size=num)
        return Requests(self.requests.prompt[chosen], self.requests.output[chosen], self.requests.cached[chosen])
