"""A program on a system: all that does not depend on plans looked up, so that a table is priced in few calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import field
from operator import is_
from typing import cast, get_args

import numpy as np

from ...ir.errors import UnsupportedOpError, UsageError
from ...ir.records import dataclass
from ..machine.system import System
from ..machine.system_table import num_machines
from ..network.algorithms.algorithm import Collective
from ..network.collectives import CollectiveModel
from .amounts import Array, Index
from .models.built_in import built_in
from .program import CompiledProgram, MergedEntries, PricedEntry, PricingGroup, PricingTable, group_of
from .roofline import Backend, Pricer
from .tallies import Tallies


@dataclass(frozen=True, slots=True)
class BoundKernels:
    """A compute group, what prices it, its rows in its pricing table, and how much longer it takes in a step.

    Rows and factors are those of its distinct entries.
    """

    merged: MergedEntries
    backend: Backend
    price: Pricer
    rows: slice
    factors: Array


@dataclass(frozen=True, slots=True)
class Messages:
    """A communication group in its pricing table.

    Attributes:
        group: the messages.
        kind: the collective.
        rows: its messages in its pricing table.
        ranks: the rows of size and stride of each stretch of ranks.
        factor: time in a step over time alone.
    """

    group: PricingGroup
    kind: Collective
    rows: slice
    ranks: range
    factor: float


@dataclass(frozen=True, slots=True)
class BoundTable:
    """A pricing table whose groups are bound: compute groups to backends, messages to collectives."""

    source: PricingTable
    kernels: tuple[BoundKernels, ...]
    messages: tuple[Messages, ...]


@dataclass(frozen=True, slots=True)
class CollectiveBatch:
    """Messages of one table that are priced together: by row, with the ranks that take part.

    Attributes:
        table: place of the table among those of the program.
        messages: the groups with their places among those of the table.
        rows: the messages of all.
        factors: rows of size and stride of each stretch of ranks.
        copies: what the first size is to be divided by, one number a message.
    """

    table: int
    messages: tuple[tuple[int, Messages], ...]
    rows: Index
    factors: tuple[tuple[Index, Index], ...]
    copies: Array


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """A program bound to a system: tables of kernels, and models of the network, each with what is priced by it.

    `num_machines` is the length of a table of machines, None where the system is a single one.
    """

    program: CompiledProgram
    system: System
    num_machines: int | None
    tables: tuple[BoundTable, ...]
    batches: tuple[tuple[CollectiveModel, tuple[CollectiveBatch, ...]], ...]
    tallies: Tallies = field(default_factory=Tallies, compare=False, repr=False)


class Bindings:
    """A program bound to the system that was asked for last, by backends of the user and then the built-in models."""

    __slots__ = ("_bound", "_first", "_program")

    def __init__(self, program: CompiledProgram, first: Sequence[Backend] = ()) -> None:
        """Bind nothing yet; `first` are backends that are asked before the built-in models."""
        self._program, self._first = program, tuple(first)
        self._bound: BoundProgram | None = None

    @property
    def are_built_in(self) -> bool:
        """Whether the built-in models alone price the program."""
        return not self._first

    def to(self, system: System) -> BoundProgram:
        """Return the program bound to a system, the same object for the same system."""
        if self._bound is None or self._bound.system is not system:
            self._bound = self.anew(system)
        return self._bound

    def anew(self, system: System) -> BoundProgram:
        """Return the program bound to a system, which is not kept; UsageError where two backends have one name."""
        models = (*self._first, *built_in(system.kernels))
        names = [model.name for model in models]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError(f"two backends are called '{twice[0]}'; names in use: {', '.join(names)}")
        return bind(self._program, system, models)

    def behind(self, first: Sequence[Backend]) -> Bindings:
        """Return the same program for other backends of the user."""
        return Bindings(self._program, first)


def bind(program: CompiledProgram, system: System, backends: Sequence[Backend] | None = None) -> BoundProgram:
    """Bind a program to a system; the first backend that claims an entry prices it, by default a built-in model.

    UnsupportedOpError when no backend claims a node, or no collective is of its kind.
    """
    models = built_in(system.kernels) if backends is None else backends
    tables = tuple(_bound_table(source, system, models) for source in program.tables)
    return BoundProgram(program, system, num_machines(system), tables, _batches(tables, system))


def _bound_table(source: PricingTable, system: System, models: Sequence[Backend]) -> BoundTable:
    claimed = [pair for m in source.merged if not m.group.axis for pair in _claimed(m, models, system)]
    merged = (*(m for _, m in claimed), *(m for m in source.merged if m.group.axis))
    same = len(merged) == len(source.merged) and all(map(is_, merged, source.merged))
    whole = source if same else PricingTable.of(source.symbols, merged)
    kernels, messages, row = list[BoundKernels](), list[Messages](), 0
    for k, one in enumerate(whole.merged):
        group = one.distinct
        rows = slice(row, row + len(group.exprs))
        if k < len(claimed):
            backend = claimed[k][0]
            factors = np.array([[system.stack.factor(e.kind)] for e in group.entries])
            kernels.append(BoundKernels(one, backend, backend.bind(group, system), rows, factors))
        else:
            stop = row + len(group.entries)
            ranks = range(stop, row + len(group.exprs))
            messages.append(
                Messages(group, _kind(group), slice(row, stop), ranks, system.stack.slowdown.of(group.axis))
            )
        row = rows.stop
    return BoundTable(whole, tuple(kernels), tuple(messages))


def _claimed(
    merged: MergedEntries, backends: Sequence[Backend], system: System
) -> Iterable[tuple[Backend, MergedEntries]]:
    """Split a group by the backend that claims each entry; usually one backend claims all.

    What a backend of the user looks at is its own affair: to it, no two entries are equal.
    """
    group, plain = merged.group, built_in(system.kernels)
    owner = [_owner(entry, backends) for entry in group.entries]
    for index in sorted(set(owner)):
        mine = tuple(e for e, i in zip(group.entries, owner, strict=True) if i == index)
        some = group if len(mine) == len(owner) else group_of(group.symbols, mine)
        if backends[index] in plain:
            yield backends[index], merged if some is group else MergedEntries.of(some)
        else:
            yield backends[index], MergedEntries(some, some)


def _owner(entry: PricedEntry, backends: Sequence[Backend]) -> int:
    for index, backend in enumerate(backends):
        if backend.claims(entry):
            return index
    raise UnsupportedOpError(f"no backend prices '{entry.op}' at '{entry.scope}' ({entry.name})")


def _kind(group: PricingGroup) -> Collective:
    """A receive takes as long as the send it waits for."""
    for kind in get_args(Collective):
        if kind == group.collective.replace("recv", "send"):
            return cast(Collective, kind)
    raise UnsupportedOpError(f"no time model for collective '{group.collective}'")


def _batches(
    tables: Sequence[BoundTable], system: System
) -> tuple[tuple[CollectiveModel, tuple[CollectiveBatch, ...]], ...]:
    """Put together, table by table, what the network prices alike: a gather and a scatter are one."""
    asked: set[tuple[Collective, float]] = {(m.kind, m.group.across) for table in tables for m in table.messages}
    models = {(kind, across): CollectiveModel.of(kind, system, across) for kind, across in asked}
    found: dict[Hashable, tuple[CollectiveModel, dict[int, list[tuple[int, Messages]]]]] = {}
    for k, table in enumerate(tables):
        for i, m in enumerate(table.messages):
            model = models[m.kind, m.group.across]
            found.setdefault(model.alike, (model, {}))[1].setdefault(k, []).append((i, m))
    return tuple((model, tuple(_batch(k, mine) for k, mine in parts.items())) for model, parts in found.values())


def _batch(table: int, messages: Sequence[tuple[int, Messages]]) -> CollectiveBatch:
    counts = [len(m.group.entries) for _, m in messages]
    rows = np.concatenate([np.arange(m.rows.start, m.rows.stop) for _, m in messages])
    columns = [np.repeat(column, counts) for column in zip(*(m.ranks for _, m in messages), strict=True)]
    copies = np.repeat([float(m.group.axis.pieces or 1) for _, m in messages], counts)
    pairs = tuple(zip(columns[::2], columns[1::2], strict=True))
    return CollectiveBatch(table, tuple(messages), rows, pairs, copies[:, None])
