"""Choose a system, its number of GPUs and a plan for a training run with a deadline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ...backends.machine.files.system_tree import split_override
from ...ir.errors import InfeasibleError, SlipstickError, UsageError
from ...ir.plan.word import Value
from ...ir.records import dataclass
from ...ir.schedules.registry import USUAL
from ..arguments.fleets import FleetArgs, FleetPlanArgs
from ..arguments.options import options_of
from ..arguments.serving import EngineArgs, TargetArgs
from ..prepare import terms_of
from ..request import Request
from ..run_words import count_of, quantity_of, run_of
from ..serving.several import mixed_fleets
from ..serving.size import SizeRequest, Sought, compared_fleets, days_of
from ..serving.words import Serving
from ..sources import Setting, Source, VerbArguments
from ..systems import systems_named
from ..talk import count_reasons
from .asked import given_words
from .axes import REFUSED, Asked
from .job import job_of
from .memory import collect_seldom, rows_at_once
from .space_file import space_yaml

if TYPE_CHECKING:
    from ...explore.clusters import Cluster, Requirements
    from ...explore.plans.job import PlanJob
    from ...explore.searching import CandidateTally
    from ...report.clusters import ClusterComparison
    from ...report.results.result import Result

# What is tried of a plan where nothing is given: what training runs are launched with; `--space full` frees all.
_USUAL: Mapping[str, tuple[Value, ...]] = {"zero": (1,), "schedule": (USUAL,), "vpp": (1, 2, 4), "mbs": (1, 2, 4)}
_AIMS = {"cost": "usd_run", "time": "train_time_s", "energy": "kwh", "carbon": "tco2e"}
_RANGE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})(?::([0-9]{1,18}))?")
_MOST_COUNTS = 200
_RUN = frozenset({"tokens", "samples", "steps", "mtbf", "restart_time"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """What a user wants of a choice, as typed."""

    deadline: str | None
    budget: str | None
    power: str | None
    aim: str
    space: str
    every: bool
    by_evidence: bool
    executor: str
    jobs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleeting:
    """What a user wants of a fleet that serves, as typed."""

    rps: str | None
    isl: str
    osl: str
    ttft: str | None
    tpot: str | None
    engine: str | None
    spare: int
    confirm: str
    disagg: str
    also: tuple[str, ...]


_FLEET = (FleetArgs, TargetArgs, EngineArgs, FleetPlanArgs)
_FLEET_WORDS = tuple(name for name in options_of(*_FLEET) if name != "rps")
_RUN_WORDS = ("deadline", "budget", "power", "tokens", "samples", "steps", "every", "best_plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseRequest(Request):
    """The machines that are compared, for a training run with its limits, or for a fleet."""

    choosing: Choosing
    fleet: Fleeting
    systems: str
    counts: str | None

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the choice."""
        counts = arguments.get("gpus")
        return {
            "choosing": arguments.take(Choosing),
            "fleet": arguments.take(Fleeting),
            "systems": str(arguments.get("system")),
            "counts": None if counts is None else str(counts),
        }

    @classmethod
    def of(cls, arguments: VerbArguments) -> ChooseRequest:
        """Return what arguments say; systems and numbers of GPUs are several, and no words of one plan."""
        is_fleet = arguments.get("rps") is not None
        nothing = Setting(None, Source.DEFAULT)
        one = Request.of(arguments.changed(gpus=nothing, **({} if is_fleet else {"system": nothing})))
        own = {f.name: getattr(one, f.name) for f in fields(one)}
        return cls(**{**own, **cls.parts_of(arguments), "arguments": arguments})


def choose_cluster(request: ChooseRequest) -> Result:
    """Choose a cluster for a training run, or with `rps` a fleet that serves a model."""
    from ...report.clusters import cluster_result

    if request.fleet.rps is not None:
        return _fleets(request)
    asked = _asked(request)
    collect_seldom()
    if request.choosing.space != "full":
        usual = {name: values for name, values in _USUAL.items() if name not in asked.flags}
        asked = replace(asked, flags={**usual, **asked.flags}, usual=frozenset(usual))
    return cluster_result(_compared(request, asked), request.choosing.every)


