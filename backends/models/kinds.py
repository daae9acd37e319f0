"""Entries of a group priced kind by kind, each kind under constants of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from ..amounts import Array, Index
from ..kernels.terms import KernelTimes

K = TypeVar("K", bound=Hashable)
# The dtype whose constants serve those that have none of their own.
USUAL = "bf16"


def first_kind(kinds: Mapping[str, object], *names: str) -> str:
    """Return the first of these kinds that there are constants of; the last is there always.

    >>> first_kind({"bf16": 0}, "fp16", "bf16")
    'bf16'
    """
    return next((name for name in names if name in kinds), names[-1])


def by_kind(kinds: Sequence[K], shape: tuple[int, ...], price: Callable[[K, Index], KernelTimes]) -> KernelTimes:
    """Price entries kind by kind and put the answers back in their order, entries x points.

    Terms that a kind lacks are zero.
    """
    found: dict[K, list[int]] = {}
    for i, kind in enumerate(kinds):
        found.setdefault(kind, []).append(i)
    if len(found) == 1:
        times = price(kinds[0], np.arange(len(kinds)))
        return KernelTimes(np.broadcast_to(times.time_s, shape), times.terms)
    time_s, terms = np.zeros(shape), dict[str, Array]()
    for kind, members in found.items():
        rows = np.array(members, dtype=np.intp)
        times = price(kind, rows)
        time_s[rows] = times.time_s
        for name, seconds in times.terms.items():
            terms.setdefault(name, np.zeros(shape))[rows] = seconds
    return KernelTimes(time_s, terms)
