"""`slipstick sweep`: chip designs by the thousand, with their silicon, their money, and the time of a model on them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ..flags.numbers import Real, Whole
from ..flags.request import Request
from ..flags.run import run_of
from ..output.answers import DRAWN_SUFFIXES, FORMS, format_flag, output_flag
from ..prepare import check_model, lower_of, sized
from ..search.progress import progress
from ..search.sampling import Sampling
from .axes import Axes, SweepCommand
from .trials import Chosen, advice_on, choose, has_trials, sampled_of

if TYPE_CHECKING:
    from ...backends.technology.data import Technology
    from ...cost.run.training_run import TrainingRun
    from ...explore.designs.designs import Designs
    from ...explore.designs.setting import DesignJob, DesignSetting
    from ...explore.designs.space import DesignSpace
    from ...explore.goals import Goal
    from ...ir.plan import Plan
    from ...report.results.tables import SweepResult

NO_MODEL = "none"
USUAL_GPUS = 1024


@click.command("sweep", cls=SweepCommand, params=[format_flag(*FORMS, "svg"), output_flag(DRAWN_SUFFIXES)])
@click.option("--node", default="N5", show_default=True, metavar="LIST", help="Technology nodes, as N5,N3.")
@click.option("--die-area", required=True, metavar="AXIS", help="Areas of one die: 400:800:100mm2, or 400,600mm2.")
@click.option("--power", metavar="AXIS", help="Powers of a package, as 700,1000W.")
@click.option("--power-density", metavar="AXIS", help="In its place, for each mm2 of its dies, as 0.6:1.0:0.1W/mm2.")
@click.option("--chiplets", "--dies", default="1", show_default=True, metavar="AXIS", help="Dies of a package.")
@click.option(
    "--d2d",
    default="",
    metavar="LIST",
    help="Interfaces between dies, each of which then is a GPU: ucie-advanced; `none` for dies that together are one.",
)
@click.option("--d2d-bandwidth", metavar="AXIS", help="Of these to each neighbour, one direction: 1,2TB/s.")
@click.option("--join", metavar="LIST", help="How dies are joined by them: line, ring, mesh, ...  [default: line]")
@click.option("--unit", default="h100", show_default=True, metavar="LIST", help="Units of compute.")
@click.option("--memory", default="hbm3", show_default=True, metavar="LIST", help="Stacks of memory, as hbm3,hbm3e.")
@click.option("--stacks", metavar="AXIS", help="Stacks of a package.  [default: as many as fit]")
@click.option("--link", default="nvlink4", show_default=True, metavar="LIST", help="Lanes to other packages.")
@click.option("--joint", metavar="LIST", help="How dies and memory are joined.  [default: as usual with the memory]")
@click.option("--cooling", default="", metavar="LIST", help="air, liquid or two-phase.  [default: the best there is]")
@click.option(
    "--packages",
    "--node-size",
    type=Whole(),
    default=8,
    show_default=True,
    metavar="INTEGER",
    help="Packages of a node.",
)
@click.option("--network", default="ndr-infiniband", show_default=True, metavar="NAME", help="Between nodes.")
@click.option("--like", default="dgx-h100", show_default=True, metavar="NAME|FILE", help="Servers, racks and switches.")
@click.option(
    "--volume", type=Real(), metavar="N", help="Production volume of a design in packages, over which NRE is spread."
)
@click.option(
    "--gross-margin", type=Real(), metavar="X", help="Gross margin of the package's maker, as a share of its price."
)
@click.option("--technology", type=click.Path(path_type=Path), metavar="FILE", help="Nodes, units, memories and links.")
@click.option("--scaling", metavar="NAME", help="How logic shrinks by node: papers or foundry.  [default: papers]")
@click.option(
    "--objective",
    "objectives",
    metavar="LIST",
    help="Columns to minimise (with a +: to maximise), in order of priority; rows are sorted by the first.  [default: "
    "usd_per_step,step_time_s; without a model +fp16_flops_per_usd,+hbm_bytes_per_usd]",
)
@click.option("--pareto", "only_pareto", is_flag=True, help="Only Pareto-optimal rows.")
@click.option("--top", type=Whole(min=1), metavar="N", help="Only the first rows.  [default: 20 of a table]")
@click.option(
    "--best-system", metavar="FILE", help="Write the system of the first row as well, for `cost` and `estimate`."
)
def sweep_command(
    request: Request,
    axes: Axes,
    sampling: Sampling,
    study: Path | None,
    packages: int,
    network: str,
    like: str,
    volume: float | None,
    gross_margin: float | None,
    technology: Path | None,
    scaling: str | None,
    objectives: str | None,
    only_pareto: bool,
    top: int | None,
) -> SweepResult:
    """Cost a space of chip designs, and estimate MODEL on each of them under one plan.

    Every combination of values is a design. Its chip follows from area, power and technology node; its package and the
    system around it are priced bottom-up; a step of MODEL is estimated on it. MODEL `none` leaves the step out.
    --set changes a number of the prices, of the technology, or of the system around the chips.

    \b
    slipstick sweep none --die-area 200:800:50mm2 --chiplets 1,2,4 --power-density 0.8W/mm2 --gpus 1024
    slipstick sweep llama-3.1-8b --node N5,N3 --die-area 400:800:50mm2 --power 700,1000W --gpus 64 --tp 8 --gbs 64
    slipstick sweep none --die-area 200..800mm2 --chiplets 1,2,4 --power-density 0.5..1.2W/mm2 --gpus 1024 --trials 300
    """  # noqa: D301
    from ...backends.prices.book import books_of
    from ...report.designs.designs import design_goals
    from ...report.designs.designs_table import design_orders

    _check(request)
    chosen = None
    if has_trials(axes, sampling, study):
        told = (
            replace(request, quiet=False, cache=True),
            packages,
            network,
            like,
            volume,
            gross_margin,
            technology,
            scaling,
        )
        chosen = Chosen(sampled=sampled_of(axes), sampling=sampling, study=study, asked=repr(told))
    space = axes.space() if chosen is None else chosen.sampled.space
    goals = design_goals(objectives, request.source.model != NO_MODEL)
    books = books_of(request.machine.book)
    if len(books) > 1 and chosen is not None:
        raise UsageError(
            "--prices all ranks a whole space under each book: give lists of values, and no ranges and trials"
        )
    setting, *rest = (
        setting_of(
            request.said({"prices": book, "year": None}),
            technology,
            scaling,
            packages,
            network,
            like,
            volume,
            gross_margin,
        )
        for book in books
    )
    others = {other.prices.name: other for other in rest}
    check_names(space, setting.technology)
    job = None if request.source.model == NO_MODEL else _job(request)
    if chosen is None:
        found = _all(space, setting, job, goals, request.quiet)
        rankings = {book: _all(space, other, job, goals, quiet=True).ranking for book, other in others.items()}
        found = replace(found, orders=design_orders({setting.prices.name: found.ranking, **rankings}))
    else:
        found = choose(chosen, setting, job, goals, request.quiet)
    return replace(found, only_pareto=only_pareto, top=top)


def _all(
    space: DesignSpace, setting: DesignSetting, job: DesignJob | None, goals: tuple[Goal, ...], quiet: bool
) -> SweepResult:
    """Every design of a space."""
    from ...explore.designs.designs import check_some, explore, system_at, system_text_at
    from ...report.designs.designs import Ranking
    from ...report.results.tables import SweepResult

    started = time.perf_counter()
    made: list[Designs] = []
    with progress(space.num_designs(), quiet) as bar:
        for some in explore(space, setting, job):
            made.append(some)
            bar.advance(len(some.reason), "")
    if not quiet:
        num = space.num_designs()
        click.echo(f"{num:,} design{'s' if num > 1 else ''} in {time.perf_counter() - started:.2f} s", err=True)
    check_some(space, setting, made)
    ranking = Ranking.of(made, goals, advice_on(job, lambda at: system_at(space, setting, made, at)))
    return SweepResult(ranking=ranking, system=lambda: system_text_at(space, setting, made, int(ranking.order[0])))


def _check(request: Request) -> None:
    """Refuse what has no meaning for machines that nobody has built."""
    if request.machine.system is not None:
        raise UsageError("a sweep designs its systems: leave --system out; --like NAME says what stands around them")
    if request.rent:
        raise UsageError("nobody rents out a chip that is being designed: leave --rent out")
    if request.source.model == NO_MODEL and run_of(request.run, request.words.phase) is not None:
        raise UsageError("a run is of a model: name one in place of 'none', or leave --tokens and the like out")
    if request.compiler.stop_after is not None:
        raise UsageError("--stop-after leaves an unfinished graph; see it with `slipstick compile --emit sharded`")
    if request.words.num_gpus is not None and request.words.num_gpus < 1:
        raise UsageError(f"--gpus {request.words.num_gpus}: a system has 1 or more")


def setting_of(
    request: Request,
    technology: Path | None,
    scaling: str | None,
    packages: int,
    network: str,
    like: str,
    volume: float | None = None,
    gross_margin: float | None = None,
) -> DesignSetting:
    """Return what stands around designs; UnknownNameError for a network, a number or a price book that there is not."""
    from ...backends.machine.load import load_network
    from ...backends.prices.book import USUAL, with_memories
    from ...backends.technology.data import PARTS, load_technology
    from ...explore.designs.setting import DesignSetting

    load_network(network)
    of_prices = [text for text in request.machine.overrides if text.startswith("prices.")]
    words = (*PARTS, "scaling")
    of_technology = [text for text in request.machine.overrides if text.partition("=")[0].partition(".")[0] in words]
    rest = [text for text in request.machine.overrides if text not in of_prices and text not in of_technology]
    of_technology += [] if scaling is None else [f"scaling={scaling}"]
    at, num_gpus = request.machine, request.words.num_gpus
    known = load_technology(technology, of_technology)
    book = request.machine.prices or USUAL, [text.removeprefix("prices.") for text in of_prices]
    return DesignSetting(
        technology=known,
        prices=with_memories(known.own_memories, *book),
        num_packages=packages,
        network=network,
        like=like,
        num_gpus=USUAL_GPUS if num_gpus is None else num_gpus,
        volume=volume,
        gross_margin=gross_margin,
        stack=at.stack,
        calibration=at.calibration,
        overrides=(*at.graphs, *rest),
    )


def check_names(space: DesignSpace, technology: Technology) -> None:
    """Refuse a misspelt name before anything slow happens."""
    for names, find in (
        (space.nodes, technology.node),
        (space.units, technology.unit),
        (space.memories, technology.memory),
        (space.links, technology.link),
        (tuple(filter(None, space.d2d)), technology.d2d),
        (tuple(filter(None, space.coolings)), technology.flux_w_per_mm2),
    ):
        for name in names:
            find(name)


def _job(request: Request) -> DesignJob:
    from ...cost.flops import Convention
    from ...explore.designs.setting import DesignJob

    check_model(request)
    run = run_of(request.run, request.words.phase)
    graph, plan = sized(request)
    num_steps = None if run is None else _num_steps(run, plan)
    return DesignJob(lower_of(request, graph, plan.family), plan, num_steps, Convention(request.flops_convention))


def _num_steps(run: TrainingRun, plan: Plan) -> float | None:
    """Steps of the whole run, where its length is given; what fails and is saved on the way is not counted."""
    from ...cost.run.training_run import TrainingJob

    if run.checkpoints is not None or run.failures is not None:
        raise UsageError("a sweep counts no checkpoints and failures: give the length of the run alone, as --tokens")
    one = TrainingJob(
        step_time_s=1.0,
        samples=plan.global_batch,
        tokens=plan.global_batch * plan.seq_len,
        num_gpus=plan.num_gpus,
        num_nodes=1,
        state_bytes=0.0,
    )
    return run.over(one).metrics["num_steps"]
