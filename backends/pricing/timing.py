"""A program on a system for a table of plans: every node's time, priced once a distinct value of its symbols."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import groupby
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UsageError
from ...ir.plan import PlanTable
from ...ir.records import dataclass
from ...ir.sizes.points import Points
from ..kernels.terms import KernelTimes
from ..machine.system import System
from ..network.collectives import CollectiveTime
from .binding import BoundKernels, BoundProgram, BoundTable, Messages, bind
from .exchanges import exchanges
from .places import PlacedLevels, places_of, points_of
from .program import CompiledProgram, MergedEntries, PricedEntry, PricingGroup
from .riding import along, taken_along
from .roofline import Backend
from .tallies import Tallies

Array = NDArray[np.float64]
Index = NDArray[np.intp]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class PricedGroup:
    """One group priced at its distinct points.

    Attributes:
        group: its entries.
        distinct_s: seconds of its distinct entries, as (entry, point).
        point: which point each plan is.
        backend: what priced it.
        of_distinct: what the kernel model said of each distinct entry.
        messages: bytes of each message.
        collective: what the network made of them, algorithm by algorithm: entries x points in one row.
        merged: which of the distinct entries each entry equals; None where each is priced by itself.
    """

    group: PricingGroup
    distinct_s: Array
    point: NDArray[np.intp]
    backend: Backend | None = None
    of_distinct: KernelTimes | None = None
    messages: Array | None = None
    collective: CollectiveTime | None = None
    merged: MergedEntries | None = None

    @property
    def row(self) -> Index | slice:
        """The place of each entry among the distinct ones."""
        return slice(None) if self.merged is None or self.merged.row is None else self.merged.row

    @cached_property
    def time_s(self) -> Array:
        """Seconds of every entry, as (entry, point)."""
        return self.distinct_s[self.row]

    def seconds_of(self, entry: int) -> Array:
        """Return the seconds of one entry, plan by plan."""
        row = entry if isinstance(self.row, slice) else self.row[entry]
        return np.asarray(self.distinct_s[row][self.point])

    @cached_property
    def kernels(self) -> KernelTimes | None:
        """What the kernel model said of every entry."""
        of = self.of_distinct
        if of is None or isinstance(self.row, slice):
            return of
        row, shape = self.row, of.time_s.shape
        terms = {name: np.broadcast_to(term, shape)[row] for name, term in of.terms.items()}
        return KernelTimes(of.time_s[row], terms)


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of every node under every plan, kept in the compact form in which it was computed.

    `tables` are what was priced, in the order of `priced`, with its expressions compiled.
    """

    program: CompiledProgram
    priced: tuple[PricedGroup, ...]
    num_plans: int
    tallies: Tallies = field(default_factory=Tallies, compare=False, repr=False)
    tables: tuple[BoundTable, ...] = field(default=(), compare=False, repr=False)

    def sizes(self, env: Callable[[Sequence[str]], tuple[Mapping[str, Array], int]]) -> Iterator[Array]:
        """Evaluate the expressions of every group of `priced` again, at points that `env` gives for some symbols.

        Of groups that compute, those of the distinct entries. Sizes take more room than times: they are not kept.
        """
        for table in self.tables:
            values = table.source.exprs.evaluate(*env(table.source.symbols))
            yield from (values[kernels.rows] for kernels in table.kernels)
            yield from (values[messages.rows.start : messages.ranks.stop] for messages in table.messages)

    def sums(self, label: Callable[[PricedEntry], K | None], once: bool = False) -> Mapping[K, Array]:
        """Add up times by label; None leaves an entry out. Seconds, plan by plan.

        Of one pass over the model, a repeated region as often as it runs; with `once`, of one run of each region.
        """
        stacks = [tuple(same) for _, same in groupby(self.priced, lambda p: id(p.point))]
        places = [[(p.group.entries, p.row) for p in stack] for stack in stacks]
        out: dict[K, Array] = {}
        for stack, tally in zip(stacks, self.tallies.of(places, label, once), strict=True):
            parts = tally.sums.of_rows(np.concatenate([p.distinct_s for p in stack]))[:, stack[0].point]
            for key, part in zip(tally.labels, parts, strict=True):
                out[key] = out[key] + part if key in out else part
        return out

    def find(self, name: str) -> tuple[PricedGroup, int]:
        """Return the group and row of a node by its name `region/%key`; KeyError when it is not priced."""
        for p in self.priced:
            for row, entry in enumerate(p.group.entries):
                if entry.name == name:
                    return p, row
        raise KeyError(name)

    def rows(self, plan: int = 0) -> Iterable[tuple[PricedEntry, float]]:
        """Yield every priced node with its time under one plan."""
        for p in self.priced:
            for row, entry in enumerate(p.group.entries):
                yield entry, float(p.time_s[row, p.point[plan]])


