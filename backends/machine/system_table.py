"""Many machines as one: a system some of whose numbers are columns, one number a machine.

Numbers of chip, host and network levels may differ from row to row. What decides the form of a step or of a collective
is the same for all: topologies, sizes of nodes and levels, the dtypes that there are, calibration and software.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from ...ir.errors import UnknownNameError, UsageError
from ...ir.sizes.expr import Num
from ..kernels.terms import Array
from ..network.topology.level import NetworkLevel
from .chip import Chip, ChipEnergy, HostLink, HostMemory, Peaks
from .files.kinds import NumberKind
from .files.section import NumberField, numbers_of
from .system import System

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
# The way to a number: fields, and places in tuples.
Place: TypeAlias = "tuple[str | int, ...]"
Record: TypeAlias = Chip | Peaks | ChipEnergy | HostLink | HostMemory | NetworkLevel


def tabled(system: System, columns: Mapping[str, ArrayLike]) -> System:
    """Return a table of machines: a system with columns in place of some numbers, all equally long, in base units.

    `columns` go by the paths of `--set`, of which `machine_numbers` names all. Each moves alone: a faster clock leaves
    the peaks as they are. A table keeps the columns that it has already.

    Raises:
        UnknownNameError: a path at which such a machine has no number.
        UsageError: columns of several lengths, or numbers that no machine has.

    >>> from slipstick.backends.machine.load import load_system
    >>> two = tabled(load_system("dgx-h100"), {"chip.memory.hbm.bandwidth": [3.35e12, 4.8e12]})
    >>> num_machines(two), two.chip.hbm_bytes_per_s.tolist()
    (2, [3350000000000.0, 4800000000000.0])
    """
    known = {path: (place, number.kind) for path, place, number in _numbers(system)}
    changed = list(system.changed)
    values: dict[Place, object] = {}
    for path, column in columns.items():
        if path not in known:
            raise UnknownNameError.of("number of a table of machines", path, list(known))
        place, kind = known[path]
        numbers = _checked(path, column, kind)
        if np.any(numbers != _at(system, place)):
            changed.append(path)
        values[place] = numbers
    system = _put(system, values)
    num_machines(system)
    return replace(system, changed=tuple(dict.fromkeys(changed)))


def stacked(systems: Sequence[System]) -> System:
    """Return systems of one form as one table, in their order; a number that all have in common stays one number.

    UsageError where they differ in more than numbers of chip, host and network.
    """
    if not systems:
        raise UsageError("a table needs at least one machine")
    first = systems[0]
    places = _places(first)
    form = _form(first, places)
    for other in {id(system): system for system in systems if system is not first}.values():
        _check_alike(first, other, places, form)
    columns: dict[str, ArrayLike] = {}
    for path, place in places.items():
        numbers = [_at(system, place) for system in systems]
        if any(number != numbers[0] for number in numbers):
            columns[path] = np.array(numbers, dtype=np.float64)
    changed = dict.fromkeys(path for system in systems for path in system.changed)
    return replace(tabled(first, columns), changed=tuple(changed))


def machine_numbers(system: System) -> Mapping[str, Num]:
    """Return the numbers of a system that may be columns, by path.

    >>> from slipstick.backends.machine.load import load_system
    >>> machine_numbers(load_system("dgx-h100"))["chip.num_sms"]
    132
    """
    found = ((path, _at(system, place)) for path, place in _places(system).items())
    return {path: number for path, number in found if number is not None}


def num_machines(system: System) -> int | None:
    """Return how many machines a system stands for; None for a single one, which has no columns.

    UsageError where columns are of several lengths.
    """
    records = [record for *_, record in _records(system)]
    values = (getattr(record, field) for record in records for field in record.__slots__)
    lengths = {len(value) for value in values if isinstance(value, np.ndarray)}
    if len(lengths) > 1:
        found = ((path, n) for path, n in machine_numbers(system).items() if isinstance(n, np.ndarray))
        given = ", ".join(f"{path} has {len(column)}" for path, column in found)
        raise UsageError(f"columns of a table of machines must be equally long: {given}")
    return next(iter(lengths), None)


def some_machines(system: System, rows: slice) -> System:
    """Return some machines of a table."""
    return _put(system, {place: column[rows] for place, column in _columns(system).items()})


def machine_at(system: System, row: int) -> System:
    """Return one machine of a table by itself, as plain numbers; IndexError beyond its end."""
    return _put(system, {place: float(column[row]) for place, column in _columns(system).items()})


def _columns(system: System) -> dict[Place, Array]:
    found = ((place, _at(system, place)) for place in _places(system).values())
    return {place: number for place, number in found if isinstance(number, np.ndarray)}


def _places(system: System) -> dict[str, Place]:
    """The way to each number that may be a column, by its path."""
    return {path: place for path, place, _ in _numbers(system)}


def _numbers(system: System) -> Iterator[tuple[str, Place, NumberField]]:
    """The links of a graph have rates of their own, which are its form: a level of such has none to change."""
    for path, place, record in _records(system):
        for number in numbers_of(type(record)):
            open_form = number.key.form and getattr(record, number.name) is None
            of_links = isinstance(record, NetworkLevel) and record.edges and number.path == "bandwidth"
            if number.key.column and not open_form and not of_links:
                yield f"{path}.{number.path}", (*place, number.name), number


def _records(system: System) -> Iterator[tuple[str, Place, Record]]:
    """The parts of a system that have such numbers, with the way to each."""
    chip = system.chip
    yield "chip.matmul", ("chip", "peak_flop_per_s"), chip.peak_flop_per_s
    yield "chip", ("chip",), chip
    if chip.energy is not None:
        yield "chip.energy", ("chip", "energy"), chip.energy
    if chip.host_link is not None:
        yield "chip.host_link", ("chip", "host_link"), chip.host_link
    if system.host is not None:
        yield "node.host_memory", ("host",), system.host
    for k, level in enumerate(system.levels):
        yield f"network.{level.name}", ("levels", k), level


def _at(system: System, place: Place) -> Num | None:
    found: object = system
    for step in place:
        found = found[step] if isinstance(found, tuple) and isinstance(step, int) else getattr(found, str(step))
    return cast("Num | None", found)


def _put(record: T, values: Mapping[Place, object]) -> T:
    """Return a record, or a tuple, with other values at the ends of some ways; each record on them is made once."""
    if () in values:
        return cast(T, values[()])
    inner: dict[str | int, dict[Place, object]] = {}
    for (step, *rest), value in values.items():
        inner.setdefault(step, {})[tuple(rest)] = value
    if isinstance(record, tuple):
        return cast(T, tuple(_put(item, inner.get(k, {(): item})) for k, item in enumerate(record)))
    changed = {str(step): _put(getattr(record, str(step)), deeper) for step, deeper in inner.items()}
    return cast(T, replace(cast("DataclassInstance", record), **changed))


def _checked(path: str, column: ArrayLike, kind: NumberKind) -> Array:
    numbers = np.array(column, dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size:
        raise UsageError(f"{path}: a column has one number a machine, not the shape {numbers.shape}")
    legal = ((numbers >= 0.0) if kind.zero else (numbers > 0.0)) & np.isfinite(numbers) & (numbers <= kind.most)
    if not legal.all():
        row = int(legal.argmin())
        allowed = ("0 or more" if kind.zero else "above 0") + (
            f", at most {kind.most:g}" if isfinite(kind.most) else ""
        )
        raise UsageError(f"{path}: {numbers[row]:g} of machine {row} is not allowed; it must be {allowed}, and finite")
    return numbers


def _check_alike(first: System, other: System, places: Mapping[str, Place], one: System) -> None:
    """Refuse what differs in form: their numbers and names apart, both are the same; `one` is that of `first`."""
    apart = set(places) ^ set(_places(other))
    if apart:
        raise UsageError(
            f"'{first.name}' and '{other.name}' cannot share a table: only one has {', '.join(sorted(apart))}"
        )
    two = _form(other, places)
    parts = [f.name for f in fields(System) if getattr(one, f.name) != getattr(two, f.name)]
    if parts:
        raise UsageError(
            f"'{first.name}' and '{other.name}' cannot share a table: they differ in {', '.join(parts)} by more than "
            "numbers of chip, host and network (a calibration that both share: calibration='default')"
        )


def _form(system: System, places: Mapping[str, Place]) -> System:
    """What is left of a system without its names and numbers; a number that is left open stays so."""
    system = _put(system, {place: 1.0 for place in places.values() if _at(system, place) is not None})
    return replace(system, name="", chip=replace(system.chip, name=""), sources=(), changed=())
