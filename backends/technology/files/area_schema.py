"""The data of the area model: densities of nodes, transistors of circuits, pads, multiprocessors, dies that exist."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from ...machine.files.section import Section
from .schema_numbers import Area, Capacity, CellArea, Count, Ratio, Several, Share, TransistorDensity, Transistors

# Parts of a die in the words of photos.
Part: TypeAlias = Literal[
    "cores",
    "interconnect",
    "cache",
    "memory_phy",
    "memory_controller",
    "network_phy",
    "network_controller",
    "other",
]


class DensitySection(Section):
    """What a technology node puts into an area."""

    logic: TransistorDensity
    cell: CellArea


class CircuitsSection(Section):
    """What dies are made of, whatever their node.

    `fp64` and `int32` are units of arithmetic; narrower floats have the square of their mantissa's share of it.
    `control` is for each vector lane, `interconnect` for each multiprocessor; the cells of a cache are `l1_cells` or
    `l2_cells` of its area; `other` is the part of a die that is none of all this.
    """

    fp64: Transistors
    int32: Transistors
    control: Transistors
    interconnect: Transistors
    l1_cells: Ratio
    l2_cells: Ratio
    other: Share


class PhySection(Section):
    """What leaves a die: pads, which do not shrink, and the controller behind them."""

    serves: Literal["memory", "network"]
    pads: Area
    controller: Transistors


class MultiprocessorSection(Section):
    """A multiprocessor: `quarters` alike, each with matrix multiply-adds, vector units and registers; and its L1."""

    quarters: Count
    lanes: Count
    macs: Count
    fp64: Several
    fp32: Several
    int32: Several
    register_files: Count
    registers: Count
    register_bits: Count
    register_ports: Count
    l1: Capacity


class DieSection(Section):
    """A die as it was drawn, with all that is later switched off: what is on it, and its area where that is known.

    `photo` holds areas that people found on photos of it, to judge by: nothing is computed from them.
    """

    node: str
    multiprocessor: str
    num_sms: Count
    l2: Capacity
    phys: Mapping[str, Count] = MappingProxyType({})
    area: Area | None = None
    photo: Mapping[Part, Area] = MappingProxyType({})
