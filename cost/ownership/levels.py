"""Energy of one operation or byte on each level of a chip: as measured on it, else by the law of its node.

    e_matrix = e_dtype r, e_vector alike     e_cache = (e_cache - e_wires) r + e_wires w     r = power(node) (V / V0)^2

`prices.energy` has the levels of the chip that was measured, H100; r and w are the chip's own (`chip.energy`, which
`design` writes), else those of its node and die at the nominal voltage. Memories go by their kind, wires by that
of the links of their level. The law is 1.5 times off on the one other design that was measured, Blackwell.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...backends.machine.chip import ChipEnergy
from ...backends.machine.package import Package
from ...backends.machine.system import System
from ...backends.prices.ownership_schema import EnergySection
from ...backends.technology.data import load_technology
from ...backends.technology.dynamic import FITTED_NODE, logic_energy, wire_energy
from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .wires import Wires, wires_of

# What a chip is taken to have whose package nobody describes.
USUAL_MEMORY = "hbm3"
# Factor by which the law of nodes misses: 0.81 pJ/FLOP of H100 on the same node as the 0.533 measured on Blackwell.
LAW_MISSES = 0.81 / 0.533
# Operations of narrow units in the time of one in 16 bits.
_NARROWER = {"fp8": 2.0, "int8": 2.0, "fp6": 2.0, "fp4": 4.0, "int4": 4.0}
_MEASURED = ChipEnergy()


@dataclass(frozen=True, slots=True)
class EnergyLevels:
    """Joules of an operation or a byte, by level; a number, or one a machine of a table.

    Attributes:
        compute: of matrix units, of a FLOP by dtype.
        vector: of vector units, of a FLOP.
        memory: of a byte of its memory.
        cache: of the same byte on the chip: caches, crossbar, registers and instructions.
        host: of a byte that goes to the host or comes from it, on top.
        wires: of bytes to other chips.
    """

    compute: Mapping[str, Num]
    vector: Num
    memory: Num
    cache: Num
    host: Num
    wires: Wires


def levels_of(system: System, energy: EnergySection) -> EnergyLevels:
    """Return the levels of a chip; UnknownNameError for a memory or an interface of which nobody says the energy."""
    own = system.chip.energy or _MEASURED
    logic, wires = _or(own.logic, logic_of(system.package)), _or(own.wires, wires_across(system.package))
    fixed = min(energy.wires.si, energy.cache.si)
    law = (energy.cache.si - fixed) * logic + fixed * wires
    memory = memory_kind(system)
    if own.memory_j_per_byte is None and memory not in energy.memory:
        raise UnknownNameError.of("memory of prices.energy", memory, energy.memory)
    return EnergyLevels(
        compute={dtype: _matrix(own, dtype, energy, logic) for dtype in energy.compute},
        vector=_or(own.vector_j_per_flop, energy.vector.si * logic),
        memory=energy.memory[memory].si if own.memory_j_per_byte is None else own.memory_j_per_byte,
        cache=_or(own.cache_j_per_byte, law),
        host=energy.memory["ddr5"].si + energy.links["pcie"].si,
        wires=wires_of(system, energy),
    )


def memory_kind(system: System) -> str:
    """Return the kind of memory of which a package has most bytes."""
    stacks = [] if system.package is None else list(system.package.counted_stacks())
    if not stacks:
        return USUAL_MEMORY
    return max(stacks, key=lambda s: float(np.max(s[0].num_bytes * s[1])))[0].kind


def logic_of(package: Package | None) -> Num:
    """Return the energy of logic of a package's newest dies over that of the measured chip, at the nominal voltage."""
    return (
        1.0
        if package is None
        else min((logic_energy(load_technology(), one) for one in nodes_of(package)), default=1.0)
    )


def nodes_of(package: Package | None) -> tuple[str, ...]:
    """Return the nodes of a package's dies."""
    return () if package is None else tuple(dict.fromkeys(die.node for die in package.assembly.dies))


def wires_across(package: Package | None) -> Num:
    """Return the energy of wires across a package's largest die over that of the measured chip's."""
    if package is None:
        return 1.0
    sides = [wire_energy(die.area_mm2) for die in package.assembly.dies]
    return sides[0] if len(sides) == 1 else max((float(np.max(side)) for side in sides), default=1.0)


def origin_of(system: System) -> str:
    """Say in words where the energy of a chip's logic comes from."""
    own, package = system.chip.energy or _MEASURED, system.package
    if own.logic is not None:
        return "chip.energy.logic x that of H100: node.power x V^2"
    law = float(np.max(logic_of(package)))
    nodes = ", ".join(nodes_of(package)) or FITTED_NODE
    if law == 1.0:
        return f"as H100, whose node it has ({nodes})"
    miss = f"within {LAW_MISSES:.1f} x, as the law is off on Blackwell"
    return f"not measured: {law:.4g} x that of H100 by the law of its node ({nodes}), {miss}"


def _matrix(own: ChipEnergy, dtype: str, energy: EnergySection, logic: Num) -> Num:
    law = energy.compute[dtype].si * logic
    if own.matmul_j_per_flop is None:
        return law
    if dtype in _NARROWER and own.narrow is not None:
        return own.matmul_j_per_flop * own.narrow / _NARROWER[dtype]
    return law * own.matmul_j_per_flop / (energy.compute["bf16"].si * logic)


def _or(own: Num | None, law: Num) -> Num:
    return law if own is None else own
