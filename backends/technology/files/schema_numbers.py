"""The kinds of numbers in the data of the technology engine: circuits, pads and packages."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ...machine.files.kinds import BANDWIDTH, CAPACITY, COUNT, FREQUENCY, LATENCY, POWER, RATIO, SHARE, NumberKind
from ...machine.files.number import Number

Bandwidth: TypeAlias = Annotated[Number, BANDWIDTH]
Capacity: TypeAlias = Annotated[Number, CAPACITY]
Count: TypeAlias = Annotated[Number, COUNT]
Frequency: TypeAlias = Annotated[Number, FREQUENCY]
Latency: TypeAlias = Annotated[Number, LATENCY]
Power: TypeAlias = Annotated[Number, POWER]
Ratio: TypeAlias = Annotated[Number, RATIO]
Share: TypeAlias = Annotated[Number, SHARE]
Gain: TypeAlias = Annotated[
    Number, NumberKind("Gain", "How much better than on the node before; one is as good.", sane=(0.1, 10.0))
]
Area: TypeAlias = Annotated[Number, NumberKind("Area", "An area of silicon or package.", "mm2", (1e-6, 1e6))]
Footprint: TypeAlias = Annotated[
    Number, NumberKind("Footprint", "What memory takes of a package, or none.", "mm2", (1e-6, 1e6), zero=True)
]
Flux: TypeAlias = Annotated[Number, NumberKind("Flux", "Power that leaves an area of dies.", "W/mm2", (1e-3, 1e3))]
Voltage: TypeAlias = Annotated[Number, NumberKind("Voltage", "A voltage.", "V", (0.01, 10.0))]
Energy: TypeAlias = Annotated[Number, NumberKind("Energy", "Energy to move data.", "J/B", (1e-16, 1e-6))]
Leakage: TypeAlias = Annotated[
    Number, NumberKind("Leakage", "Power that memory takes at rest.", "W/B", (1e-18, 1e-3), zero=True)
]
Density: TypeAlias = Annotated[Number, NumberKind("Density", "Wires along the edge of a die.", "1/mm", (1e-2, 1e5))]
LinkRate: TypeAlias = Annotated[
    Number, NumberKind("LinkRate", "What one wire or lane carries, one direction.", "B/s", (1e6, 1e12))
]
Rate: TypeAlias = Annotated[Number, NumberKind("Rate", "The rate of a dtype over that of fp16.", sane=(1e-3, 1e3))]
PackageRatio: TypeAlias = Annotated[
    Number, NumberKind("PackageRatio", "The area of a package over that of its dies.", sane=(1.0, 100.0))
]
Length: TypeAlias = Annotated[Number, NumberKind("Length", "A length on a die or in a package.", "mm", (1e-4, 1e4))]
Transistors: TypeAlias = Annotated[
    Number, NumberKind("Transistors", "How many transistors a circuit has.", sane=(1, 1e12))
]
TransistorDensity: TypeAlias = Annotated[
    Number, NumberKind("TransistorDensity", "Transistors of logic in an area.", "1/mm2", (1e4, 1e10))
]
CellArea: TypeAlias = Annotated[Number, NumberKind("CellArea", "Area of memory cells.", "mm2/B", (1e-9, 1e-3))]
Several: TypeAlias = Annotated[
    Number, NumberKind("Several", "A whole number of things, or none.", sane=(1, 1e9), zero=True, whole=True)
]
