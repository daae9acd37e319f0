"""`slipstick design`: chips and machines from budgets of area and power on a technology node."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir.errors import UsageError
from .flags import Named
from .output import columns, write_text

if TYPE_CHECKING:
    from ..backends.technology.design import Budget, Design
    from ..backends.technology.voltage import Clamp

WHATS = ("chip", "system", "study")
CLAMPS = ("budget", "paper")


@click.command("design")
@click.argument("what", type=Named(WHATS))
@click.option("--node", metavar="NAME", help="Technology node, as N5. A study may name several, as N7,N5; all if none.")
@click.option("--area", required=True, metavar="AREA", help="Silicon of all dies together, as 814mm2.")
@click.option("--power", required=True, metavar="POWER", help="Power of the package, as 700W.")
@click.option("--dies", default=1, show_default=True, help="How many dies make up the area.")
@click.option("--unit", default="h100", show_default=True, metavar="NAME", help="Unit of compute and floor plan.")
@click.option("--memory", default="hbm3", show_default=True, metavar="NAME", help="Stacks of memory beside the dies.")
@click.option("--link", default="nvlink4", show_default=True, metavar="NAME", help="Lanes to other chips.")
@click.option(
    "--clamp",
    type=Named(CLAMPS),
    default="budget",
    show_default=True,
    help="What units do below their least voltage: keep to the power, or slow down as in the paper.",
)
@click.option("--technology", type=click.Path(path_type=Path), metavar="FILE", help="Nodes, units, memories and links.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a number of the technology.")
@click.option("--name", default="designed", show_default=True, help="Name of what is designed.")
@click.option("--node-size", default=8, show_default=True, help="Chips that share a node, of a system.")
@click.option(
    "--network", default="ndr-infiniband", show_default=True, metavar="NAME", help="Between nodes of a system."
)
@click.option("--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Of a study.")
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Where to write it; - is stdout.")
def design_command(
    what: str,
    node: str | None,
    area: str,
    power: str,
    dies: int,
    unit: str,
    memory: str,
    link: str,
    clamp: str,
    technology: Path | None,
    overrides: tuple[str, ...],
    name: str,
    node_size: int,
    network: str,
    form: str,
    output: str,
) -> int:
    """Design a chip, or a system of such chips, as a YAML file; or study one budget on several nodes.

    \b
    slipstick design chip --node N5 --area 814mm2 --power 700W -o chip.yaml
    slipstick design study --area 826mm2 --power 400W --unit a100 --memory hbm2e
    """  # noqa: D301
    from ..backends.technology.chip_file import chip_text, system_text
    from ..backends.technology.data import load_technology
    from ..backends.technology.design import design, study

    known = load_technology(technology, overrides)
    nodes = tuple(node.split(",")) if node else ()
    budget = _budget((nodes or known.node_names)[0], area, power, unit, memory, link, dies, clamp)
    if what == "study":
        write_text(_study(study(budget, known, nodes), form), output)
        return 0
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise UsageError(f"--name '{name}': letters, digits, '_', '.' and '-' only")
    if node_size < 1:
        raise UsageError(f"--node-size {node_size}: at least one chip shares a node")
    if len(nodes) != 1:
        raise UsageError(f"a {what} is of one node: --node {', '.join(known.node_names)}")
    made = design(budget, known)
    text = chip_text(made, name) if what == "chip" else system_text(made, name, node_size, _network(network))
    write_text(text, output)
    return 0


def _budget(node: str, area: str, power: str, unit: str, memory: str, link: str, dies: int, clamp: str) -> Budget:
    from ..backends.technology.design import Budget

    how: Clamp = "paper" if clamp == "paper" else "budget"
    area_mm2, power_w = _given("--area", area, "mm2"), _given("--power", power, "W")
    return Budget(node, area_mm2, power_w, unit, memory, link, dies, how)


def _given(flag: str, text: str, dimension: str) -> float:
    from ..ir.units import parse_quantity, split_quantity, units_of

    try:
        value = parse_quantity(text, dimension).value_si
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None
    if not split_quantity(text)[1]:
        raise UsageError(f"{flag}: missing unit of '{text}': allowed: {units_of(dimension)}")
    return value


def _network(name: str) -> str:
    """A network of the catalogue or a file; UnknownNameError names the nearest."""
    from ..backends.system import load_network

    load_network(name)
    return name


def _study(designs: Sequence[Design], form: str) -> str:
    from ..ir.units import format_bytes, format_bytes_per_s, format_flop_per_s
    from ..report.columns import in_columns

    if form == "json":
        return json.dumps([_record(d) for d in designs], indent=2)
    heading = ["node", "SMs", "voltage", "clock", "fp16 peak", "cache", "memory", "FLOP/B", "links"]
    rows = [
        [
            d.budget.node,
            str(d.compute.num_sms),
            f"{d.compute.at.voltage_v:.3f} V",
            f"{d.compute.clock_hz / 1e9:.2f} GHz",
            format_flop_per_s(float(d.compute.flop_per_s)),
            format_bytes(float(d.cache.num_bytes)),
            format_bytes_per_s(float(d.memory.bytes_per_s)),
            f"{d.compute.flop_per_s / d.memory.bytes_per_s:.0f}",
            format_bytes_per_s(float(d.network.bytes_per_s)),
        ]
        for d in designs
    ]
    return in_columns([heading, *rows], columns())


def _record(d: Design) -> dict[str, str | float]:
    return {
        "node": d.budget.node,
        "num_sms": int(d.compute.num_sms),
        "voltage_v": float(d.compute.at.voltage_v),
        "clock_hz": float(d.compute.clock_hz),
        "fp16_peak_flop_per_s": float(d.compute.flop_per_s),
        "cache_bytes": float(d.cache.num_bytes),
        "memory_bytes": float(d.memory.num_bytes),
        "memory_bandwidth_bytes_per_s": float(d.memory.bytes_per_s),
        "links_bytes_per_s": float(d.network.bytes_per_s),
        "used_w": float(d.used_w),
    }
