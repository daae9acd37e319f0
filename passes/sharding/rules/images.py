"""Sharding of windows and of norms over channels by the letters of their spec: what is handed on keeps its shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ....ir.graph import Phase
from ....ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from ..ask import (
    PARTIAL,
    REPLICATE,
    Answer,
    Ask,
    Partial,
    Placement,
    Rule,
    Shard,
    per_replica,
    replicate_all,
    shares_samples,
)


def by_letters(ask: Ask) -> Answer:
    """A letter that all results have may be sharded, with the operands that have it; samples run where they are.

    The way back is linear in the gradient, its first operand: there a partial sum stays one, and a result without the
    letter is a sum. A forward result without that of the samples is a replica's own: the statistics of a batch norm.
    """
    attrs = ask.call.attrs
    letters = attrs.letters if isinstance(attrs, WindowAttrs | ChannelNormAttrs) else ()
    count = len(ask.given)
    if ask.phase is Phase.BACKWARD and isinstance(ask.given[0], Partial) and all(p == REPLICATE for p in ask.given[1:]):
        return Answer((PARTIAL, *(REPLICATE,) * (count - 1)), (PARTIAL,) * ask.num_outputs)
    if shares_samples(ask):
        return per_replica(ask)
    for letter in _sharded(ask, letters):
        if all(letter in word for word in letters[count:]) or _adds_up(ask, letters, letter):
            return _along(ask, letters, letter)
    return replicate_all(ask)


def _adds_up(ask: Ask, letters: Sequence[str], letter: str) -> bool:
    """Whether results without the letter are sums over it: of the way back, where no statistic is taken over it."""
    attrs, dx = ask.call.attrs, letters[len(ask.given)]
    if ask.phase is not Phase.BACKWARD or letter not in letters[0] or letter not in dx:
        return False
    if not isinstance(attrs, ChannelNormAttrs) or attrs.given:
        return True
    return attrs.kind == "group" and letter == letters[0][0]


def _sharded(ask: Ask, letters: Sequence[str]) -> Iterator[str]:
    """Yield the letters of sharded dims, operand by operand."""
    for i in range(len(ask.given)):
        p = ask.whole(i)
        if isinstance(p, Shard):
            yield letters[i][p.dim]


def _along(ask: Ask, letters: Sequence[str], letter: str) -> Answer:
    """All that have the letter are sharded along it, packed where one of them is."""
    wholes = [ask.whole(i) for i in range(len(ask.given))]
    packed = any(
        isinstance(p, Shard) and p.packed and w[p.dim] == letter for p, w in zip(wholes, letters, strict=False)
    )
    lain: list[Placement] = [Shard(w.index(letter), packed) if letter in w else REPLICATE for w in letters]
    made = [PARTIAL if p == REPLICATE else p for p in lain[len(wholes) :]]
    return Answer(tuple(lain[: len(wholes)]), tuple(made))


RULES: Mapping[str, Rule] = dict.fromkeys(("window", "window_bwd", "channel_norm", "channel_norm_bwd"), by_letters)
