"""The package of a chip as people write it: dies, memories and smaller assemblies on substrates, checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import nan
from typing import Annotated, ClassVar, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from ...ir.errors import UsageError
from ...ir.sizes.expr import Num
from .files.system_numbers import Bandwidth, Capacity, Count, Margin, Number, Price, Ratio, Section, Some
from .package import Assembly, Bonding, D2d, Die, Harvest, Joint, Order, Package, Stack

NAME = r"^[A-Za-z0-9_-]+$"


class DieArea(Number):
    """An area of silicon, or of what carries it."""

    dimension = "mm2"
    sane = (1e-2, 1e5)


class Aspect(Number):
    """The longer side of a die over the shorter: one or more."""

    maximum = 100.0


class Volume(Number):
    """How many are made over the life of a product."""

    sane = (1, 1e12)


class HarvestSection(Section):
    """Units of a die of which some may be bad: how many there are, how many must be good, their part of its area."""

    units: Count
    needed: Count
    area_share: Ratio

    @model_validator(mode="after")
    def _check(self) -> HarvestSection:
        if self.needed.si > self.units.si:
            raise UsageError(f"{self.needed.si:g} units needed are more than the {self.units.si:g} that there are")
        return self


class D2dSection(Section):
    """The interface of a die to its neighbours: its kind, and the bandwidth of one edge in one direction.

    Where each die is a rank of its own, `level` names the level of the network that the interface is; the bandwidth may
    then be left out and is that of one link of the level.
    """

    kind: str
    bandwidth: Bandwidth | None = None
    edges: Count | None = None
    level: str | None = None

    @model_validator(mode="after")
    def _check(self) -> D2dSection:
        if self.bandwidth is None and self.level is None:
            raise UsageError("missing bandwidth, or the level of the network that it is")
        return self


class Part(Section):
    """Something in a package, of which there may be several."""

    called: ClassVar[str] = "part"
    holds: ClassVar[frozenset[str]] = frozenset()

    name: str = Field(pattern=NAME)
    count: Count | None = None

    @classmethod
    def describes(cls, tree: object) -> bool:
        """Whether a part as it is written is of this kind: it has a key that others have not."""
        return isinstance(tree, Mapping) and bool(cls.holds & set(tree))


class DieSection(Part):
    """Dies of one design: their technology node, the area of one, and what may be bad in a good one."""

    holds = frozenset(("node", "area"))

    node: str
    area: DieArea
    aspect: Aspect | None = None
    harvest: HarvestSection | None = None
    d2d: D2dSection | None = None
    stitched: bool = False
    design_area: DieArea | None = None

    @model_validator(mode="after")
    def _check(self) -> DieSection:
        if self.aspect is not None and self.aspect.si < 1:
            raise UsageError(f"aspect {self.aspect.si:g} is below 1: it is the longer side over the shorter")
        if self.design_area is not None and self.design_area.si > self.area.si:
            raise UsageError(f"design_area {self.design_area.si:g} mm2 is more than its area, {self.area.si:g} mm2")
        return self


class StackSection(Part):
    """Stacks or devices of memory: the kind by its name in the price book, and the capacity of one."""

    holds = frozenset(("memory", "capacity"))

    memory: str
    capacity: Capacity


class _Joined(Section):
    """What is joined, and how."""

    joint: Joint
    contents: list[AnyPart] = Field(min_length=1)
    order: Order | None = None
    bonding: Bonding | None = None
    bridges: Some | None = None
    substrate_area: DieArea | None = None

    @model_validator(mode="after")
    def _check(self) -> _Joined:
        faults = list(_joint_faults(self))
        if faults:
            raise UsageError("; ".join(faults))
        return self


class AssemblySection(Part, _Joined):
    """Dies, stacks and smaller assemblies on one substrate, or face to face."""

    holds = frozenset(("joint", "contents"))


class PackageSection(_Joined):
    """What a chip is sold in: the outermost substrate, how many are made, what one is sold for.

    `beside` is memory on the board next to it.
    """

    name: str = Field(default="package", pattern=NAME)
    num_ranks: Count | None = None
    volume: Volume | None = None
    price: Price | None = None
    gross_margin: Margin | None = None
    beside: list[StackSection] = Field(default_factory=list)


_KINDS: Mapping[str, type[Part]] = {"<assembly>": AssemblySection, "<memory>": StackSection, "<die>": DieSection}


def _kind_of(part: object) -> str:
    """The tag of a part: angle brackets keep it apart from the keys of a file."""
    found = (tag for tag, kind in _KINDS.items() if isinstance(part, kind) or kind.describes(part))
    return next(found, "<die>")


AnyPart: TypeAlias = Annotated[
    Annotated[AssemblySection, Tag("<assembly>")]
    | Annotated[StackSection, Tag("<memory>")]
    | Annotated[DieSection, Tag("<die>")],
    Discriminator(_kind_of),
]


def _joint_faults(joined: _Joined) -> Iterator[str]:
    parts = [*joined.contents, *(joined.beside if isinstance(joined, PackageSection) else ())]
    repeated = [name for name, times in Counter(part.name for part in parts).items() if times > 1]
    if repeated:
        yield f"part named twice: {', '.join(repeated)}"
    if joined.joint == "hybrid_bond" and len(joined.contents) < 2:
        yield "a hybrid_bond joins two parts or more: the first carries the others"
    for key, given, joints in (
        ("order", joined.order, ("fan_out", "interposer", "fan_out_bridge")),
        ("bonding", joined.bonding, ("hybrid_bond",)),
        ("bridges", joined.bridges, ("embedded_bridge", "fan_out_bridge")),
    ):
        if given is not None and joined.joint not in joints:
            yield f"{key} is for {', '.join(joints)}, not for {joined.joint}"


def package_of(section: PackageSection, link_bytes_per_s: Mapping[str, Num]) -> Package:
    """Turn a checked package into plain numbers; interfaces that are a level have its links' rate, nan if not given."""
    return Package(
        assembly=_assembly(section, section.name, None, link_bytes_per_s),
        num_ranks=1 if section.num_ranks is None else int(section.num_ranks.si),
        volume=_optional(section.volume),
        price_usd=_optional(section.price),
        gross_margin=_optional(section.gross_margin),
        beside=tuple(map(_stack, section.beside)),
    )


