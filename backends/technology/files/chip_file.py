"""A designed chip as a file of the catalogue, alone or with a machine around it; each number says what it is of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import yaml

from ....ir.sizes.expr import Num
from ....ir.units import format_bytes_per_s
from ..d2d import D2dKind, links, topology
from ..data import Technology
from ..design import Budget, Design
from ..dynamic import FITTED_NODE, FITTED_SIDE_MM
from ..speeds import speeds_text
from .package_file import NO_SALE, Joint, Sale, design_joint, package_lines
from .surroundings import cooling_of, equipment_lines, host_lines, surroundings_lines

_LATENCY = '{value: 0.7, unit: us, confidence: estimated, source: "as switches of today"}'
_EFFICIENCY = '{value: 0.75, confidence: estimated, source: "as dgx-h100"}'
# A flag and its data cross twice the far part of a cache, which takes 200 to 300 ns on chips of today.
_FAR_CACHE_S = 500e-9
_FLITS = '{value: 0.92, confidence: estimated, source: "flits of 256 bytes with 236 of data, as PCIe 6 over UCIe"}'


def chip_text(
    design: Design, name: str, technology: Technology, joint: Joint | None = None, sale: Sale = NO_SALE
) -> str:
    """Return a chip as YAML, which a system takes as its `chip`; one die of it where dies are devices of their own.

    `joint` says how dies and memory are joined; None for as usual with such memory.
    """
    return "\n".join((*_summary(design, technology), *_chip(design, name, technology, joint, "", sale), ""))


def system_text(
    design: Design,
    name: str,
    num_chips: int,
    network: str,
    technology: Technology,
    joint: Joint | None = None,
    like: str | Path = "",
    sale: Sale = NO_SALE,
) -> str:
    """Return a machine as YAML: nodes of so many packages behind a switch of their own lanes, joined by a network.

    Where the dies of a package are devices of their own, their interface is a network level inside of it. Servers,
    racks and switches are those of the system that it is `like`; without one, nobody says what they cost.
    """
    num_ranks = num_chips * int(design.budget.num_ranks)
    level = "" if design.budget.one_device else "d2d"
    what = "given" if num_ranks == num_chips else f"devices: {num_chips} packages of {design.budget.num_ranks} dies"
    # What a memory of the user's own costs and takes, which the price book does not know.
    own = {name: record for name, record in technology.own_memories.items() if name == design.budget.memory}
    lines = [
        *_summary(design, technology),
        f"name: {name}",
        "chip:",
        indent("\n".join(_chip(design, f"{name}-chip", technology, joint, level, sale)), "  "),
        "node:",
        f"  num_chips: {_number(num_ranks, '', what)}",
        *(_servers(design, num_chips, technology, like) if like else ()),
        "network:",
        *_inside(design, technology),
        *(_scale_up(design, num_chips, num_ranks, like) if num_chips > 1 or num_ranks == 1 else ()),
        f"  - {network}",
        *([yaml.safe_dump({"prices": {"memories": own}}, sort_keys=False, width=110).rstrip()] if own else []),
        "",
    ]
    return "\n".join(lines)


def _servers(design: Design, num_chips: int, technology: Technology, like: str | Path) -> Iterator[str]:
    yield from host_lines(like, num_chips)
    yield from surroundings_lines(like, num_chips, _cooling(design, technology, like))


def _cooling(design: Design, technology: Technology, like: str | Path) -> str:
    """Return the cooling of the servers: the design's, else as of those it is like where that takes its heat."""
    b, said = design.budget, cooling_of(like)
    if b.cooling or not said:
        return b.cooling
    heat = float(b.power_w / b.area_mm2)
    return said if heat <= technology.flux_w_per_mm2(said) else technology.cooling_for(heat)


def _inside(design: Design, technology: Technology) -> Iterator[str]:
    """The level that joins the dies of a package, if any."""
    budget = design.budget
    dies = int(budget.num_dies)
    if budget.num_ranks == 1:
        return
    kind = technology.d2d(budget.d2d)
    shape, dims = topology(budget.join, dies)
    wires = f"{_modules(design, kind)}, one direction"
    yield "  - name: d2d"
    yield f"    topology: {shape}"
    if dims:
        yield f"    dims: {dims}"
    yield f"    size: {_number(dies, '', 'the dies of a package')}"
    yield f"    links: {_number(links(budget.join, dies), '', 'a die of this topology; those at an end have fewer')}"
    yield f"    link_bandwidth: {_number(budget.d2d_bytes_per_s / 1e9, 'GB/s', wires)}"
    step_s = _FAR_CACHE_S + kind.latency_s
    yield f"    latency: {_number(step_s * 1e9, 'ns', 'two ways through far caches, and one through the interface')}"
    yield f"    efficiency: {_FLITS}"
    yield "    equipment: {}  # wires of the package"


def _modules(design: Design, kind: D2dKind) -> str:
    if not kind.module_mm2:
        return f"{kind.name}: a share of the die"
    return f"{float(kind.modules(design.budget.d2d_bytes_per_s)):g} modules of {kind.name}"


def _scale_up(design: Design, num_chips: int, num_ranks: int, like: str | Path) -> Iterator[str]:
    lanes = design.network
    whose = "" if num_chips == num_ranks else " of a die"
    of = f"{lanes.num_lanes} lanes of {design.budget.link}{whose}, one direction"
    yield "  - name: scale-up"
    yield "    topology: switch"
    size = "the chips of a node" if num_chips == num_ranks else "the dies of the packages of a node"
    yield f"    size: {_number(num_ranks, '', size)}"
    yield f"    bandwidth: {_number(lanes.bytes_per_s / 1e9, 'GB/s', of)}"
    yield f"    latency: {_LATENCY}"
    yield f"    efficiency: {_EFFICIENCY}"
    built = [*equipment_lines(like, num_ranks * float(lanes.bytes_per_s))] if like else []
    if built:
        at = f"{design.budget.link} at {lanes.at.voltage_v:.3f} V"
        yield from (*built, f"      energy: {_number(lanes.j_per_byte / 8e-12, 'pJ/bit', at)}")