def annotate(
    program: CompiledProgram,
    system: System,
    plans: PlanTable,
    backends: Sequence[Backend] | None = None,
    points: Points | None = None,
) -> Timing:
    """Price every node; the first backend that claims an entry prices it. The default are the built-in models.

    UnsupportedOpError when no backend claims a node.
    """
    return price(bind(program, system, backends), points or Points(plans))


def price(bound: BoundProgram, points: Points) -> Timing:
    """Price every node of a program that is bound to a system; of a table of machines each plan has its own.

    UsageError where there are not as many plans as machines.
    """
    levels = bound.system.levels
    placed = [points_of(table.source, points, levels) for table in bound.tables]
    values = [
        table.source.exprs.evaluate(env, int(point.max()) + 1)
        for table, (env, point) in zip(bound.tables, placed, strict=True)
    ]
    rows = [point for _, point in placed]
    places = places_of(levels, points, bound.program.order, placed)
    if bound.num_machines is not None:
        which, _ = _row_by_row(places.which, rows, bound.num_machines)
        places = PlacedLevels(places.levels, which)
        values, rows = _row_by_row(values, rows, bound.num_machines)
    batches = exchanges(bound, values, places)
    priced: list[PricedGroup] = []
    for k, table in enumerate(bound.tables):
        # Degrees of the axes whose all-reduces may take kernels along, point by point; none where the stack has none.
        if not bound.system.stack.fused_all_reduce:
            degrees = {}
        else:
            env, point = placed[k]
            axes = {e.behind for kernels in table.kernels for e in kernels.merged.distinct.entries} & env.keys()
            degrees = {str(axis): env[axis] if bound.num_machines is None else env[axis][point] for axis in axes}
        priced += [_computed(kernels, values[k], rows[k], bound, degrees) for kernels in table.kernels]
        sent = enumerate(table.messages)
        priced += [_sent(m, values[k], rows[k], batches[k, i], bound.num_machines) for i, m in sent]
    return Timing(bound.program, tuple(priced), points.num_plans, bound.tallies, bound.tables)


def _row_by_row(values: Sequence[Array], points: Sequence[Index], num_machines: int) -> tuple[list[Array], list[Index]]:
    """Give every machine a point of its own; sizes that all plans have in common stay one column."""
    every = np.arange(num_machines)
    if any(len(point) != num_machines for point in points):
        raise UsageError(f"a table of {num_machines} machines needs as many plans, one a row, not {len(points[0])}")
    wide = [v if v.shape[1] == 1 else v[:, point] for v, point in zip(values, points, strict=True)]
    return wide, [every] * len(wide)


def _computed(
    kernels: BoundKernels, values: Array, point: Index, bound: BoundProgram, degrees: Mapping[str, Array]
) -> PricedGroup:
    rows, spacing = values[kernels.rows], np.array(bound.system.stack.spacing_s)
    group = kernels.merged.distinct
    times = kernels.price(group.amounts_in(rows))
    if degrees and any(e.behind for e in group.entries):
        rides = taken_along(group.entries, degrees)
        times, spacing = along(times, rides), np.where(rides, 0.0, spacing)
    issued = np.maximum(times.time_s * kernels.factors, spacing)
    if bound.num_machines is not None:
        issued = np.broadcast_to(issued, (len(issued), bound.num_machines))
    return PricedGroup(kernels.merged.group, issued, point, kernels.backend, times, merged=kernels.merged)


def _sent(
    messages: Messages, values: Array, point: Index, time: CollectiveTime, num_machines: int | None
) -> PricedGroup:
    shape = len(messages.group.entries), num_machines or values.shape[1]
    lasting = np.asarray(time.time_s).reshape(shape) * messages.factor
    return PricedGroup(messages.group, lasting, point, messages=values[messages.rows], collective=time)
