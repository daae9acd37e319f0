"""A program on a system for a table of plans: every node's time, priced once a distinct value of its symbols."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import UnsupportedOpError
from ..ir.plan import PlanTable
from ..ir.points import Points
from .kernels.terms import KernelTimes
from .models.built_in import built_in
from .network.collectives import CollectiveTime, collective_time
from .network.menu import Collective
from .program import Entry, Group, Program, group_factors, group_of
from .roofline import Backend
from .system import System

Array = NDArray[np.float64]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Priced:
    """One group priced at its distinct points: `point` says which of them each plan is, `backend` what priced it."""

    group: Group
    time_s: Array
    point: NDArray[np.intp]
    backend: Backend | None = None
    kernels: KernelTimes | None = None
    messages: Array | None = None
    collective: CollectiveTime | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of every node under every plan, kept in the compact form in which it was computed."""

    program: Program
    priced: tuple[Priced, ...]
    num_plans: int

    def sums(self, label: Callable[[Entry], K | None], once: bool = False) -> Mapping[K, Array]:
        """Add up times by label; None leaves an entry out. Seconds, plan by plan.

        Of one pass over the model, a repeated region as often as it runs; with `once`, of one run of each region.
        """
        out: dict[K, Array] = {}
        for p in self.priced:
            for key, weights in _weights(p.group.entries, label, once).items():
                part = _weighted(weights, p.time_s)[p.point]
                out[key] = out[key] + part if key in out else part
        return out

    def find(self, name: str) -> tuple[Priced, int]:
        """Return the group and row of a node by its name `region/%key`; KeyError when it is not priced."""
        for p in self.priced:
            for row, entry in enumerate(p.group.entries):
                if entry.name == name:
                    return p, row
        raise KeyError(name)

    def rows(self, plan: int = 0) -> Iterable[tuple[Entry, float]]:
        """Yield every priced node with its time under one plan."""
        for p in self.priced:
            for row, entry in enumerate(p.group.entries):
                yield entry, float(p.time_s[row, p.point[plan]])


def annotate(
    program: Program,
    system: System,
    plans: PlanTable,
    backends: Sequence[Backend] | None = None,
    points: Points | None = None,
) -> Timing:
    """Price every node; the first backend that claims an entry prices it. The default are the built-in models.

    UnsupportedOpError when no backend claims a node.
    """
    points = points or Points(plans)
    models = built_in(system.kernels) if backends is None else backends
    priced = [_price_compute(part, points, system, b) for g in program.compute for b, part in _claimed(g, models)]
    priced += [_price_communication(g, points, system, program.order) for g in program.communication]
    return Timing(program, tuple(priced), len(plans))


def _claimed(group: Group, backends: Sequence[Backend]) -> Iterable[tuple[Backend, Group]]:
    """Split a group by the backend that claims each entry; usually one backend claims all."""
    owner = [_owner(entry, backends) for entry in group.entries]
    for index in sorted(set(owner)):
        mine = tuple(e for e, i in zip(group.entries, owner, strict=True) if i == index)
        yield backends[index], group if len(mine) == len(owner) else group_of(group.symbols, mine)


def _owner(entry: Entry, backends: Sequence[Backend]) -> int:
    for index, backend in enumerate(backends):
        if backend.claims(entry):
            return index
    raise UnsupportedOpError(f"no backend prices '{entry.op}' at '{entry.scope}' ({entry.name})")


def _price_compute(group: Group, points: Points, system: System, backend: Backend) -> Priced:
    env, point = points.of(group.symbols)
    num = int(point.max()) + 1
    times = backend.time(group, group.amounts(env, num), system)
    lasting = times.time_s * system.stack.factor(group.entries[0].kind)
    issued = np.maximum(lasting, system.stack.spacing_s)
    return Priced(group, np.broadcast_to(issued, (len(group.entries), num)), point, backend, times)


def _price_communication(group: Group, points: Points, system: System, order: str) -> Priced:
    env, point = points.of(group.symbols)
    num = int(point.max()) + 1
    messages = group.table.evaluate(env, num)
    (size, stride), *more = group_factors(group.axis, env, order)
    found = collective_time(_kind(group), messages, size, stride, system, more, group.across)
    lasting = np.asarray(found.time_s, dtype=np.float64) * system.stack.slowdown.of(group.axis)
    times = np.broadcast_to(lasting, messages.shape)
    return Priced(group, times, point, messages=messages, collective=found)


def _kind(group: Group) -> Collective:
    """A receive takes as long as the send it waits for."""
    for kind in get_args(Collective):
        if kind == group.collective.replace("recv", "send"):
            return cast(Collective, kind)
    raise UnsupportedOpError(f"no time model for collective '{group.collective}'")


def _weighted(weights: Array, rows: Array) -> Array:
    """Sum of weighted rows, one after the other: the same for one plan as for that plan among many."""
    total = np.zeros(rows.shape[1])
    for i in np.flatnonzero(weights):
        total = total + weights[i] * rows[i]
    return total


def _weights(entries: Sequence[Entry], label: Callable[[Entry], K | None], once: bool) -> dict[K, Array]:
    """One row of repetition counts a label: its product with the times is the label's time."""
    out: dict[K, Array] = {}
    for row, entry in enumerate(entries):
        key = label(entry)
        if key is not None:
            out.setdefault(key, np.zeros(len(entries)))[row] = 1 if once else entry.count
    return out
