"""`slipstick design`: chips and machines from budgets of area and power on a technology node, and areas of dies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...app.arguments.machine import YearArgs
from ...app.designs.given import quantity, total_mm2
from ...ir.errors import UnknownNameError, UsageError
from ..flags.build import flags_of
from ..flags.numbers import Named, Whole
from ..flags.talk import Watched, talk_flags
from ..output.answers import COLOR, PICTURES, form_of, format_flag, output_flag, write_answer
from ..output.files import check_suffix, write_text

if TYPE_CHECKING:
    from ...backends.technology.data import Technology
    from ...backends.technology.design import Budget, Design
    from ...backends.technology.files.package_file import Joint
    from ...backends.technology.voltage import Clamp
    from ...report.pictures.picture import Picture

WHATS = ("chip", "system", "study", "area", "optimise")
CLAMPS = ("budget", "paper")
# As `backends/technology` has them, which the help must not load.
JOINS = ("line", "ring", "mesh", "fully_connected")
JOINTS = ("organic", "fan_out", "interposer", "embedded_bridge", "fan_out_bridge")


class DesignCommand(Watched):
    """The verb `design`; `design optimise MODEL` is a command of its own, with the flags of plans."""

    def part(self, word: str) -> click.Command | None:
        """Return the command of its own that a word names."""
        if word != "optimise":
            return None
        from .optimise import optimise_command

        return optimise_command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """Return the context of the command that the first word names."""
        part = self.part(args[0]) if args else None
        if part is None:
            return super().make_context(info_name, args, parent, **extra)
        return part.make_context(f"{info_name} optimise", args[1:], parent, **extra)


@click.command(
    "design",
    cls=DesignCommand,
    params=[
        format_flag(),
        output_flag("of a study or an area .json, .csv, .parquet, .md, .html"),
        *talk_flags(told=False),
        COLOR,
        PICTURES,
        *flags_of(YearArgs),
    ],
)
@click.argument("what", type=Named(WHATS))
@click.option("--node", metavar="NAME", help="Technology node, as N5. A study may name several, as N7,N5; all if none.")
@click.option("--area", metavar="AREA", help="Total area of all dies, e.g. 814mm2.")
@click.option("--die-area", metavar="AREA", help="Area of one die, instead of --area.")
@click.option("--power", metavar="POWER", help="Power of the package, e.g. 700W.")
@click.option(
    "--dies",
    "--chiplets",
    "dies",
    type=Whole(),
    default=1,
    show_default=True,
    metavar="INTEGER",
    help="Number of dies.",
)
@click.option(
    "--d2d", default="", metavar="NAME", help="Interface between dies, as ucie-advanced: each die is then a device."
)
@click.option(
    "--one-device", is_flag=True, help="With --d2d: the dies are one device, which reads its memory through it."
)
@click.option("--d2d-bandwidth", metavar="RATE", help="To each neighbouring die, one direction, as 2TB/s.")
@click.option("--join", type=Named(JOINS), default="line", show_default=True, help="Topology of the die-to-die links.")
@click.option("--unit", default="h100", show_default=True, metavar="NAME", help="Compute unit and floor plan to scale.")
@click.option("--memory", default="hbm3", show_default=True, metavar="NAME", help="Memory type.")
@click.option("--stacks", type=Whole(), metavar="N", help="Number of memory stacks.  [default: as many as fit]")
@click.option("--link", default="nvlink4", show_default=True, metavar="NAME", help="Chip-to-chip links.")
@click.option(
    "--joint",
    type=Named(JOINTS),
    help="Packaging technology.  [default: interposer with HBM or fine D2D wires, bridges where it is too large for "
    "that, else organic]",
)
@click.option(
    "--clamp",
    type=Named(CLAMPS),
    default="budget",
    show_default=True,
    help="At the minimum voltage: stay within the power budget, or slow down as in the paper.",
)
@click.option(
    "--technology",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of your own technology: nodes, units, ...",
)
@click.option("--scaling", metavar="NAME", help="How logic shrinks by node: papers or foundry.  [default: papers]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a number of the technology.")
@click.option("--name", default="designed", show_default=True, help="Name of the design.")
@click.option(
    "--node-size", "--packages", type=Whole(), default=8, show_default=True, metavar="INTEGER",
    help="Packages per node of a system.",
)  # fmt: skip
@click.option(
    "--network", default="ndr-infiniband", show_default=True, metavar="NAME", help="Network between nodes of a system."
)
@click.option(
    "--like",
    default="dgx-h100",
    show_default=True,
    metavar="NAME|FILE",
    help="System whose servers, racks and switches stand around the chips; '' for none, which then cannot be priced.",
)
@click.option("--cooling", default="", metavar="NAME", help="air, liquid or two-phase.  [default: the best there is]")
@click.option("--prices", metavar="NAME|FILE", help="Price book whose limits a package keeps.  [default: the usual]")
@click.option("--die", metavar="NAME", help="Die whose area to break down.  [default: all]")
def design_command(
    what: str,
    node: str | None,
    area: str | None,
    die_area: str | None,
    power: str | None,
    dies: int,
    d2d: str,
    one_device: bool,
    d2d_bandwidth: str | None,
    join: str,
    unit: str,
    memory: str,
    stacks: int | None,
    link: str,
    joint: str | None,
    clamp: str,
    technology: Path | None,
    scaling: str | None,
    overrides: tuple[str, ...],
    name: str,
    node_size: int,
    network: str,
    like: str,
    cooling: str,
    prices: str | None,
    year: int | None,
    die: str | None,
    form: str | None,
    output: str,
) -> int:
    """Design a chip, or a system of such chips, as a YAML file; or study one budget on several nodes.

    chip and system write a YAML file for --system. study prints one area and power on several nodes. area estimates
    the area of a die from its contents. With --d2d, each die is a device of its own, and the interface between dies is
    a level of the network. optimise MODEL finds the best shares of the budgets: see its own --help.

    \b
    slipstick design chip --node N5 --area 814mm2 --power 700W -o chip.yaml
    slipstick design system --node N5 --chiplets 2 --die-area 800mm2 --power 1400W --d2d ucie-advanced --d2d-bandwidth 2TB/s
    slipstick design study --area 826mm2 --power 400W --unit a100 --memory hbm2e
    slipstick design area --die ga100
    slipstick design optimise llama-3.1-8b --node N5,N3 --area 814mm2 --power 700W --gpus 64 --gbs 64 --seq 8192
    """  # noqa: D301, E501
    from ...backends.prices.book import USUAL, at_year
    from ...backends.technology.data import load_technology
    from ...backends.technology.design import design, study
    from ...backends.technology.files.chip_file import chip_text, system_text
    from ...backends.technology.files.package_file import as_joint
    from .tables import area_pictures, area_table, study_pictures, study_table

    if what == "optimise":
        raise UsageError(
            "optimise stands first, and a model behind it: slipstick design optimise MODEL --power 700W ..."
        )
    known = load_technology(technology, (*overrides, *([] if scaling is None else [f"scaling={scaling}"])))
    if what == "area":
        table, seen = partial(area_table, known, die, node), partial(area_pictures, known, die, node)
        return _write_table("areas of dies", table, seen, form, output)
    nodes = tuple(node.split(",")) if node else ()
    area_mm2, power_w = total_mm2(area, die_area, dies), quantity("--power", power, "W")
    budget = _budget((nodes or known.node_names)[0], area_mm2, power_w, unit, memory, link, dies, clamp, stacks)
    if one_device and not d2d:
        raise UsageError("--one-device is of an interface between dies: say which, as in --d2d ucie-advanced")
    budget = replace(budget, cooling=cooling, one_device=one_device)
    budget, how = _joined(budget, d2d, d2d_bandwidth, join), as_joint(joint) if joint else None
    if what == "study":
        designs = study(budget, known, nodes)
        table, seen = partial(study_table, designs, known), partial(study_pictures, designs)
        return _write_table("one budget on several nodes", table, seen, form, output)
    check_suffix(output, ".yaml")
    _check_names(what, nodes, name, node_size, known)
    made = design(budget, known)
    how = _joint_of(made, known, how, at_year(prices, year) or USUAL)
    if what == "chip":
        text = chip_text(made, name, known, how)
    else:
        text = system_text(made, name, node_size, _network(network), known, how, like)
    write_text(text, output)
    return 0


def _write_table(
    title: str,
    table: Callable[[str], str],
    seen: Callable[[], Sequence[Picture]],
    form: str | None,
    output: str,
) -> int:
    """Write a study or an area in the form of its suffix; what is designed is YAML, to a file of any name."""
    from ...report.results.documents import DocumentResult

    found = DocumentResult(title=title, document=lambda: table("json"), screen=lambda width: table("table"), seen=seen)
    write_answer(found, form_of(form, output), output)
    return 0


def _joint_of(made: Design, known: Technology, joint: Joint | None, prices: str) -> Joint | None:
    """Return how a package is joined: as asked for, else as usual, else by bridges where that is too large."""
    try:
        check_design(made, known, joint, prices)
    except UsageError as error:
        if joint is not None:
            raise
        try:
            check_design(made, known, "fan_out_bridge", prices)
        except UsageError:
            raise error from None
        return "fan_out_bridge"
    return joint


def check_design(made: Design, known: Technology, joint: Joint | None, prices: str) -> None:
    """Refuse a design whose package `slipstick cost` refuses; say of names without prices that it cannot tell."""
    from ...backends.prices.book import with_memories
    from ...backends.technology.packaging import packaged
    from ...cost.silicon.packages.package import package_bill

    # What is free is refused for what it is, not for want of a price.
    records = {
        kind: {"price": "0 USD/GiB", **record} if isinstance(record, dict) else record
        for kind, record in known.own_memories.items()
    }
    try:
        package_bill(packaged(made, known, joint), with_memories(records, prices))
    except UnknownNameError as error:
        click.echo(f"warning: whether it can be made is not known, nor its cost: {error}", err=True)


def _check_names(what: str, nodes: tuple[str, ...], name: str, node_size: int, known: Technology) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise UsageError(f"--name '{name}': letters, digits, '_', '.' and '-' only")
    if node_size < 1:
        raise UsageError(f"--node-size {node_size}: at least one chip shares a node")
    if len(nodes) != 1:
        raise UsageError(f"a {what} is of one node: --node {', '.join(known.node_names)}")


def _budget(
    node: str,
    area_mm2: float,
    power_w: float,
    unit: str,
    memory: str,
    link: str,
    dies: int,
    clamp: str,
    stacks: int | None,
) -> Budget:
    from ...backends.technology.design import Budget

    how: Clamp = "paper" if clamp == "paper" else "budget"
    return Budget(node, area_mm2, power_w, unit, memory, link, dies, how, num_stacks=stacks)


def _joined(budget: Budget, d2d: str, bandwidth: str | None, join: str) -> Budget:
    """The same budget with an interface between its dies."""
    from ...backends.technology.d2d import as_join

    if not d2d:
        if bandwidth is not None:
            raise UsageError("--d2d-bandwidth is of an interface between dies: say which, as in --d2d ucie-advanced")
        return budget
    if bandwidth is None and budget.num_dies != 1:
        raise UsageError(f"--d2d {d2d} needs a bandwidth to each neighbour, as in --d2d-bandwidth 2TB/s")
    rate = 0.0 if bandwidth is None else quantity("--d2d-bandwidth", bandwidth, "B/s")
    return replace(budget, d2d=d2d, d2d_bytes_per_s=rate, join=as_join(join))


def _network(name: str) -> str:
    """A network of the catalogue or a file; UnknownNameError names the nearest."""
    from ...backends.machine.load import load_network

    load_network(name)
    return name
