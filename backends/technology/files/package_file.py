"""What a designed chip is packaged in, as the `package` of its file: dies, their interface, stacks of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np

from ....ir.errors import UnknownNameError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ..d2d import D2dKind
from ..data import Technology
from ..design import Design
from .schema import MemorySection

# How dies and memory are joined, in the words of a package. The engine lays dies flat: none are bonded face to face.
Joint: TypeAlias = Literal["organic", "fan_out", "interposer", "embedded_bridge", "fan_out_bridge"]
JOINTS: tuple[Joint, ...] = get_args(Joint)
Numbered: TypeAlias = Callable[[Num, str, str], str]


@dataclass(frozen=True, slots=True)
class Sale:
    """How a package is sold.

    Attributes:
        volume: packages made, over which their design is paid off; None where nobody said.
        gross_margin: part of the price that the maker keeps; None for as the price book says.
    """

    volume: float | None = None
    gross_margin: float | None = None


NO_SALE = Sale()


def usual_joint(memory: MemorySection, interface: D2dKind | None = None) -> Joint:
    """Return how chips are joined of old: on an interposer where memory or an interface needs fine wires."""
    is_fine = memory.fine_wires or (interface is not None and interface.fine_wires)
    return "interposer" if is_fine else "organic"


def design_joint(design: Design, technology: Technology) -> Joint:
    """Return how the dies and the memory of a design are joined of old."""
    b = design.budget
    interface = technology.d2d(b.d2d) if b.d2d and float(np.max(b.num_dies)) > 1 else None
    return usual_joint(technology.memory(b.memory), interface)


def as_joint(name: str) -> Joint:
    """Return a joint; UnknownNameError names the nearest."""
    for joint in JOINTS:
        if joint == name:
            return joint
    raise UnknownNameError.of("joint", name, JOINTS)


def package_lines(
    design: Design, name: str, joint: Joint, technology: Technology, level: str, number: Numbered, sale: Sale = NO_SALE
) -> Iterator[str]:
    """Yield the section, every number written by `number`(value, unit, source).

    `level` is that of the network around it which the interface between the dies is; empty for a chip alone.
    """
    budget, memory = design.budget, design.memory
    kind = technology.memory(budget.memory)
    yield "package:"
    yield f"  joint: {joint}"
    if budget.num_ranks != 1:
        yield f"  num_ranks: {number(budget.num_ranks, '', 'each die is a device')}"
    if sale.volume is not None:
        yield f"  volume: {number(sale.volume, '', 'given')}"
    if sale.gross_margin is not None:
        yield f"  gross_margin: {number(sale.gross_margin, '', 'given')}"
    yield "  contents:"
    yield f"    - name: {name}-die"
    yield f"      node: {budget.node}"
    yield f"      area: {number(budget.die_mm2, 'mm2', 'given')}"
    yield f"      count: {number(budget.num_dies, '', 'given')}"
    yield from _interface(design, technology, level, number)
    yield f"    - name: {budget.memory}"
    yield f"      memory: {budget.memory}"
    yield f"      capacity: {number(kind.capacity.si / 1e9, 'GB', f'a stack of {budget.memory}')}"
    yield f"      count: {number(memory.num_stacks * budget.num_ranks, '', 'stacks of the package')}"


def _interface(design: Design, technology: Technology, level: str, number: Numbered) -> Iterator[str]:
    budget = design.budget
    if not budget.d2d or budget.num_dies == 1:
        return
    yield "      d2d:"
    yield f"        kind: {budget.d2d}"
    if level:
        yield f"        level: {level}"
    else:
        rate = number(budget.d2d_bytes_per_s / 1e9, "GB/s", "given: to one neighbour, one direction")
        yield f"        bandwidth: {rate}"
    yield f"        edges: {number(design.interface.num_neighbours, '', f'neighbours of a die in a {budget.join}')}"
    kind = technology.d2d(budget.d2d)
    yield f"        energy: {number(kind.energy_j_per_byte / 8e-12, 'pJ/bit', f'of {kind.name}, both ends')}"
