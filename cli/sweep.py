"""`slipstick sweep`: chip designs by the thousand, with their silicon, their money, and the time of a model on them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir.errors import UsageError
from .flags import Named
from .options import PlanCommand, Request
from .output import columns, write_text
from .prepare import check_model, graph_of, lower_of, plan_of

if TYPE_CHECKING:
    from ..explore.designs import Job
    from ..explore.space import DesignSpace

NO_MODEL = "none"


@click.command("sweep", cls=PlanCommand)
@click.option("--node", default="N5", show_default=True, metavar="LIST", help="Technology nodes, as N5,N3.")
@click.option("--die-area", required=True, metavar="AXIS", help="Areas of one die: 400:800:100mm2, or 400,600mm2.")
@click.option("--power", metavar="AXIS", help="Powers of a package, as 700,1000W.")
@click.option("--power-density", metavar="AXIS", help="In its place, for each mm2 of its dies, as 0.6:1.0:0.1W/mm2.")
@click.option("--chiplets", default="1", show_default=True, metavar="AXIS", help="Dies of a package.")
@click.option("--d2d", default="", metavar="LIST", help="Interfaces between dies, each then a device: ucie-advanced.")
@click.option("--d2d-bandwidth", metavar="AXIS", help="Of these to each neighbour, one direction: 1,2TB/s.")
@click.option("--join", default="mesh", show_default=True, metavar="LIST", help="How dies are joined by them.")
@click.option("--unit", default="h100", show_default=True, metavar="LIST", help="Units of compute.")
@click.option("--memory", default="hbm3", show_default=True, metavar="LIST", help="Stacks of memory, as hbm3,hbm3e.")
@click.option("--stacks", metavar="AXIS", help="Stacks of a package.  [default: as many as fit]")
@click.option("--link", default="nvlink4", show_default=True, metavar="LIST", help="Lanes to other packages.")
@click.option("--joint", metavar="LIST", help="How dies and memory are joined.  [default: as usual with the memory]")
@click.option("--packages", default=8, show_default=True, help="Packages of a node.")
@click.option("--network", default="ndr-infiniband", show_default=True, metavar="NAME", help="Between nodes.")
@click.option("--like", default="dgx-h100", show_default=True, metavar="NAME|FILE", help="Servers, racks and switches.")
@click.option("--technology", type=click.Path(path_type=Path), metavar="FILE", help="Nodes, units, memories and links.")
@click.option(
    "--objective",
    "objectives",
    metavar="LIST",
    help="What should be small (large, with a +): by the first the rows are sorted, by all they are Pareto-optimal or "
    "not.  [default: usd_per_step,step_time_s; without a model usd_per_gpu_hour,+fp16_flop_per_s]",
)
@click.option("--pareto", "only_pareto", is_flag=True, help="Only rows that no other beats in all objectives.")
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Rows of a table.")
@click.option(
    "--format", "form", type=Named(("table", "csv", "json")), default="table", show_default=True, help="Output."
)
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Where to write it; - is stdout.")
def sweep_command(
    request: Request,
    node: str,
    die_area: str,
    power: str | None,
    power_density: str | None,
    chiplets: str,
    d2d: str,
    d2d_bandwidth: str | None,
    join: str,
    unit: str,
    memory: str,
    stacks: str | None,
    link: str,
    joint: str | None,
    packages: int,
    network: str,
    like: str,
    technology: Path | None,
    objectives: str | None,
    only_pareto: bool,
    top: int,
    form: str,
    output: str,
) -> int:
    """Cost a space of chip designs, and time MODEL on each of them under one plan.

    Every combination is a design: the technology engine builds its chip, the price book its package and the system
    around it, and the model's step runs on it. MODEL `none` leaves the time out.

    \b
    slipstick sweep none --die-area 200:800:50mm2 --chiplets 1,2,4 --power-density 0.8W/mm2 --gpus 1024
    slipstick sweep llama-3.1-405b --gpus 1024 --tp 8 --pp 8 --zero 1 --gbs 512 --seq 8192 --recompute full \\
        --node N5,N3 --die-area 400:800:100mm2 --chiplets 2 --power 1000,1400W --memory hbm3e
    """  # noqa: D301
    from ..backends.prices.book import USUAL, load_prices
    from ..backends.technology.data import load_technology
    from ..explore.designs import Setting, explore
    from ..report.designs import Goals, designs_text

    if request.system is not None:
        raise UsageError("a sweep designs its systems: leave --system out; --like NAME says what stands around them")
    own = [text for text in request.overrides if text.startswith("prices.")]
    prices = load_prices(request.prices or USUAL, tuple(text.removeprefix("prices.") for text in own))
    data = load_technology(technology, [text for text in request.overrides if text not in own])
    space = _space(node, die_area, power, power_density, chiplets, d2d, d2d_bandwidth, join, unit, memory, stacks,
                   link, joint)  # fmt: skip
    job = None if request.model == NO_MODEL else _job(request)
    setting = Setting(technology=data, prices=prices, num_packages=packages, network=network, like=like,
                      num_gpus=request.gpus or 1024)  # fmt: skip
    goals = Goals.of(objectives, job is not None)
    started = time.perf_counter()
    found = list(explore(space, setting, job))
    if not request.quiet:
        spent = time.perf_counter() - started
        click.echo(f"{space.num_designs():,} designs in {spent:.2f} s", err=True)
    write_text(designs_text(found, goals, only_pareto, top, form, columns()), output)
    return 0


def _space(
    node: str,
    die_area: str,
    power: str | None,
    power_density: str | None,
    chiplets: str,
    d2d: str,
    d2d_bandwidth: str | None,
    join: str,
    unit: str,
    memory: str,
    stacks: str | None,
    link: str,
    joint: str | None,
) -> DesignSpace:
    from ..backends.technology.d2d import as_join
    from ..backends.technology.package_file import as_joint
    from ..explore.axes import axis, counts, words
    from ..explore.space import DesignSpace

    if (power is None) == (power_density is None):
        raise UsageError("a design needs one of --power, of a package, and --power-density, of a mm2 of its dies")
    watts = axis(power, "W", "--power") if power else axis(power_density or "", "W/mm2", "--power-density")
    return DesignSpace(
        nodes=words(node), die_mm2=axis(die_area, "mm2", "--die-area"), power_w=watts,
        num_dies=counts(chiplets, "--chiplets"), units=words(unit), memories=words(memory),
        num_stacks=counts(stacks, "--stacks") if stacks else (), links=words(link),
        joints=tuple(map(as_joint, words(joint or ""))),
        d2d=tuple("" if word == "none" else word for word in words(d2d)) or ("",),
        d2d_bytes_per_s=axis(d2d_bandwidth, "B/s", "--d2d-bandwidth") if d2d_bandwidth else (),
        joins=tuple(map(as_join, words(join))), power_is_density=power is None,
    )  # fmt: skip


def _job(request: Request) -> Job:
    from ..explore.designs import Job

    check_model(request)
    plan = plan_of(request)
    return Job(lower_of(request, graph_of(request), plan.family), plan)