def _assembly(joined: _Joined, name: str, count: Number | None, rates: Mapping[str, Num]) -> Assembly:
    return Assembly(
        name=name,
        joint=joined.joint,
        contents=tuple(_part(part, rates) for part in joined.contents),
        count=_count(count),
        order=joined.order or "chip_last",
        bonding=joined.bonding or "die_to_wafer",
        bridges=_optional(joined.bridges),
        substrate_mm2=_optional(joined.substrate_area),
    )


def _part(part: DieSection | StackSection | AssemblySection, rates: Mapping[str, Num]) -> Die | Stack | Assembly:
    if isinstance(part, AssemblySection):
        return _assembly(part, part.name, part.count, rates)
    if isinstance(part, StackSection):
        return _stack(part)
    return Die(
        name=part.name,
        node=part.node,
        area_mm2=part.area.si,
        count=_count(part.count),
        aspect=1.0 if part.aspect is None else part.aspect.si,
        harvest=None if part.harvest is None else _harvest(part.harvest),
        d2d=None if part.d2d is None else _d2d(part.d2d, rates),
        stitched=part.stitched,
        design_mm2=_optional(part.design_area),
    )


def _stack(part: StackSection) -> Stack:
    return Stack(kind=part.memory, num_bytes=part.capacity.si, count=_count(part.count), name=part.name)


def _harvest(harvest: HarvestSection) -> Harvest:
    return Harvest(int(harvest.units.si), int(harvest.needed.si), harvest.area_share.si)


def _d2d(d2d: D2dSection, rates: Mapping[str, Num]) -> D2d:
    rate = rates.get(d2d.level or "", nan) if d2d.bandwidth is None else d2d.bandwidth.si
    return D2d(kind=d2d.kind, bytes_per_s=rate, edges=_count(d2d.edges), level=d2d.level or "")


def _count(number: Number | None) -> float:
    return 1.0 if number is None else number.si


def _optional(number: Number | None) -> float | None:
    return None if number is None else number.si


def d2d_levels(
    joined: _Joined, keys: tuple[str | int, ...], path: str
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Yield each level that a die says its interface is, with the way to it in the tree and for people."""
    for place, part in enumerate(joined.contents):
        here, shown = (*keys, "contents", place), f"{path}.contents.{part.name}"
        if isinstance(part, AssemblySection):
            yield from d2d_levels(part, here, shown)
        elif isinstance(part, DieSection) and part.d2d is not None and part.d2d.level is not None:
            yield (*here, "d2d", "level"), f"{shown}.d2d.level", part.d2d.level
