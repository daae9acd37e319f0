"""What servers are made of: units of devices, how many of them, pairs of units for pools; by counting alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ...ir.plan.case import divisors
from .space import ServingSpace

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """Degrees of a replica; and where its ranks share experts with those of others, of all of them.

    Attributes:
        num_gpus: devices of one replica.
        tp: tensor parallelism.
        pp: pipeline stages.
        ep: ranks over which whole experts are sharded; 1: they are split.
        etp: tensor parallelism inside experts.
        dp: replicas whose steps begin and end together, since they share experts; 0 for any number that do not.
        cp: ranks that share out the cached tokens of a decode step.
    """

    num_gpus: int
    tp: int
    pp: int
    ep: int
    etp: int
    dp: int
    cp: int = 1

    @property
    def whole(self) -> bool:
        """Whether experts are sharded whole though ranks have tensor parallelism."""
        return self.ep > 1 and self.etp == 1 and self.tp > 1

    @property
    def spread(self) -> bool:
        """Whether experts are split over ranks that attend apart."""
        return self.etp > self.tp


def units_of(space: ServingSpace, has_experts: bool, tp: Sequence[int], pp: Sequence[int]) -> tuple[Unit, ...]:
    """Return units of at most as many devices as there are, small ones first."""
    usual = _usual(space.gpus)
    found: set[Unit] = set()
    for t, p, c in product(tp or usual, pp or usual, sorted(set(space.cp))):
        if t * p * c > space.gpus:
            continue
        if not space.ep or 1 in space.ep:
            found |= {Unit(t * p * c, t, p, 1, t, 0, c)} if not space.etp or t in space.etp else set()
        if has_experts:
            found |= set(_coupled(space, t, p, c))
    return tuple(sorted(found))


def _usual(most: int) -> list[int]:
    """Powers of two up to a number, and what divides it.

    >>> _usual(12)
    [1, 2, 3, 4, 6, 8, 12]
    """
    return sorted({*divisors(most), *(2**k for k in range(most.bit_length()))})


def _coupled(space: ServingSpace, tp: int, pp: int, cp: int) -> Iterator[Unit]:
    """Yield units whose replicas share experts: sharded over some or all of them, whole or split over tp as well."""
    num = tp * pp * cp
    most = space.gpus // num
    counts = {n for n in (*_usual(space.gpus), most) if n <= most} if space.uses_fewer else {most}
    for dp in space.dp or sorted(counts):
        if dp > most:
            continue
        for inside in divisors(dp):
            ways = [(inside * tp, 1), (inside, tp)] if tp > 1 else [(inside, 1)]
            yield from (Unit(num, tp, pp, ep, etp, dp, cp) for ep, etp in ways if _wanted(space, ep, etp, tp))
            if cp == 1 and tp * inside in space.etp and inside > 1 and (not space.ep or 1 in space.ep):
                yield Unit(num, tp, pp, 1, tp * inside, dp, cp)


def _wanted(space: ServingSpace, ep: int, etp: int, tp: int) -> bool:
    return ep > 1 and (not space.ep or ep in space.ep) and (not space.etp or etp in space.etp) and etp in (1, tp)


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """Servers of one unit, or of one pair of units: how many of it, and requests in flight, are numbers.

    Attributes:
        unit: a replica; of pools a worker of answers.
        first: a worker of prompts; None where replicas do both.
        workers: replicas, or workers of answers; one for each way to use devices.
        prompts: workers of prompts beside them; zeros where there are none.
        at_once: prompts that a worker of prompts runs at once; tried with each of these ways.
    """

    unit: Unit
    first: Unit | None
    workers: Counts
    prompts: Counts
    at_once: tuple[int, ...] = (0,)

    @property
    def num_servers(self) -> int:
        """Ways to use devices, and batches of prompts with each."""
        return len(self.workers) * len(self.at_once)


@dataclass(frozen=True, slots=True)
class SettingPart:
    """Candidates of one setting, group by group; those of a group are servers times numbers of requests in flight.

    Attributes:
        groups: in order.
        ends: number of candidates up to the end of each.
        num_loads: candidates of each server.
    """

    groups: tuple[ServerGroup, ...]
    ends: NDArray[np.int64]
    num_loads: int

    @classmethod
    def of(cls, groups: Sequence[ServerGroup], num_loads: int) -> SettingPart:
        """Count them."""
        counts = [group.num_servers * num_loads for group in groups]
        return cls(tuple(groups), np.cumsum(np.array(counts, dtype=np.int64)), num_loads)

    @property
    def num_candidates(self) -> int:
        """All of them."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def pieces(self, first: int, last: int) -> Iterator[tuple[ServerGroup, int, int]]:
        """Yield groups with their own candidates from `first` to before `last` of the part."""
        at = int(np.searchsorted(self.ends, first, side="right"))
        while first < last:
            begin = int(self.ends[at - 1]) if at else 0
            stop = min(last, int(self.ends[at]))
            yield self.groups[at], first - begin, stop - begin
            first, at = stop, at + 1