def _summary(design: Design, technology: Technology) -> Iterator[str]:
    b, c, m, n = design.budget, design.compute, design.memory, design.network
    yield f"# Designed from {_given(b)}: {c.num_sms} multiprocessors of {b.unit} at {c.at.voltage_v:.3f} V,"
    yield (
        f"# {m.num_stacks} stacks of {b.memory} on {m.num_links} wires, {n.num_lanes} lanes of {b.link} for "
        f"{n.bytes_per_s / 1e9:.4g} GB/s each way. These parts use {design.used_w:.4g} W."
    )
    yield f"# {_areas(design)}."
    yield f"# Of their rated speeds: {speeds_text(design, technology)}."
    latency = technology.memory(b.memory).latency
    waits = "" if latency is None else f" A byte of a closed row of {b.memory} takes {latency.si * 1e9:g} ns."
    heat = float(b.power_w / b.area_mm2)
    cooled = f"{heat:.3g} W/mm2 of dies: {technology.cooling_for(heat)} cooling"
    yield f"# Nodes scaled as: {technology.scaling}. {cooled}.{waits}"
    if b.d2d and b.num_dies > 1:
        one = "The dies are one device, whose memory they read evenly through their interface."
        each = "Each die is a device of its own: these numbers are of one die, and num_chips of a node counts dies."
        yield f"# {one if b.one_device else each}"
        rate = format_bytes_per_s(float(b.d2d_bytes_per_s))
        yield f"# Dies joined as {b.join}, {rate} to each neighbour and each way over {b.d2d}."


def _areas(design: Design) -> str:
    a = design.areas
    named = (("compute", a.core_mm2), ("cache", a.cache_mm2), ("memory", a.memory_mm2), ("lanes", a.network_mm2))
    parts = [f"{area_mm2:.4g} for {name}" for name, area_mm2 in (*named, ("D2D", a.d2d_mm2)) if area_mm2]
    return f"Silicon in mm2: {', '.join(parts)}, {a.other_mm2:.4g} for all else"


def _given(budget: Budget) -> str:
    dies = "one die" if budget.num_dies == 1 else f"{budget.num_dies} dies"
    return f"{budget.area_mm2:g} mm2 of {budget.node} in {dies}, and {budget.power_w:g} W"


def _chip(
    design: Design, name: str, technology: Technology, joint: Joint | None, level: str, sale: Sale
) -> Iterator[str]:
    b, c, m, cache = design.budget, design.compute, design.memory, design.cache
    yield f"name: {name}"
    yield f"num_sms: {_number(c.num_sms, '', f'as many multiprocessors of {b.unit} as fit its share of the area')}"
    yield f"clock: {_number(c.clock_hz / 1e9, 'GHz', f'what {c.at.voltage_v:.3f} V allow, its share of the power')}"
    whole = "given" if b.num_ranks == 1 else f"one of {b.num_dies} dies of {b.power_w:g} W"
    yield f"power: {_number(design.power_w, 'W', whole)}"
    yield "matmul:"
    for dtype, peak in design.peaks:
        source = "vector units x clock" if dtype == "fp32" else f"{c.num_units} units x operations a clock x clock"
        yield f"  {dtype}: {_number(peak / 1e12, 'TFLOP/s', source)}"
    yield "vector:"
    yield f"  fp32: {_number(design.vector_flop_per_s / 1e12, 'TFLOP/s', 'vector units x clock')}"
    yield "memory:"
    yield "  hbm:"
    yield f"    capacity: {_number(m.num_bytes / 1e9, 'GB', f'{m.num_stacks} stacks of {b.memory}')}"
    wires = f"{m.num_links} wires at {m.speed:.3f} of their rate"
    if m.bytes_per_s < m.num_links * technology.memory(b.memory).rate.si * m.speed * (1 - 1e-9):
        wires = f"what {b.d2d} carries between the dies, each of which reads the stacks of all"
    yield f"    bandwidth: {_number(m.bytes_per_s / 1e9, 'GB/s', wires)}"
    yield "  l2:"
    yield f"    capacity: {_number(cache.num_bytes / 2**20, 'MiB', f'{cache.num_banks} banks')}"
    yield f"    bandwidth: {_number(cache.bytes_per_s / 1e12, 'TB/s', 'its share of the power over energy a byte')}"
    yield "energy:"
    nominal_v = technology.unit(b.unit).voltage.nominal.si
    law = f"power of {b.node} over that of {FITTED_NODE} x ({c.at.voltage_v:.3f} / {nominal_v:g} V)^2"
    yield f"  logic: {_number(design.logic_energy, '', law)}"
    across = f"side of a die over {FITTED_SIDE_MM:.1f} mm x (V / {nominal_v:g} V)^2"
    yield f"  wires: {_number(design.wire_energy, '', across)}"
    yield f"  memory: {_number(m.j_per_byte / 8e-12, 'pJ/bit', f'{b.memory} at {m.speed:.3f} of its rate')}"
    yield from package_lines(design, name, joint or design_joint(design, technology), technology, level, _number, sale)


def _number(value: Num, unit: str, source: str) -> str:
    unit = f", unit: {unit}" if unit else ""
    return f'{{value: {float(value):.12g}{unit}, confidence: estimated, source: "technology engine: {source}"}}'
