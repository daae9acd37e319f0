"""The kinds of numbers of the price book, each with what other sources say beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, TypeAlias

from ..machine.files.kinds import BANDWIDTH, COUNT, MARGIN, NumberKind
from ..machine.files.number import Number

# Beside a number of the book may stand what other sources say of it.
_quoted = partial(NumberKind, quoted=True)

Ports: TypeAlias = Annotated[Number, COUNT]
PortRate: TypeAlias = Annotated[Number, BANDWIDTH]
Share: TypeAlias = Annotated[
    Number, _quoted("Share", "A part of something: from none to all of it.", zero=True, most=1.0)
]
Yield: TypeAlias = Annotated[Number, _quoted("Yield", "A part that is good: more than none.", most=1.0)]
Overhead: TypeAlias = Annotated[
    Number,
    _quoted(
        "Overhead",
        "What a whole takes over a part of it: 1 or more.",
        most=10.0,
        least=1.0,
        why="the whole takes no less than its part",
    ),
]
Margin: TypeAlias = Annotated[Number, replace(MARGIN, quoted=True)]
Plain: TypeAlias = Annotated[Number, _quoted("Plain", "A number without a unit: zero or more.", zero=True)]
Divisor: TypeAlias = Annotated[
    Number, _quoted("Divisor", "A number without a unit that others are divided by: more than none.")
]
Money: TypeAlias = Annotated[Number, _quoted("Money", "An amount of money.", "USD", (1e-9, 1e13), zero=True)]
MoneyPerArea: TypeAlias = Annotated[
    Number, _quoted("MoneyPerArea", "Money for an area.", "USD/mm2", (1e-9, 1e7), zero=True)
]
MoneyPerByte: TypeAlias = Annotated[
    Number, _quoted("MoneyPerByte", "Money for memory.", "USD/B", (1e-15, 1e-3), zero=True)
]
MoneyPerPower: TypeAlias = Annotated[
    Number,
    _quoted("MoneyPerPower", "Money for power that can be drawn, or conducted away.", "USD/W", (1e-6, 1e4), zero=True),
]
MoneyPerCurrent: TypeAlias = Annotated[
    Number, _quoted("MoneyPerCurrent", "Money for current that can be delivered.", "USD/A", (1e-6, 1e4), zero=True)
]
MoneyPerEnergy: TypeAlias = Annotated[
    Number, _quoted("MoneyPerEnergy", "Money for energy, as USD/kWh.", "USD/J", (1e-12, 1e-5), zero=True)
]
MoneyPerTime: TypeAlias = Annotated[
    Number, _quoted("MoneyPerTime", "Money for time, as USD/h.", "USD/s", (1e-12, 1e4), zero=True)
]
MoneyPerPowerAndTime: TypeAlias = Annotated[
    Number,
    _quoted(
        "MoneyPerPowerAndTime",
        "Money for power that is drawn all the time, as USD/W/month.",
        "USD/W/s",
        (1e-15, 1e-3),
        zero=True,
    ),
]
Defects: TypeAlias = Annotated[
    Number, _quoted("Defects", "Defects of an area, as 0.1 1/cm2.", "1/mm2", (1e-9, 1.0), zero=True)
]
Length: TypeAlias = Annotated[Number, _quoted("Length", "A length.", "mm", (1e-6, 1e8), zero=True)]
Area: TypeAlias = Annotated[Number, _quoted("Area", "An area.", "mm2", (1e-8, 1e8), zero=True)]
Period: TypeAlias = Annotated[Number, _quoted("Period", "A time, as 4 year.", "s", (1e-6, 1e11), zero=True)]
Life: TypeAlias = Annotated[Number, _quoted("Life", "A depreciation period: more than none.", "s", (3600.0, 1e11))]
EnergyPerByte: TypeAlias = Annotated[
    Number, _quoted("EnergyPerByte", "Energy to move data, as 4.5 pJ/bit.", "J/B", (1e-16, 1e-6), zero=True)
]
EnergyPerFlop: TypeAlias = Annotated[
    Number, _quoted("EnergyPerFlop", "Energy of an operation, as 0.18 pJ/FLOP.", "J/FLOP", (1e-18, 1e-6), zero=True)
]
EnergyPerArea: TypeAlias = Annotated[
    Number, _quoted("EnergyPerArea", "Energy to make an area, as 2.75 kWh/cm2.", "J/mm2", (1e-3, 1e9), zero=True)
]
PowerPerByte: TypeAlias = Annotated[
    Number, _quoted("PowerPerByte", "Power of memory, as 0.4 W/GB.", "W/B", (1e-15, 1.0), zero=True)
]
Voltage: TypeAlias = Annotated[Number, _quoted("Voltage", "A voltage.", "V", (1e-3, 1e6))]
Watts: TypeAlias = Annotated[Number, _quoted("Watts", "Power that may be zero.", "W", (1e-6, 1e9), zero=True)]
Mass: TypeAlias = Annotated[
    Number, _quoted("Mass", "Carbon dioxide, or what warms as much, as 5 kg.", "kg", (1e-9, 1e12), zero=True)
]
MassPerArea: TypeAlias = Annotated[
    Number, _quoted("MassPerArea", "Carbon dioxide of an area, as 1.5 kg/cm2.", "kg/mm2", (1e-9, 1e3), zero=True)
]
MassPerByte: TypeAlias = Annotated[
    Number, _quoted("MassPerByte", "Carbon dioxide of memory, as 0.1 kg/GB.", "kg/B", (1e-15, 1e-3), zero=True)
]
MassPerEnergy: TypeAlias = Annotated[
    Number, _quoted("MassPerEnergy", "Carbon dioxide of energy, as 0.4 kg/kWh.", "kg/J", (1e-12, 1e-3), zero=True)
]
Density: TypeAlias = Annotated[
    Number,
    _quoted("Density", "Things in an area, as 138.2e6 1/mm2 of transistors.", "1/mm2", (1e-6, 1e12), zero=True),
]
CurrentDensity: TypeAlias = Annotated[
    Number, _quoted("CurrentDensity", "Current that a pad takes, as 100 A/mm2.", "A/mm2", (1e-3, 1e7))
]
Rate: TypeAlias = Annotated[Number, _quoted("Rate", "Bytes per second, one direction.", "B/s", (1e6, 1e17))]
Capacity: TypeAlias = Annotated[Number, _quoted("Capacity", "An amount of memory.", "B", (1e6, 1e14))]
AreaPerByte: TypeAlias = Annotated[
    Number, _quoted("AreaPerByte", "Silicon that memory takes, as 0.45 mm2/MB.", "mm2/B", (1e-12, 1.0))
]
Cycle: TypeAlias = Annotated[Number, _quoted("Cycle", "A clock's cycle, as 100 ns.", "s", (1e-12, 1.0))]
PowerDensity: TypeAlias = Annotated[
    Number, _quoted("PowerDensity", "Power of an area, as 0.86 W/mm2.", "W/mm2", (1e-4, 1e3))
]
Supply: TypeAlias = Annotated[Number, _quoted("Voltage", "A supply.", "V", (0.01, 10.0))]
