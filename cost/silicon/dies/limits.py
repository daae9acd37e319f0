"""What cannot be made: dies beyond a field of lithography, substrates too small or too large, edges too short.

Each fault is a mask over designs and the words for one: a single design raises, a table has `obstacles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ....backends.machine.package import Assembly, D2d, Die, Joint, Package, Stack
from ....backends.prices.section import Prices
from ....backends.prices.silicon_schema import SiliconSection
from ....ir.errors import UnknownNameError, UsageError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ....ir.units import format_bytes_per_s
from ..packages.built import BuiltAssembly, build
from ..packages.joints import wiring
from .wafers import field_mm, shape

# Sums of areas are not exact.
_HAIR = 1.0 + 1e-9


class Obstacle(IntEnum):
    """Why a package cannot be made; the first that holds."""

    NONE = 0
    VALUE = 1
    FIELD = 2
    WAFER = 3
    SHORELINE = 4
    EDGES = 5
    CARRIER = 6
    WIRES = 7
    SUBSTRATE = 8
    FINE_WIRES = 9


@dataclass(frozen=True, slots=True)
class DesignFault:
    """Designs that cannot be made for one reason; `text` puts it into words for a single design."""

    why: Obstacle
    bad: NDArray[np.bool_]
    text: Callable[[], str]


def check_values(package: Package, prices: Prices) -> None:
    """Raise UsageError where a single design has a die that cannot be made; a table of designs passes."""
    _raise(_of_contents(package.assembly, prices.section, package.assembly.title))


def check_built(built: BuiltAssembly, prices: Prices) -> None:
    """Raise UsageError where something of a single design cannot hold what is on it, or is too large to be made."""
    _raise(_of_built(built, prices.section, built.assembly.title))


def obstacles(package: Package, prices: Prices) -> NDArray[np.int8]:
    """Return the first `Obstacle` in the way of each design of a table."""
    book, path = prices.section, package.assembly.title
    found = np.zeros((), dtype=np.int8)
    with np.errstate(invalid="ignore", divide="ignore"):
        for fault in _of_contents(package.assembly, book, path):
            found = _first(found, fault)
        for fault in _of_built(build(package.assembly, book), book, path):
            found = _first(found, fault)
    return found


def _first(so_far: NDArray[np.int8], fault: DesignFault) -> NDArray[np.int8]:
    return np.where((so_far == Obstacle.NONE) & fault.bad, np.int8(fault.why), so_far)


def _raise(faults: Iterable[DesignFault]) -> None:
    for fault in faults:
        if fault.bad.size == 1 and fault.bad.any():
            raise UsageError(fault.text())


def _of_contents(assembly: Assembly, book: SiliconSection, path: str) -> Iterator[DesignFault]:
    for part in assembly.contents:
        here = f"{path}, {part.name}"
        yield _positive(part.count, f"{here}: a count")
        if isinstance(part, Assembly):
            yield from _of_contents(part, book, here)
        elif isinstance(part, Die):
            yield from _of_die(part, assembly.joint, book, here)
        else:
            yield from _of_memory(part, assembly.joint, book, here)


def _of_memory(stack: Stack, joint: Joint, book: SiliconSection, path: str) -> Iterator[DesignFault]:
    if stack.kind not in book.memories:
        raise UnknownNameError.of(f"memory of {path}:", stack.kind, book.memories)
    yield _positive(stack.num_bytes, f"{path}: memory", " bytes")
    if joint == "organic" and book.memory(stack.kind).fine_wires:
        yield _fine_wires(stack.kind, np.greater(np.multiply(stack.count, stack.num_bytes), 0.0), path)


def _fine_wires(kind: str, bad: NDArray[np.bool_], path: str) -> DesignFault:
    return DesignFault(
        Obstacle.FINE_WIRES,
        bad,
        lambda: (
            f"{path}: {kind} needs finer wires than an organic substrate has: join it by interposer, fan_out,"
            " fan_out_bridge, embedded_bridge or hybrid_bond"
        ),
    )


def _of_built(built: BuiltAssembly, book: SiliconSection, path: str) -> Iterator[DesignFault]:
    for inner in built.inner.values():
        yield from _of_built(inner, book, f"{path}, {inner.assembly.name}")
    # What carries must hold what is on it; a base holds all but itself.
    stacked = built.assembly.joint == "hybrid_bond"
    carrier = built.level.carrier_mm2
    held = np.subtract(built.contents.area_mm2, carrier if stacked else 0.0)
    what = "base" if stacked else "substrate"
    holding = DesignFault(
        Obstacle.CARRIER,
        np.greater(held, carrier * _HAIR),
        lambda: f"{path}: a {what} of {_one(carrier):g} mm2 cannot hold {_one(held):g} mm2: {_held(built.assembly)}",
    )
    yield holding
    yield from _sizes(built, book, path)


def _positive(value: Num, what: str, unit: str = "") -> DesignFault:
    bad = ~np.greater(value, 0.0)
    return DesignFault(Obstacle.VALUE, bad, lambda: f"{what} of {_one(value):g}{unit} must be more than zero")


def _of_die(die: Die, joint: Joint, book: SiliconSection, path: str) -> Iterator[DesignFault]:
    if die.node not in book.nodes:
        raise UnknownNameError.of(f"technology node of {path}:", die.node, book.nodes)
    wide, high = field_mm(book)
    yield _positive(die.area_mm2, f"{path}: an area", " mm2")
    if not die.stitched:
        yield DesignFault(
            Obstacle.FIELD,
            np.greater(die.area_mm2, wide * high * _HAIR),
            lambda: (
                f"{path}: a die of {_one(die.area_mm2):g} mm2 is beyond the field of {wide * high:g} mm2"
                f" ({wide:g} mm x {high:g} mm): split it, or allow it to be stitched"
            ),
        )
    drawn = shape(np.maximum(die.area_mm2, 1e-6), die.aspect, book)
    usable = book.wafer.diameter.si - 2.0 * book.wafer.edge_loss.si
    yield DesignFault(
        Obstacle.WAFER,
        np.greater(np.hypot(drawn.width_mm, drawn.height_mm), usable),
        lambda: f"{path}: no die of {_one(die.area_mm2):g} mm2 fits a wafer of {book.wafer.diameter.si:g} mm",
    )
    if die.d2d is not None:
        yield from _of_edge(die, die.d2d, joint, book, path)


def _of_edge(die: Die, d2d: D2d, joint: Joint, book: SiliconSection, path: str) -> Iterator[DesignFault]:
    """Modules of an interface along the shorter edge of a die, which has four."""
    # Most packages have no such interface, and need no data of circuits.
    from ....backends.technology.data import load_technology

    kind = load_technology().d2d(d2d.kind)
    if joint == "organic" and kind.fine_wires:
        yield _fine_wires(kind.name, np.greater(d2d.bytes_per_s, 0.0), path)
    edge = shape(np.maximum(die.area_mm2, 1e-6), die.aspect, book).width_mm
    taken = kind.shoreline_mm(d2d.bytes_per_s)
    yield DesignFault(
        Obstacle.SHORELINE,
        np.greater(taken, edge * _HAIR),
        lambda: (
            f"{path}: no shoreline for {format_bytes_per_s(_one(d2d.bytes_per_s))} of {kind.name} over one edge:"
            f" {_one(kind.modules(d2d.bytes_per_s)):g} modules take {_one(taken):.4g} mm of {_one(edge):.4g} mm;"
            f" at most {format_bytes_per_s(_one(kind.widest_bytes_per_s(edge)))} fit"
        ),
    )
    too_many = np.greater(d2d.edges, 4.0)
    yield DesignFault(Obstacle.EDGES, too_many, lambda: f"{path}: a die has 4 edges, not {_one(d2d.edges):g}")


def _sizes(built: BuiltAssembly, book: SiliconSection, path: str) -> Iterator[DesignFault]:
    """Wires come in so many fields of lithography, substrates in so many mm2."""
    joint = built.assembly.joint
    if joint in ("interposer", "fan_out", "fan_out_bridge"):
        limit = wiring(joint, book).limit.si * book.wafer.field_width.si * book.wafer.field_height.si
        yield _within(Obstacle.WIRES, built.level.carrier_mm2, limit, f"{path}: {joint}", f"packages.{joint}.limit")
    if joint != "hybrid_bond":
        limit = book.packages.organic.limit.si
        what = f"{path}: organic substrate"
        yield _within(Obstacle.SUBSTRATE, built.level.footprint_mm2, limit, what, "packages.organic.limit")


def _within(why: Obstacle, area: Num, limit: float, what: str, key: str) -> DesignFault:
    return DesignFault(
        why,
        np.greater(area, limit * _HAIR),
        lambda: f"{what} of {_one(area):g} mm2 is beyond the largest of {limit:g} mm2 (prices.{key})",
    )


def _held(assembly: Assembly) -> str:
    return ", ".join(f"{_one(part.count):g} {part.name}" for part in assembly.contents)


def _one(value: Num) -> float:
    return float(np.asarray(value).reshape(-1)[0])