def _fleets(request: ChooseRequest) -> Result:
    """Choose a fleet: the question of `size_server`, of every system and load."""
    from ...report.serving.fleets import fleet_result

    fleet, wanted, arguments = request.fleet, request.choosing, request.arguments
    given = [name for name in _RUN_WORDS if arguments.is_given(name)] + (["gpus"] if request.counts is not None else [])
    if given:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{flags}: of a training run; a fleet takes --rps, --isl, --osl, --ttft and --tpot")
    aims = ("cost", "energy", "carbon")
    if wanted.aim not in aims:
        raise UsageError(f"--objective {wanted.aim}: of a training run; of a fleet {', '.join(aims)}")
    sought = Sought(
        target_rps=str(fleet.rps),
        pools=fleet.disagg,
        max_gpus=None,
        top=1,
        aim=wanted.aim,
        confirm=fleet.confirm,
        spare=fleet.spare,
        by_evidence=wanted.by_evidence,
    )
    serving = Serving(engine=fleet.engine, isl=fleet.isl, osl=fleet.osl, ttft=fleet.ttft, tpot=fleet.tpot)
    own = {f.name: getattr(request, f.name) for f in fields(Request)}
    asked = SizeRequest(**own, serving=serving, sought=sought)
    if fleet.also:
        return mixed_fleets(asked, fleet.also)
    days, serving = days_of(str(fleet.rps), serving)
    return fleet_result(compared_fleets(replace(asked, serving=serving), days))


def _asked(request: ChooseRequest) -> Asked:
    """Return what a search is asked for; UsageError for words that say nothing to a training run."""
    arguments, typed = request.arguments, given_words(request.arguments)
    given = [name for name in _FLEET_WORDS if arguments.is_given(name)]
    if given:
        raise UsageError(f"--{given[0]}: of a fleet: add --rps R, requests a second")
    if request.counts is None:
        raise UsageError(
            "a training run needs numbers of GPUs, --gpus 1024:32768; a fleet requests a second, --rps 500"
        )
    flags = {
        name: value for name, value in typed.items() if name not in ("overrides", "quiet", "cache", "gpus", "system")
    }
    wrong = [name for name in flags if name in REFUSED and name not in _RUN and not name.startswith("checkpoint_")]
    if wrong:
        raise UsageError(f"--{wrong[0].replace('_', '-')} says nothing to a choice of clusters: leave it out")
    (numbers,) = typed.get("overrides", ((),))
    assert isinstance(numbers, tuple)
    paths = {".".join(keys): (value,) for keys, value in (split_override(str(text)) for text in numbers)}
    # Plans are chosen by their time; what the run costs under these terms is worked out for the chosen ones.
    kept = {name: value for name, value in flags.items() if name not in REFUSED | {"basis", "rent"}}
    return Asked(
        model=request.source.model,
        flags={**kept, "gpus": counts_of(request.counts), "system": systems_named(request.systems)},
        paths=paths,
        objectives=("step_time_s",),
    )


def counts_of(text: str) -> tuple[int, ...]:
    """Read numbers of GPUs: `1024:8192` doubles, `1024:4096:1024` adds, `512,768` is a list.

    >>> counts_of("1024:8192"), counts_of("64:256:64"), counts_of("512,768")
    ((1024, 2048, 4096, 8192), (64, 128, 192, 256), (512, 768))
    """
    if (match := _RANGE.fullmatch(text.strip())) is None:
        listed = re.findall(r"[0-9]+", text) if re.fullmatch(r"[0-9, ]+", text) else []
        found = tuple(map(int, listed)) if max(map(len, listed), default=0) < 19 else ()
    else:
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 0)
        doubled = (first << k for k in range(_MOST_COUNTS) if 0 < first << k <= last)
        found = tuple(range(first, last + 1, step)[: _MOST_COUNTS + 1] if step else doubled)
    if not found or min(found) < 1 or len(found) > _MOST_COUNTS:
        raise UsageError(f"--gpus {text[:80]}: 1 to {_MOST_COUNTS} numbers: 1024:8192, 1024:4096:512 or 1024,1536")
    return tuple(dict.fromkeys(found))


