"""Chip designs by the thousand, with their silicon, their money, and the time of a model on them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..prepare import check_finished, check_model, lower_of, sized
from ..request import Request
from ..run_words import run_of
from ..search.sampling import Sampling
from ..sources import VerbArguments
from .axes import Axes
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What stands around designs, as typed."""

    packages: int
    network: str
    like: str
    volume: float | None = None
    gross_margin: float | None = None
    technology: Path | None
    scaling: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(Request):
    """A space of designs, what stands around them, and the model that is estimated on each; or none."""

    axes: Axes
    sampling: Sampling
    around: Around
    study: Path | None
    objectives: str | None
    only_pareto: bool
    top: int | None

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the designs."""
        return {name: arguments.take(part) for name, part in _PARTS.items()}


_PARTS: Mapping[str, type] = {"axes": Axes, "sampling": Sampling, "around": Around}


def sweep_designs(request: SweepRequest) -> SweepResult:
    """Cost a space of chip designs, and estimate a model on each of them under one plan."""
    from ...backends.prices.book import books_of
    from ...report.designs.designs import design_goals
    from ...report.designs.designs_table import design_orders

    _check(request)
    chosen, axes, sampling, study = None, request.axes, request.sampling, request.study
    if has_trials(axes, sampling, study):
        plain = Request(**{f.name: getattr(request, f.name) for f in fields(Request)})
        told = (replace(plain, quiet=False, cache=True), request.around)
        chosen = Chosen(sampled=sampled_of(axes), sampling=sampling, study=study, asked=repr(told))
    space = axes.space() if chosen is None else chosen.sampled.space
    goals = design_goals(request.objectives, request.source.model != NO_MODEL)
    books = books_of(request.machine.book)
    if len(books) > 1 and chosen is not None:
        raise UsageError(
            "--prices all ranks a whole space under each book: give lists of values, and no ranges and trials"
        )
    setting, *rest = (setting_of(request.said({"prices": book, "year": None}), request.around) for book in books)
    others = {other.prices.name: other for other in rest}
    check_names(space, setting.technology)
    job = None if request.source.model == NO_MODEL else _job(request)
    if chosen is None:
        found = _all(space, setting, job, goals, request)
        silent = replace(request, quiet=True)
        rankings = {book: _all(space, other, job, goals, silent).ranking for book, other in others.items()}
        found = replace(found, orders=design_orders({setting.prices.name: found.ranking, **rankings}))
    else:
        found = choose(chosen, setting, job, goals, request)
    return replace(found, only_pareto=request.only_pareto, top=request.top)


def _all(
    space: DesignSpace, setting: DesignSetting, job: DesignJob | None, goals: tuple[Goal, ...], request: Request
) -> SweepResult:
    """Every design of a space."""
    from ...explore.designs.designs import check_some, explore, system_at, system_text_at
    from ...report.designs.designs import Ranking
    from ...report.results.tables import SweepResult

    started = time.perf_counter()
    made: list[Designs] = []
    with request.progress(space.num_designs()) as bar:
        for some in explore(space, setting, job):
            made.append(some)
            bar.advance(len(some.reason), "")
    num = space.num_designs()
    request.report(f"{num:,} design{'s' if num > 1 else ''} in {time.perf_counter() - started:.2f} s")
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
    check_finished(request)
    if request.words.num_gpus is not None and request.words.num_gpus < 1:
        raise UsageError(f"--gpus {request.words.num_gpus}: a system has 1 or more")


def setting_of(request: Request, around: Around) -> DesignSetting:
    """Return what stands around designs; UnknownNameError for a network, a number or a price book that there is not."""
    from ...backends.machine.load import load_network
    from ...backends.prices.book import USUAL, with_memories
    from ...backends.technology.data import PARTS, load_technology
    from ...explore.designs.setting import DesignSetting

    load_network(around.network)
    of_prices = [text for text in request.machine.overrides if text.startswith("prices.")]
    words = (*PARTS, "scaling")
    of_technology = [text for text in request.machine.overrides if text.partition("=")[0].partition(".")[0] in words]
    rest = [text for text in request.machine.overrides if text not in of_prices and text not in of_technology]
    of_technology += [] if around.scaling is None else [f"scaling={around.scaling}"]
    at, num_gpus = request.machine, request.words.num_gpus
    known = load_technology(around.technology, of_technology)
    book = request.machine.prices or USUAL, [text.removeprefix("prices.") for text in of_prices]
    return DesignSetting(
        technology=known,
        prices=with_memories(known.own_memories, *book),
        num_packages=around.packages,
        network=around.network,
        like=around.like,
        num_gpus=USUAL_GPUS if num_gpus is None else num_gpus,
        volume=around.volume,
        gross_margin=around.gross_margin,
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
