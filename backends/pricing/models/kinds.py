"""Entries of a group priced kind by kind, each kind under constants of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from ...kernels.terms import KernelTimes
from ..amounts import Amounts, Array, Index
from ..roofline import Pricer

K = TypeVar("K", bound=Hashable)
# Entries of one kind; a slice where that is all of them.
Rows: TypeAlias = Index | slice
# The dtype whose constants serve those that have none of their own.
USUAL = "bf16"


def first_kind(kinds: Mapping[str, object], *names: str) -> str:
    """Return the first of these kinds that there are constants of; the last is there always.

    >>> first_kind({"bf16": 0}, "fp16", "bf16")
    'bf16'
    """
    return next((name for name in names if name in kinds), names[-1])


def by_kind(kinds: Sequence[K], bound: Callable[[K, Rows], Pricer]) -> Pricer:
    """Bind entries kind by kind; the pricer puts the answers back in their order, entries x points.

    Terms that a kind lacks are zero.
    """
    if len(set(kinds)) == 1:
        return bound(kinds[0], slice(None))
    members = {kind: np.flatnonzero([k == kind for k in kinds]) for kind in dict.fromkeys(kinds)}
    pricers = [(rows, bound(kind, rows)) for kind, rows in members.items()]

    def price(amounts: Amounts) -> KernelTimes:
        found = [(rows, of_kind(amounts)) for rows, of_kind in pricers]
        shape = (len(kinds), max(times.time_s.shape[1] for _, times in found))
        time_s, terms = np.zeros(shape), dict[str, Array]()
        for rows, times in found:
            time_s[rows] = times.time_s
            for name, seconds in times.terms.items():
                terms.setdefault(name, np.zeros(shape))[rows] = seconds
        return KernelTimes(time_s, terms)

    return price
