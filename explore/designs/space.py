"""A space of chip designs: every combination of what its axes allow, as tables of budgets that are computed at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product
from math import prod
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...backends.technology.d2d import Join
from ...backends.technology.design import Budget
from ...backends.technology.files.package_file import Joint
from ...ir.errors import UsageError
from ...ir.records import dataclass

Array = NDArray[np.float64]
# Axes that may have nothing on them.
_MAY_BE_EMPTY = frozenset(("num_stacks", "joints", "d2d_bytes_per_s"))
# The axes of numbers, as people call them.
_CALLED: Mapping[str, str] = MappingProxyType(
    {
        "die_mm2": "area of a die",
        "power_w": "power",
        "num_dies": "dies of a package",
        "num_stacks": "stacks of a package",
        "d2d_bytes_per_s": "bandwidth between dies",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignForm:
    """What is a word or a count in a design, and so the same for a whole table of them.

    Attributes:
        node: technology node of the dies.
        num_dies: dies of a package.
        unit: unit of compute.
        memory: kind of the stacks.
        link: kind of the lanes to other packages.
        joint: how dies and memory are joined; None for as usual with the memory.
        d2d: interface between dies, each of which then is a device; none where a package is one device.
        join: how dies are joined by it.
        cooling: kind of it; empty for the best there is, in servers as they are.
    """

    node: str
    num_dies: int = 1
    unit: str = "h100"
    memory: str = "hbm3"
    link: str = "nvlink4"
    joint: Joint | None = None
    d2d: str = ""
    join: Join = "line"
    cooling: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignSpace:
    """What may be chosen: words and counts, whose combinations are forms, and numbers, whose combinations are rows.

    Attributes:
        nodes: technology nodes.
        die_mm2: areas of one die.
        power_w: powers of the package, or of each mm2 of its dies where `power_is_density`.
        num_dies: dies of a package.
        units: units of compute.
        memories: kinds of stacks.
        num_stacks: stacks of a package; none for as many as fit.
        links: kinds of lanes.
        joints: how dies and memory are joined; none for as usual with the memory.
        d2d: interfaces between dies; an empty name for packages that are one device.
        d2d_bytes_per_s: bandwidths of these to each neighbour, one direction.
        joins: how dies are joined by them.
        coolings: kinds of cooling; an empty name for the best there is.
        power_is_density: see `power_w`.
    """

    nodes: tuple[str, ...]
    die_mm2: tuple[float, ...]
    power_w: tuple[float, ...]
    num_dies: tuple[int, ...] = (1,)
    units: tuple[str, ...] = ("h100",)
    memories: tuple[str, ...] = ("hbm3",)
    num_stacks: tuple[int, ...] = ()
    links: tuple[str, ...] = ("nvlink4",)
    joints: tuple[Joint, ...] = ()
    d2d: tuple[str, ...] = ("",)
    d2d_bytes_per_s: tuple[float, ...] = ()
    joins: tuple[Join, ...] = ("line",)
    coolings: tuple[str, ...] = ("",)
    power_is_density: bool = False

    def __post_init__(self) -> None:
        """Refuse an axis without anything on it, and interfaces without a bandwidth."""
        for name in (axis.name for axis in fields(self) if axis.name not in _MAY_BE_EMPTY):
            if getattr(self, name) == ():
                raise UsageError(f"a space of designs needs at least one of {name}")
        for name in _CALLED:
            wrong = [number for number in getattr(self, name) if not 0 < number < np.inf]
            if wrong:
                raise UsageError(f"{_CALLED[name]}: {wrong[0]:g} is not allowed: above zero, and finite")
        if any(self.d2d) and max(self.num_dies) > 1 and not self.d2d_bytes_per_s:
            raise UsageError("an interface between dies needs a bandwidth to each neighbour, as 2 TB/s")

    def forms(self) -> Iterator[DesignForm]:
        """Yield every combination of words and counts once; one die has no interface, whatever its name."""
        seen: set[DesignForm] = set()
        words = product(self.nodes, self.num_dies, self.units, self.memories, self.links, self.d2d, self.joins)
        for node, dies, unit, memory, link, d2d, join in words:
            alone = dies == 1
            for joint, cooling in product(self.joints or (None,), self.coolings):
                form = DesignForm(
                    node=node,
                    num_dies=dies,
                    unit=unit,
                    memory=memory,
                    link=link,
                    joint=joint,
                    d2d="" if alone else d2d,
                    join="line" if alone or not d2d else join,
                    cooling=cooling,
                )
                if form not in seen:
                    seen.add(form)
                    yield form

    def budget(self, form: DesignForm) -> Budget:
        """Return the table of a form: every combination of the numbers, a row each."""
        stacks = [float(n) for n in self.num_stacks] or [np.nan]
        rates = self.d2d_bytes_per_s if form.d2d else (0.0,)
        area, power, number, rate = (
            axis.ravel() for axis in np.meshgrid(self.die_mm2, self.power_w, stacks, rates, indexing="ij")
        )
        area_mm2 = area * form.num_dies
        return Budget(
            form.node,
            area_mm2,
            power * area_mm2 if self.power_is_density else power,
            form.unit,
            form.memory,
            form.link,
            form.num_dies,
            d2d=form.d2d,
            d2d_bytes_per_s=rate,
            join=form.join,
            cooling=form.cooling,
            num_stacks=number if self.num_stacks else None,
        )

    def num_designs(self) -> int:
        """Return how many designs there are, those that cannot be built as well.

        >>> DesignSpace(nodes=("N5", "N3"), die_mm2=(400.0, 800.0), power_w=(700.0,), num_dies=(1, 2)).num_designs()
        8
        """
        rows = prod(len(axis) for axis in (self.die_mm2, self.power_w)) * max(len(self.num_stacks), 1)
        return sum(rows * (len(self.d2d_bytes_per_s) if form.d2d else 1) for form in self.forms())
