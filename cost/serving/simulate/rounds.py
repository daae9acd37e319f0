"""Speculative decoding in steps: a draft of some tokens, one pass that checks them, and how many of them are kept."""

from __future__ import annotations

import numpy as np

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ..batching.times import Array, Curve, StepTimes
from ..traffic.traffic import Index


@dataclass(frozen=True, slots=True)
class Rounds:
    """Decode steps in which `length` tokens are drafted and checked, each kept with a chance if all before it are.

    Attributes:
        length: tokens of a draft.
        acceptance: chance that a drafted token is kept.
        draft_s: what all drafts of a round take, over the sequences; None where they cost nothing, as copied ones.
        drawn: how many are kept is drawn for each round; else each round makes the mean.
        seed: of what is drawn.
    """

    length: int
    acceptance: float
    draft_s: Curve | None = None
    drawn: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.length < 1 or not 0 <= self.acceptance <= 1:
            given = f"a draft of {self.length} tokens with acceptance {self.acceptance:g}"
            raise UsageError(f"drafts have 1 token or more and an acceptance of 0 to 1, not {given}")

    @property
    def tokens(self) -> float:
        """Tokens that a round makes on average: `1 + a + ... + a^g`, the last of them from the check itself.

        Source: Leviathan et al., arXiv 2211.17192, equation 1.

        >>> round(Rounds(4, 0.8).tokens, 4), round(Rounds(8, 0.8).tokens, 4)
        (3.3616, 4.3289)
        """
        return float(sum(np.power(self.acceptance, i) for i in range(self.length + 1)))

    def round_s(self, times: StepTimes, batch: int, context: Array) -> Array:
        """Return the time of a round: drafts, all tokens through the weights, keys and values read once."""
        drafts = 0.0 if self.draft_s is None else self.draft_s(float(batch))
        checked = times.decode_rest(float(batch * (self.length + 1)))
        return np.asarray(drafts + checked + times.decode_attention(float(batch), context))

    def needed(self, tokens: Index) -> Index:
        """Return the rounds in which each of some requests makes its tokens; the last may make more than are wanted."""
        if not self.drawn:
            return np.ceil(tokens / self.tokens - 1e-9).astype(np.int64)
        random, left = np.random.default_rng(self.seed), tokens.copy()
        rounds = np.zeros_like(tokens)
        while len(open_ := np.flatnonzero(left > 0)):
            rounds[open_] += 1
            left[open_] -= 1 + _kept(random, len(open_), self.acceptance, self.length)
        return rounds


def _kept(random: np.random.Generator, num: int, acceptance: float, length: int) -> Index:
    """Drafted tokens that are kept in each of some rounds: those before the first that is not."""
    if acceptance >= 1.0:
        return np.full(num, length, dtype=np.int64)
    if acceptance <= 0.0:
        return np.zeros(num, dtype=np.int64)
    return np.minimum(random.geometric(1.0 - acceptance, num) - 1, length)
