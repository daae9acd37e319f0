"""Kernels as calls of operators: what one call launched is one thing, as a node is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.records import dataclass
from ..traces.kinds import KernelKind
from ..traces.ran import Flags, Floats, Ints
from ..traces.trace import KINDS, RankTrace
from .sizes import Key, key_of, message_key


@dataclass(frozen=True, slots=True)
class OpCalls:
    """OpCalls in the order of their launches, as columns.

    `longest` is the kernel that took most of a call: it names it, and is of its class. `key` is the place of its sizes
    in `keys`, -1 where they are not known. `step` is -1 outside of all marked steps.
    """

    longest: Ints
    kind: Ints
    key: Ints
    stretch: Ints
    step: Ints
    time_us: Floats
    keys: tuple[Key, ...]

    def __len__(self) -> int:
        """How many."""
        return len(self.longest)


def calls_of(trace: RankTrace) -> OpCalls:
    """Return the calls of a trace; a kernel that no operator launched is one by itself."""
    ran = trace.ran
    alone = ran.call < 0
    call = np.where(alone, int(ran.call.max(initial=0)) + 1 + np.cumsum(alone), ran.call)
    _, which = np.unique(call, return_inverse=True)
    which = which.reshape(-1)
    time_us: Floats = np.bincount(which, ran.time_us).astype(np.float64)
    # Sorted by call and time, the last kernel of each call is the longest.
    order = np.lexsort((ran.time_us, which))
    longest = order[np.append(np.flatnonzero(np.diff(which[order])), len(order) - 1)]
    first = np.full(len(time_us), np.inf)
    np.minimum.at(first, which, ran.launched_us)
    in_order = np.argsort(first, kind="stable")
    longest, time_us = longest[in_order], time_us[in_order]
    key, keys = _keys(trace, longest)
    kind = trace.kind[longest]
    if not trace.on_device:
        # Which operators of a CPU only call one of their own class, which does the work.
        call = ran.call[longest]
        around = ran.around[longest]
        kind_of = np.full(int(call.max(initial=-1)) + 2, -1, dtype=np.int64)
        kind_of[call] = kind
        inside = np.zeros(len(kind_of), dtype=np.bool_)
        inside[around[(kind_of[around] == kind) & (around >= 0)]] = True
        outer: Flags = inside[call] & (kind != KINDS.index(KernelKind.POINTWISE))
        kind, key = np.where(outer, KINDS.index(KernelKind.POINTWISE), kind), np.where(outer, -1, key)
    return OpCalls(longest, kind, key, ran.stretch[longest], trace.step_of[longest], time_us, keys)


def _keys(trace: RankTrace, rows: Ints) -> tuple[Ints, tuple[Key, ...]]:
    ran = trace.ran
    told = np.stack((trace.kind[rows], ran.op[rows], ran.inputs[rows], ran.message[rows], ran.name[rows]))
    distinct, first, which = np.unique(told, axis=1, return_index=True, return_inverse=True)
    numbers: dict[Key, int] = {}
    at = [_key(trace, KINDS[kind], int(rows[k])) for kind, k in zip(distinct[0], first.tolist(), strict=True)]
    key = np.array([-1 if k is None else numbers.setdefault(k, len(numbers)) for k in at], dtype=np.int64)
    return key[which.reshape(-1)], tuple(numbers)


def _key(trace: RankTrace, kind: KernelKind, row: int) -> Key | None:
    if kind is KernelKind.COLLECTIVE:
        return message_key(trace.message(row))
    return key_of(kind, trace.name(int(trace.ran.op[row])), trace.inputs[int(trace.ran.inputs[row])])


def in_steps(calls: OpCalls, num_steps: int) -> Sequence[Ints]:
    """Return the calls of each step; of a trace without marks all of them, as one."""
    if num_steps == 0:
        return [np.arange(len(calls))]
    return [np.flatnonzero(calls.step == step) for step in range(num_steps)]
