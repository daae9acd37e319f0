"""The price book of machines: servers, networks, facilities, energy, carbon, and money itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from ...ir.errors import did_you_mean
from ..machine.files.section import Section
from .numbers import (
    EnergyPerArea,
    EnergyPerByte,
    EnergyPerFlop,
    Length,
    Life,
    Margin,
    Mass,
    MassPerArea,
    MassPerByte,
    MassPerEnergy,
    Money,
    MoneyPerByte,
    MoneyPerCurrent,
    MoneyPerEnergy,
    MoneyPerPower,
    MoneyPerPowerAndTime,
    MoneyPerTime,
    Overhead,
    PortRate,
    Ports,
    PowerPerByte,
    Share,
    Voltage,
    Watts,
    Yield,
)

Method: TypeAlias = Literal["chiplet-cloud", "annual"]
PowerModel: TypeAlias = Literal["activity", "design_power"]
Charge: TypeAlias = Literal["per_watt", "per_server"]


class SwitchSection(Section):
    """A switch, with its ports and what it draws with all of them lit, optics in them included."""

    ports: Ports
    rate: PortRate
    price: Money | None = None
    power: Watts
    carbon: Mass | None = None


class AdapterSection(Section):
    """What joins a rank to a network level: a card, or a share of one."""

    price: Money | None = None
    power: Watts
    carbon: Mass | None = None


class CableSection(Section):
    """A cable with both its ends, as far as it reaches."""

    price: Money | None = None
    reach: Length


class TransceiverSection(Section):
    """Optics at one end of a link."""

    price: Money | None = None
    power: Watts


class FibreSection(Section):
    """What lies between two transceivers, as far as light of 100 Gbit/s a lane or more reaches."""

    price: Money | None = None
    reach: Length


class PartSection(Section):
    """A part of a server or a rack."""

    price: Money | None = None
    power: Watts
    carbon: Mass | None = None


class ServersSection(Section):
    """What a server is made of beside the parts that it names.

    `dcdc` is paid by the current of the packages at `core_voltage`, `psu` by the power of the server. Whoever joins
    parts to a server keeps `gross_margin` of its price; who makes packages, `package_margin` of theirs.
    """

    host_memory: MoneyPerByte
    host_memory_power: PowerPerByte
    dcdc: MoneyPerCurrent
    dcdc_efficiency: Yield
    core_voltage: Voltage
    psu: MoneyPerPower
    psu_efficiency: Yield
    gross_margin: Margin
    package_margin: Margin


class SoldSection(Section):
    """A whole server as it is sold, and what it draws, for people to compare: systems have prices of their own."""

    price: Money
    power: Watts


class CooledSection(Section):
    """A number for each way of cooling, as money for power."""

    air: MoneyPerPower
    liquid: MoneyPerPower


class PueSection(Section):
    """Power of a facility over that of what computes in it."""

    air: Overhead
    liquid: Overhead


class FacilitySection(Section):
    """Buildings, power delivery and cooling.

    `capex`, `capex_life` and `opex` are those of the method chiplet-cloud, the others those of the method annual.
    Charged `per_server`, a server pays `per_server` for all of it, once, over its own life.
    """

    charged: Charge
    capex: MoneyPerPower
    capex_life: Life
    opex: MoneyPerPowerAndTime
    power_delivery: MoneyPerPower
    cooling: CooledSection
    life: Life
    per_server: Money
    pue: PueSection


class TcoSection(Section):
    """What owning adds to buying.

    `server_opex` is part of the price of a server, spent over its life, in the method chiplet-cloud; maintenance,
    network_opex and software are of one server in the method annual.
    """

    method: Method
    it_life: Life
    network_life: Life
    interest_rate: Share
    server_opex: Share
    maintenance: MoneyPerTime
    network_opex: MoneyPerTime
    software: MoneyPerTime
    availability: Yield
    utilisation: Yield


class EnergySection(Section):
    """Electricity and what draws it.

    By `design_power`, a package draws that times `average_load`. By `activity`, it draws `idle_share` of its design
    power at all times, and what it does adds energy: for each operation by dtype, for each byte of its memory by kind,
    of its cache, and of its links by kind; hosts draw `host_load` of the most that they may. All else, and everything
    where no step is known, draws its full power times `average_load`.
    """

    electricity: MoneyPerEnergy
    power_model: PowerModel
    average_load: Yield
    host_load: Yield
    idle_share: Share
    compute: dict[str, EnergyPerFlop]
    vector: EnergyPerFlop
    memory: dict[str, EnergyPerByte]
    cache: EnergyPerByte
    wires: EnergyPerByte
    links: dict[str, EnergyPerByte]


class FabSection(Section):
    """Making a wafer of one technology node, for its area: electricity, gases, materials."""

    energy: EnergyPerArea
    gases: MassPerArea
    materials: MassPerArea


class CarbonSection(Section):
    """Carbon dioxide, or what warms as much; `grid` is where machines run, `fab_grid` where wafers are made."""

    grid: str
    fab_grid: str
    grids: dict[str, MassPerEnergy]
    fabs: dict[str, FabSection]
    fab_yield: Yield
    memory: dict[str, MassPerByte]
    package: Mass
    server: Mass
    switch: Mass

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield grids that are not among those of the section."""
        for key, name in (("grid", self.grid), ("fab_grid", self.fab_grid)):
            if name not in self.grids:
                near = did_you_mean(name, list(self.grids))
                yield f"{key}: unknown grid '{name}'{near} allowed: {', '.join(self.grids)}"


class CloudSection(Section):
    """What one accelerator is rented for, with its part of a server and a network."""

    price: MoneyPerTime


class OwnershipSection(Section):
    """What machines cost, to buy and to run."""

    switches: dict[str, SwitchSection]
    adapters: dict[str, AdapterSection]
    cables: dict[str, CableSection]
    transceivers: dict[str, TransceiverSection]
    fibres: dict[str, FibreSection]
    parts: dict[str, PartSection]
    servers: ServersSection
    sold: dict[str, SoldSection]
    facility: FacilitySection
    tco: TcoSection
    energy: EnergySection
    carbon: CarbonSection
    cloud: dict[str, CloudSection]