def _requirements(request: ChooseRequest) -> Requirements:
    """What the run has to keep; UsageError without its length."""
    from ...explore.clusters import Requirements

    run, wanted = run_of(request.run, request.words.phase), request.choosing
    if run is None or run.amount is None:
        raise UsageError("a choice needs the length of the run: --tokens 15T, --samples N or --steps N")
    return Requirements(
        run=run,
        deadline_s=quantity_of(wanted.deadline, "s", "--deadline"),
        power_w=quantity_of(wanted.power, "W", "--power"),
        budget_usd=None if wanted.budget is None else count_of(wanted.budget.strip().lstrip("$")),
        terms=terms_of(request),
    )


def _compared(request: ChooseRequest, asked: Asked) -> ClusterComparison:
    """Search the plans of every system, and answer for the best of each number of its GPUs."""
    from ...backends.prices.book import books_of
    from ...explore.clusters import best_rows, clusters_in
    from ...explore.executors.executors import executor_of
    from ...report.clusters import ClusterComparison

    wanted, requirements = request.choosing, _requirements(request)
    usual, *others = books_of(request.machine.book)
    flags = {**asked.flags, "prices": (usual,)} if others else asked.flags
    asked = replace(asked, flags=flags, rows_at_once=rows_at_once("2GiB"))
    left_out = dict(_unsuited(request, asked))
    able = tuple(name for name in asked.flags["system"] if name not in left_out)
    if not able:
        raise UsageError(f"none of the systems can run this: {'; '.join(f'{k}: {v}' for k, v in left_out.items())}")
    job = job_of(replace(asked, flags={**asked.flags, "system": able}), request, space_yaml(asked))
    executor = executor_of(wanted.executor, wanted.jobs)
    with request.progress(sum(map(len, job.blocks()))) as bar:
        rows, tally = best_rows(job, executor, lambda found: bar.advance(found.num_candidates, ""))
    clusters = clusters_in(job, requirements, rows)
    left_out |= _without(job, clusters, tally)
    return ClusterComparison(
        model=asked.model,
        wanted=requirements,
        aim=_AIMS[wanted.aim],
        clusters=clusters,
        tally=tally,
        left_out=left_out,
        by_evidence=wanted.by_evidence,
        others={book: clusters_in(job, requirements, rows, book) for book in others},
    )


def _unsuited(request: Request, asked: Asked) -> Iterator[tuple[str, str]]:
    """Yield systems that cannot run what is asked, each with why; what is wrong for all of them is an error."""
    names = asked.flags["system"]
    for name in names:
        try:
            job_of(replace(asked, flags={**asked.flags, "system": (name,)}), request, "")
        except SlipstickError as error:
            if len(names) == 1:
                raise
            yield str(name), str(error)


def _without(job: PlanJob, clusters: Sequence[Cluster], tally: CandidateTally) -> Mapping[str, str]:
    """Return systems none of whose plans is left; InfeasibleError where that is all of them."""
    if not clusters:
        raise InfeasibleError(f"none of {tally.num_candidates:,} plans is left: {count_reasons(tally.pruned)}")
    has = {str(one.machine) for one in clusters}
    return {str(one): "no plan on these numbers of GPUs fits its memory" for one in job.machines if str(one) not in has}


def plan_text(found: ClusterComparison, request: Request) -> str:
    """Return the plan of the first cluster as a file that `estimate --plan` takes."""
    from ...report.search.plans import machine_words
    from ..plans.text import plan_file_text, words_around

    first = found.ranking.candidates[0].item
    return plan_file_text(first.answer.plan, {**words_around(request), **machine_words(first.machine)})
