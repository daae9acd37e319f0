"""`slipstick design optimise`: the best designs within budgets of area and power, jointly with the plan, by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

import click

from ...ir.errors import UsageError
from ...ir.plan.word import Value
from ...ir.schedules.registry import USUAL
from ..flags.request import PlanCommand, Request
from ..output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, Answering, format_flag, output_flag, write_reasons
from ..output.files import write_text
from ..plans.text import plan_file_text, words_around
from ..search.axes import REFUSED, Asked
from ..search.flags import typed_flags
from ..search.job import job_of
from ..search.memory import collect_seldom, rows_at_once
from .given import quantity, total_mm2
from .sweep import check_names, setting_of

if TYPE_CHECKING:
    from ...explore.designs.optimise import Optimum
    from ...explore.designs.setting import DesignSetting
    from ...explore.designs.space import DesignSpace
    from ...explore.goals import Goal
    from ...explore.plans.job import PlanJob
    from ...report.results.result import Result

# What is tried of a plan where nothing is given; degrees and recomputation are free.
_USUAL: Mapping[str, tuple[Value, ...]] = {"cp": (1,), "mbs": (1, 2, 4)}
_OF_TRAINING: Mapping[str, tuple[Value, ...]] = {"zero": (1,), "schedule": (USUAL,), "vpp": (1, 2, 4)}
_AIMS = {"time": "step_time_s", "$": "usd", "cost": "usd", "energy": "j_per_token"}
_DOLLARS = {"train": "usd_per_mtok", "prefill": "usd_per_mtok_input", "decode": "usd_per_mtok_output"}


class OptimiseCommand(Answering, PlanCommand):
    """The verb `design optimise`, to which a flag of a plan that is typed is what plans must have."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "explain", "best_system", "best_plan")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS
    refused: ClassVar[tuple[str, ...]] = ("system", "rent")

    def answer(self, ctx: click.Context) -> Result:
        """Run the verb's function on what its flags say together."""
        ctx.params["typed"] = typed_flags(ctx)
        return super().answer(ctx)

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the designs, or the reasons of a number; and the system and the plan of the best."""
        from ...report.designs.optimised import OptimisedDesigns

        assert isinstance(result, OptimisedDesigns)
        if said["best_system"] is not None:
            write_text(result.system(), str(said["best_system"]))
        if said["best_plan"] is not None:
            around = words_around(Request.of(dict(said)))
            write_text(plan_file_text(result.best.job.plan, around), str(said["best_plan"]))
        if said["explain"] is None:
            return super().deliver(result, form, said)
        write_reasons(result.explain(str(said["explain"])), str(said["output"]))
        return 0


@click.command("optimise", cls=OptimiseCommand, params=[format_flag(*DRAWN_FORMS[:-1]), output_flag(DRAWN_SUFFIXES)])
@click.option("--node", metavar="LIST", help="Technology nodes, as N5,N3, oldest first.  [default: all]")
@click.option("--area", metavar="AREA", help="Most silicon of a package, all dies together, as 814mm2.")
@click.option("--die-area", metavar="AREA", help="Most silicon of one die, instead of --area.")
@click.option("--power", metavar="POWER", help="Most power of a package, as 700W.")
@click.option("--memory", default="hbm3", show_default=True, metavar="LIST", help="Memories to choose from.")
@click.option("--link", default="nvlink4", show_default=True, metavar="LIST", help="Lanes to choose from.")
@click.option("--dies", "--chiplets", "dies", default="1", show_default=True, metavar="LIST", help="Dies of a package.")
@click.option("--d2d", default="", metavar="NAME", help="Interface between dies: each die is then a GPU.")
@click.option("--d2d-bandwidth", metavar="RATE", help="To each neighbouring die, one direction, as 2TB/s.")
@click.option("--unit", default="h100", show_default=True, metavar="LIST", help="Compute units to choose from.")
@click.option("--joint", metavar="NAME", help="Packaging technology.  [default: as usual with the memory]")
@click.option("--cooling", default="", metavar="LIST", help="air, liquid or two-phase.  [default: the best there is]")
@click.option("--packages", "--node-size", default=8, show_default=True, help="Packages of a node.")
@click.option("--network", default="ndr-infiniband", show_default=True, metavar="NAME", help="Between nodes.")
@click.option("--like", default="dgx-h100", show_default=True, metavar="NAME|FILE", help="Servers, racks and switches.")
@click.option("--technology", type=click.Path(path_type=Path), metavar="FILE", help="Nodes, units, memories and links.")
@click.option("--scaling", metavar="NAME", help="How logic shrinks by node: papers or foundry.  [default: papers]")
@click.option(
    "--objective",
    default="time",
    show_default=True,
    metavar="time|$|energy|COLUMN",
    help="What to minimise: step time, dollars or joules of a token, or a column of `slipstick sweep` (+ to maximise).",
)
@click.option(
    "--explain",
    metavar="NAME",
    help="Show why the best design takes its power, area or edge, or how a metric of its step comes about.",
)
@click.option("--best-plan", metavar="FILE", help="Write the plan of the best design, for `estimate --plan FILE`.")
@click.option("--best-system", metavar="FILE", help="Write the system of the best design, for `cost` and `estimate`.")
def optimise_command(
    request: Request,
    typed: Mapping[str, tuple[Value, ...]],
    node: str | None,
    area: str | None,
    die_area: str | None,
    power: str | None,
    memory: str,
    link: str,
    dies: str,
    d2d: str,
    d2d_bandwidth: str | None,
    unit: str,
    joint: str | None,
    cooling: str,
    packages: int,
    network: str,
    like: str,
    technology: Path | None,
    scaling: str | None,
    objective: str,
) -> Result:
    """Optimise a chip for MODEL within budgets of area, power and die edge, on each of several nodes, with the plan.

    Free are the shares of the budgets, voltage and clock, the memory and its stacks, the lanes, and the parallel plan on
    --gpus; a flag of a plan fixes its value. The table says by how much each design beats the shares of its unit, at
    which part of its rated speed each component runs, and which designs no other beats in time, power, area and money.

    \b
    slipstick design optimise llama-3.1-8b --node N7,N5,N3 --area 814mm2 --power 700W --gpus 64 --gbs 64 --seq 8192
    slipstick design optimise mixtral-8x7b --die-area 800mm2 --power 1kW --memory hbm3e,hbm4 --gpus 64 --gbs 256 --objective $
    """  # noqa: D301, E501
    from ...backends.technology import columns
    from ...explore.designs.optimise import first_machine, optimise
    from ...explore.designs.plans import PlanFinder
    from ...report.designs.designs import design_goals
    from ...report.designs.optimised import OptimisedDesigns

    collect_seldom()
    setting = setting_of(request, technology, scaling, packages, network, like)
    rate = None if d2d_bandwidth is None else quantity("--d2d-bandwidth", d2d_bandwidth, "B/s")
    space = _space(node or ",".join(setting.technology.node_names), dies, unit, memory, link, d2d, rate, joint, cooling)
    check_names(space, setting.technology)
    watts = quantity("--power", power, "W")
    limits = {
        form: replace(
            columns.row(space.budget(form), 0), area_mm2=total_mm2(area, die_area, form.num_dies), power_w=watts
        )
        for form in space.forms()
    }
    aim = _AIMS.get(objective, objective)
    (goal, *more) = design_goals(_DOLLARS.get(request.words.phase, aim) if aim == "usd" else aim, True)
    if more:
        raise UsageError(f"--objective {objective}: one; the front has time, power, area and money of all designs")
    with TemporaryDirectory(prefix="slipstick-designs-") as folder:
        first = Path(folder) / "first.yaml"
        first.write_text(first_machine(limits, setting), encoding="utf-8")
        finder = PlanFinder(_plans(request, typed, str(first), setting, goal), Path(folder))
        found = optimise(limits, setting, finder, goal, lambda one: _say(one, goal, request.quiet))
    return OptimisedDesigns(
        model=found[0].job.lowered.source.name,
        setting=setting,
        goal=goal,
        limits=tuple(limits.values()),
        found=found,
        num_plans=finder.num_candidates,
    )


def _say(found: Optimum, goal: Goal, quiet: bool) -> None:
    if not quiet:
        from ...report.designs.designs_table import told

        value = told(goal.name, found.columns[goal.name])
        click.echo(f"{found.form.node}: {goal.label} {value} of {found.num_designs:,} designs", err=True)


def _space(
    nodes: str,
    dies: str,
    unit: str,
    memory: str,
    link: str,
    d2d: str,
    rate: float | None,
    joint: str | None,
    cooling: str,
) -> DesignSpace:
    """What may be chosen in words and counts; areas and powers are those of the budgets."""
    from ...backends.technology.files.package_file import as_joint
    from ...explore.designs.axes import counts, words
    from ...explore.designs.space import DesignSpace

    return DesignSpace(
        nodes=words(nodes),
        die_mm2=(1.0,),
        power_w=(1.0,),
        num_dies=counts(dies, "--dies"),
        units=words(unit),
        memories=words(memory),
        links=words(link),
        joints=() if joint is None else (as_joint(joint),),
        coolings=words(cooling) or ("",),
        d2d=(d2d,),
        d2d_bytes_per_s=() if rate is None else (rate,),
    )


def _plans(
    request: Request, typed: Mapping[str, tuple[Value, ...]], system: str, setting: DesignSetting, goal: Goal
) -> PlanJob:
    """The space of plans, as a search of them on one machine has it."""
    from ...cost.money import Terms
    from ...explore.plans.metrics import known_metrics
    from ...ir.graph import Workload

    flags = {name: value for name, value in typed.items() if name not in {"overrides", "quiet", "cache", *REFUSED}}
    wrong = [name for name in typed if name in REFUSED]
    if wrong:
        raise UsageError(f"--{wrong[0].replace('_', '-')} says nothing to a search of plans: leave it out")
    tried = {**_USUAL, **_OF_TRAINING} if request.words.phase == "train" else _USUAL
    usual = {name: values for name, values in tried.items() if name not in flags}
    known = goal.name in known_metrics(Workload(request.words.phase))
    asked = Asked(
        model=request.source.model,
        flags={**usual, **flags, "system": (system,)},
        objectives=(str(goal) if known else "step_time_s",),
        usual=frozenset(usual),
    )
    asked = replace(asked, rows_at_once=rows_at_once("2GiB"))
    job = job_of(asked, request.said({"overrides": ()}), "")
    (machine,) = job.machines
    from ...backends.technology.data import PARTS

    overrides = tuple(
        text
        for text in request.machine.overrides
        if text.partition("=")[0].partition(".")[0] not in (*PARTS, "scaling")
    )
    machine = replace(machine, overrides=(*machine.overrides, *overrides), stack=setting.stack, served_by=None)
    return replace(job, machines=(machine,), terms=job.terms and Terms(basis=setting.basis))
