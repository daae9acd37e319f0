"""What requests ask for: lengths of prompts and answers, and how much of a prompt is in the cache already."""

from __future__ import annotations

import numpy as np

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ..batching.times import Array, Nums


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Tokens of a request; numbers or arrays alike, broadcast against each other.

    Attributes:
        prompt: tokens of the prompt, one or more, cached ones included.
        output: tokens that are generated, one or more; the first is made by the prefill.
        cached: leading tokens of the prompt whose keys and values are there already: `hit rate x prompt`. They cost no
            prefill, are looked at all the same, and hold memory.
        shared: all requests have the cached tokens in common, so that they hold memory once.

    UsageError for lengths that are not whole or below 1, and for a prompt that is cached as a whole: its last token
    is always computed, as the answer starts from it.

    >>> float(Lengths(1000, 200, cached=600).fresh)
    400.0
    """

    prompt: Nums
    output: Nums
    cached: Nums = 0.0
    shared: bool = False

    def __post_init__(self) -> None:
        """Check them."""
        for name, given in (("prompt", self.prompt), ("output", self.output)):
            tokens = np.asarray(given, dtype=np.float64)
            _refuse(name, tokens, (tokens >= 1) & (tokens == np.floor(tokens)), "whole numbers of tokens, 1 or more")
        prompt, cached = np.broadcast_arrays(np.asarray(self.prompt, float), np.asarray(self.cached, float))
        most = f"tokens of the prompt that are cached: 0 up to {float(np.min(prompt)) - 1:g}, the last is computed"
        _refuse("cached", cached, (cached >= 0) & (cached <= prompt - 1), most)

    @property
    def fresh(self) -> Array:
        """Tokens of the prompt that the prefill computes."""
        return np.asarray(np.asarray(self.prompt, dtype=np.float64) - self.cached)

    @property
    def total(self) -> Array:
        """Tokens of prompt and answer: what a request holds when it ends."""
        return np.asarray(np.asarray(self.prompt, dtype=np.float64) + self.output)

    @property
    def gaps(self) -> Array:
        """Decode steps of a request, one fewer than its tokens."""
        return np.asarray(np.asarray(self.output, dtype=np.float64) - 1.0)


def _refuse(name: str, given: Array, good: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], allowed: str) -> None:
    if not good.all():
        wrong = given[~good].ravel()[0]
        raise UsageError(f"{name}={wrong:g}; allowed: {allowed}")
