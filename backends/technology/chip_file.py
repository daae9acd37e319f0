"""A designed chip as a file of the catalogue, alone or with a machine around it; each number says what it is of."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from ...ir.expr import Num
from .design import Budget, Design

_LATENCY = '{value: 0.7, unit: us, confidence: estimated, source: "as switches of today"}'
_EFFICIENCY = '{value: 0.75, confidence: estimated, source: "as dgx-h100"}'


def chip_text(design: Design, name: str) -> str:
    """Return a chip as YAML, which a system takes as its `chip`."""
    return "\n".join((*_summary(design), *_chip(design, name), ""))


def system_text(design: Design, name: str, num_chips: int, network: str) -> str:
    """Return a machine as YAML: nodes of so many chips behind a switch of their own lanes, joined by a network."""
    lanes = design.network
    rate = _number(lanes.bytes_per_s / 1e9, "GB/s", f"{lanes.num_lanes} lanes of {design.budget.link}, one direction")
    lines = [
        *_summary(design),
        f"name: {name}",
        "chip:",
        indent("\n".join(_chip(design, f"{name}-chip")), "  "),
        "node:",
        f"  num_chips: {_number(num_chips, '', 'given')}",
        "network:",
        "  - name: scale-up",
        "    topology: switch",
        f"    size: {_number(num_chips, '', 'the chips of a node')}",
        f"    bandwidth: {rate}",
        f"    latency: {_LATENCY}",
        f"    efficiency: {_EFFICIENCY}",
        f"  - {network}",
        "",
    ]
    return "\n".join(lines)


def _summary(design: Design) -> Iterator[str]:
    b, c, m, n = design.budget, design.compute, design.memory, design.network
    yield f"# Designed from {_given(b)}: {c.num_sms} multiprocessors of {b.unit} at {c.at.voltage_v:.3f} V,"
    yield (
        f"# {m.num_stacks} stacks of {b.memory} on {m.num_links} wires, {n.num_lanes} lanes of {b.link} for "
        f"{n.bytes_per_s / 1e9:.4g} GB/s each way. These parts use {design.used_w:.4g} W."
    )


def _given(budget: Budget) -> str:
    dies = "one die" if budget.num_dies == 1 else f"{budget.num_dies} dies"
    return f"{budget.area_mm2:g} mm2 of {budget.node} in {dies}, and {budget.power_w:g} W"


def _chip(design: Design, name: str) -> Iterator[str]:
    b, c, m, cache = design.budget, design.compute, design.memory, design.cache
    yield f"name: {name}"
    yield f"num_sms: {_number(c.num_sms, '', f'as many multiprocessors of {b.unit} as fit its share of the area')}"
    yield f"clock: {_number(c.clock_hz / 1e9, 'GHz', f'what {c.at.voltage_v:.3f} V allow, its share of the power')}"
    yield f"power: {_number(b.power_w, 'W', 'given')}"
    yield "matmul:"
    for dtype, peak in design.peaks:
        source = "vector units x clock" if dtype == "fp32" else f"{c.num_units} units x operations a clock x clock"
        yield f"  {dtype}: {_number(peak / 1e12, 'TFLOP/s', source)}"
    yield "vector:"
    yield f"  fp32: {_number(design.vector_flop_per_s / 1e12, 'TFLOP/s', 'vector units x clock')}"
    yield "memory:"
    yield "  hbm:"
    yield f"    capacity: {_number(m.num_bytes / 1e9, 'GB', f'{m.num_stacks} stacks of {b.memory}')}"
    wires = f"{m.num_links} wires at {m.at.speed:.3f} of their rate"
    yield f"    bandwidth: {_number(m.bytes_per_s / 1e9, 'GB/s', wires)}"
    yield "  l2:"
    yield f"    capacity: {_number(cache.num_bytes / 2**20, 'MiB', f'{cache.num_banks} banks')}"
    yield f"    bandwidth: {_number(cache.bytes_per_s / 1e12, 'TB/s', 'its share of the power over energy a byte')}"


def _number(value: Num, unit: str, source: str) -> str:
    unit = f", unit: {unit}" if unit else ""
    return f'{{value: {value:.6g}{unit}, confidence: estimated, source: "technology engine: {source}"}}'