def replicas_of(space: ServingSpace, has_experts: bool) -> Iterator[ServerGroup]:
    """Yield groups of replicas that do both phases."""
    for unit in units_of(space, has_experts, space.tp, space.pp):
        counts = _replicas(space, unit)
        if len(counts):
            yield ServerGroup(unit, None, counts, np.zeros_like(counts))


def _replicas(space: ServingSpace, unit: Unit) -> Counts:
    most = space.gpus // unit.num_gpus
    if unit.dp:
        return np.array([unit.dp])
    if space.dp:
        return np.array([n for n in sorted(set(space.dp)) if n <= most], dtype=np.int64)
    return np.arange(1 if space.uses_fewer else most, most + 1)


def pools_of(space: ServingSpace, has_experts: bool) -> Iterator[ServerGroup]:
    """Yield groups of pools, for pairs of units that deal experts out alike."""
    # A worker of one phase has one degree of context parallelism for both in a plan: pools are tried without.
    answers = [u for u in units_of(space, has_experts, space.tp, space.pp) if not u.spread and u.cp == 1]
    of_prompts = units_of(space, has_experts, space.prefill_tp or space.tp, space.prefill_pp or space.pp)
    prompts = [u for u in of_prompts if u.cp == 1]
    for unit, first in product(answers, prompts):
        # Whether one flag says of both how experts lie in their ranks; with one rank there is nothing to
        # say.
        if (
            first.spread
            or first.ep != unit.ep
            or not (first.ep == 1 or 1 in (first.tp, unit.tp) or first.whole == unit.whole)
        ):
            continue
        num_prompts, workers = _workers(space, first, unit)
        if len(workers):
            yield ServerGroup(unit, first, workers, num_prompts, tuple(sorted(set(space.prefill_batch))))


def _workers(space: ServingSpace, first: Unit, unit: Unit) -> tuple[Counts, Counts]:
    """Workers of prompts and of answers beside them: in every way, or for each number of the first all that fit."""
    most = max((space.gpus - unit.num_gpus) // first.num_gpus, 0)
    prompts = np.arange(1, most + 1)
    if first.dp:
        prompts = prompts[prompts == first.dp]
    room = (space.gpus - prompts * first.num_gpus) // unit.num_gpus
    given = (unit.dp,) if unit.dp else tuple(sorted(set(space.dp)))
    if given:
        fits = np.array(given)[None, :] <= room[:, None]
        return np.repeat(prompts, fits.sum(axis=1)), np.broadcast_to(np.array(given), fits.shape)[fits]
    if not space.uses_fewer:
        return prompts, room
    before = np.cumsum(room) - room
    return np.repeat(prompts, room), np.arange(room.sum()) - np.repeat(before, room) + 1
