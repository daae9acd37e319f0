"""Servers, racks and network equipment as people write them: names of the price book, counts, prices as bought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, model_validator

from ...ir.errors import UsageError
from .files.system_numbers import Count, Number, Power, Price, Reserve, Section, Share, Some
from .machine import Cooling, Fitted, Joins, LevelEquipment, Rack, Server


class RestPower(Power):
    """Power that may be none."""

    zero_allowed = True


class CableLength(Number):
    """The length of a cable."""

    dimension = "mm"
    sane = (1.0, 1e8)


class FittedSection(Section):
    """So many of one part of the price book, one by default."""

    called: ClassVar[str] = "part"

    name: str
    count: Some | None = None


class _Built(Section):
    """What is bought as a whole, or built of parts."""

    price: Price | None = None
    has_adapters: bool = True
    parts: list[FittedSection] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> _Built:
        repeated = [name for name, times in Counter(part.name for part in self.parts).items() if times > 1]
        if repeated:
            raise UsageError(f"part named twice, give its count: {', '.join(repeated)}")
        return self


class ServerSection(_Built):
    """A node of the system: its price as bought with accelerators and inner networks, else what it is built of.

    `rest_power` is what all but the accelerators draw at full load; `dram` the memory of its hosts, where that is not
    what the node has.
    """

    rest_power: RestPower | None = None
    dram: Reserve | None = None
    cooling: Cooling = "air"


class RackSection(_Built):
    """What servers stand in: how many, its price with them, else what it is built of; the most it may draw."""

    servers: Count
    power: Power | None = None
    rest_power: RestPower | None = None


class EquipmentSection(Section):
    """What a network level is built of, by names of the price book; how many follows from its topology.

    Without a switch, switches are part of something that is bought; without a cable, wires are part of a board.
    """

    switch: str = ""
    switches: Some | None = None
    adapter: str = ""
    adapters: Some | None = None
    ports: Some | None = None
    cable: str = ""
    transceiver: str = ""
    fibre: str = ""
    lengths: list[CableLength] = Field(default_factory=list)
    copper_share: Share | None = None
    joins: Joins = "ranks"

    @model_validator(mode="after")
    def _check(self) -> EquipmentSection:
        faults = list(_equipment_faults(self))
        if faults:
            raise UsageError("; ".join(faults))
        return self


def _equipment_faults(equipment: EquipmentSection) -> Iterator[str]:
    if equipment.switches is not None and not equipment.switch:
        yield "switches are counted: name the switch"
    if equipment.adapters is not None and not equipment.adapter:
        yield "adapters are counted: name the adapter"
    if equipment.joins == "switches" and equipment.adapter:
        yield "a level that joins switches has no adapters of ranks"
    if equipment.copper_share is not None and not equipment.cable:
        yield "copper_share is of a cable: name the cable"


def server_of(section: ServerSection | None) -> Server | None:
    """Turn a checked server into plain numbers; None where the file has none."""
    if section is None:
        return None
    return Server(
        price_usd=_optional(section.price),
        has_adapters=section.has_adapters,
        rest_w=_optional(section.rest_power),
        parts=_parts(section.parts),
        dram_bytes=_optional(section.dram),
        cooling=section.cooling,
    )


def rack_of(section: RackSection | None) -> Rack | None:
    """Turn a checked rack into plain numbers; None where the file has none."""
    if section is None:
        return None
    return Rack(
        num_servers=int(section.servers.si),
        price_usd=_optional(section.price),
        has_adapters=section.has_adapters,
        power_w=_optional(section.power),
        rest_w=_optional(section.rest_power) or 0.0,
        parts=_parts(section.parts),
    )


def equipment_of(section: EquipmentSection | None) -> LevelEquipment | None:
    """Turn what a level is built of into plain numbers; None where the file does not say."""
    if section is None:
        return None
    return LevelEquipment(
        switch=section.switch,
        switches=_optional(section.switches),
        adapter=section.adapter,
        adapters=1.0 if section.adapters is None else section.adapters.si,
        ports=_optional(section.ports),
        cable=section.cable,
        transceiver=section.transceiver,
        fibre=section.fibre,
        lengths_mm=tuple(length.si for length in section.lengths),
        copper_share=_optional(section.copper_share),
        joins=section.joins,
    )


def _parts(parts: list[FittedSection]) -> tuple[Fitted, ...]:
    return tuple(Fitted(part.name, 1.0 if part.count is None else part.count.si) for part in parts)


def _optional(number: Number | None) -> float | None:
    return None if number is None else number.si
