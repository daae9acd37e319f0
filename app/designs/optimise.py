"""The best designs within budgets of area and power, jointly with the plan, by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.plan.word import Value
from ...ir.records import dataclass
from ...ir.schedules.registry import USUAL
from ..plans.text import plan_file_text, words_around
from ..request import Request
from ..search.asked import given_words
from ..search.axes import REFUSED, Asked
from ..search.job import job_of
from ..search.memory import collect_seldom, rows_at_once
from ..sources import VerbArguments
from .given import quantity, total_mm2
from .sweep import Around, check_names, setting_of

if TYPE_CHECKING:
    from ...explore.designs.optimise import Optimum
    from ...explore.designs.setting import DesignSetting
    from ...explore.designs.space import DesignSpace
    from ...explore.goals import Goal
    from ...explore.plans.job import PlanJob
    from ...report.designs.optimised import OptimisedDesigns

# What is tried of a plan where nothing is given; degrees and recomputation are free.
_USUAL: Mapping[str, tuple[Value, ...]] = {"cp": (1,), "mbs": (1, 2, 4)}
_OF_TRAINING: Mapping[str, tuple[Value, ...]] = {"zero": (1,), "schedule": (USUAL,), "vpp": (1, 2, 4)}
_AIMS = {"time": "step_time_s", "$": "usd", "cost": "usd", "energy": "j_per_token"}
_DOLLARS = {"train": "usd_per_mtok", "prefill": "usd_per_mtok_input", "decode": "usd_per_mtok_output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What a design may be made of and take, as typed."""

    node: str | None
    area: str | None
    die_area: str | None
    power: str | None
    memory: str
    link: str
    dies: str
    d2d: str
    d2d_bandwidth: str | None
    unit: str
    joint: str | None
    cooling: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiseRequest(Request):
    """Budgets of a design, what stands around it, and what is small of it."""

    budgets: Budgets
    around: Around
    objective: str

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the design."""
        return {"budgets": arguments.take(Budgets), "around": arguments.take(Around)}


def optimise_design(request: OptimiseRequest) -> OptimisedDesigns:
    """Find the best design within budgets on each of several nodes, jointly with the plan."""
    from ...backends.technology import columns
    from ...explore.designs.optimise import first_machine, optimise
    from ...explore.designs.plans import PlanFinder
    from ...report.designs.designs import design_goals
    from ...report.designs.optimised import OptimisedDesigns

    collect_seldom()
    setting = setting_of(request, request.around)
    asked, objective = request.budgets, request.objective
    rate = None if asked.d2d_bandwidth is None else quantity("--d2d-bandwidth", asked.d2d_bandwidth, "B/s")
    space = _space(asked, asked.node or ",".join(setting.technology.node_names), rate)
    check_names(space, setting.technology)
    watts = quantity("--power", asked.power, "W")
    limits = {
        form: replace(
            columns.row(space.budget(form), 0),
            area_mm2=total_mm2(asked.area, asked.die_area, form.num_dies),
            power_w=watts,
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
        finder = PlanFinder(_plans(request, str(first), setting, goal), Path(folder))
        found = optimise(limits, setting, finder, goal, lambda one: _say(one, goal, request))
    return OptimisedDesigns(
        model=found[0].job.lowered.source.name,
        setting=setting,
        goal=goal,
        limits=tuple(limits.values()),
        found=found,
        num_plans=finder.num_candidates,
    )


def _say(found: Optimum, goal: Goal, request: Request) -> None:
    from ...report.designs.designs_table import told

    value = told(goal.name, found.columns[goal.name])
    request.report(f"{found.form.node}: {goal.label} {value} of {found.num_designs:,} designs")


def _space(asked: Budgets, nodes: str, rate: float | None) -> DesignSpace:
    """What may be chosen in words and counts; areas and powers are those of the budgets."""
    from ...backends.technology.files.package_file import as_joint
    from ...explore.designs.axes import counts, words
    from ...explore.designs.space import DesignSpace

    return DesignSpace(
        nodes=words(nodes),
        die_mm2=(1.0,),
        power_w=(1.0,),
        num_dies=counts(asked.dies, "--dies"),
        units=words(asked.unit),
        memories=words(asked.memory),
        links=words(asked.link),
        joints=() if asked.joint is None else (as_joint(asked.joint),),
        coolings=words(asked.cooling) or ("",),
        d2d=(asked.d2d,),
        d2d_bytes_per_s=() if rate is None else (rate,),
    )


def _plans(request: Request, system: str, setting: DesignSetting, goal: Goal) -> PlanJob:
    """The space of plans, as a search of them on one machine has it."""
    from ...cost.money import Terms
    from ...explore.plans.metrics import known_metrics
    from ...ir.graph import Workload

    typed = given_words(request.arguments)
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


def plan_text(request: Request, result: OptimisedDesigns) -> str:
    """Return the plan of the best design as a file that `estimate --plan` takes."""
    return plan_file_text(result.best.job.plan, words_around(request))
