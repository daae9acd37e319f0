"""`slipstick choose`: which system, how many GPUs of it and which plan, for a training run with a deadline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, ClassVar

import click

from ...backends.machine.files.system_tree import split_override
from ...ir.errors import InfeasibleError, SlipstickError, UsageError
from ...ir.plan.word import Value
from ...ir.records import dataclass
from ...ir.schedules.registry import USUAL
from ..flags.names import of_catalogue
from ..flags.numbers import Named, Whole
from ..flags.request import PlanCommand, Request
from ..flags.run import count_of, quantity_of, run_of
from ..flags.shared import systems_named
from ..help import Section
from ..output.answers import Answering, format_flag, output_flag
from ..output.files import write_text
from ..plans.file import is_given
from ..prepare import terms_of
from ..serving.flags import ENGINE, TARGETS
from ..serving.mixed import ALSO, mixed_fleets
from ..serving.size import BY_EVIDENCE
from .axes import REFUSED, Asked
from .file import space_yaml
from .flags import typed_flags
from .job import job_of
from .memory import collect_seldom, rows_at_once
from .progress import counted, progress

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


class ChooseCommand(Answering, PlanCommand):
    """A verb whose --gpus names several numbers and whose --system several systems."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_plan")

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Name the parameters, with a list of numbers of GPUs in the place of one."""
        return [
            _GPUS if param.name == "gpus" else _SYSTEM if param.name == "system" else param
            for param in super().get_params(ctx)
        ]

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags, these two with the verb's own."""
        own, *shared = super().sections(ctx)
        rest = [(title, [p for p in params if p.name not in ("gpus", "system")]) for title, params in shared]
        return [(own[0], [_SYSTEM, _GPUS, *own[1]]), *rest]

    def answer(self, ctx: click.Context) -> Result:
        """Run the verb's function on what its flags say together."""
        ctx.params["wanted"] = Choosing(**{f.name: ctx.params.pop(f.name) for f in fields(Choosing)})
        fleet = Fleeting(**{f.name: ctx.params.pop(f.name) for f in fields(Fleeting)})
        counts, systems = ctx.params.pop("gpus"), ctx.params.pop("system")
        typed = typed_flags(ctx)
        ctx.params["gpus"], ctx.params["system"] = None, None
        ctx.params["fleet"], ctx.params["asked"] = fleet, None
        if fleet.rps is not None:
            # Raise UsageError for flags of a training run beside --rps.
            given = [name for name in _RUN_NAMES if is_given(ctx, name)] + (["gpus"] if counts is not None else [])
            if given:
                flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
                raise UsageError(f"{flags}: of a training run; a fleet takes --rps, --isl, --osl, --ttft and --tpot")
            ctx.params["system"] = str(systems)
        else:
            _check_run(ctx, counts)
            ctx.params["asked"] = _asked(str(ctx.params["model"]), typed, str(systems), str(counts))
        return super().answer(ctx)

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the table, and the plan of the first cluster as a file."""
        from ...report.clusters import ClusterResult

        super().deliver(result, form, said)
        if said["best_plan"] is not None:
            assert isinstance(result, ClusterResult)  # a fleet refuses the flag
            write_text(_plan_text(result.found, Request.of(dict(said))), str(said["best_plan"]))
        return 0


_SYSTEM = click.Option(
    ["--system", "--systems"],
    required=True,
    shell_complete=of_catalogue("systems"),
    metavar="NAME,..|all",
    help="Systems to compare: names of `slipstick list systems`, YAML files, or all of the catalogue.",
)
_GPUS = click.Option(
    ["--gpus"],
    metavar="FIRST:LAST|LIST",
    help="Numbers of GPUs of a training run: first:last doubles, first:last:step adds, or a list with commas.",
)
# Flags of a fleet; `--rps` says that there is one.
_OF_FLEET = (
    click.Option(
        ["--rps"],
        metavar="R[,R..]|FIRST:LAST|diurnal:PEAK,LOW|FILE",
        help="Choose a fleet for this request rate instead of a training run: one rate, several, or a day as a curve "
        "or a file of requests.",
    ),
    click.Option(["--isl"], default="1024", show_default=True, metavar="N", help="Input tokens of each request."),
    click.Option(["--osl"], default="1024", show_default=True, metavar="N", help="Output tokens of each request."),
    *TARGETS,
    ENGINE,
    click.Option(
        ["--spare"], type=Whole(min=0), default=0, show_default=True, metavar="N", help="Replicas beyond what it takes."
    ),
    click.Option(
        ["--confirm"],
        type=Named(("auto", "on", "off")),
        default="auto",
        show_default=True,
        help="Simulate the first plans request by request; auto does so where a limit is on a percentile.",
    ),
    click.Option(
        ["--disagg"],
        type=Named(("auto", "on", "off")),
        default="auto",
        show_default=True,
        help="Disaggregated prefill and decode: whichever takes fewer GPUs, always, or never.",
    ),
    ALSO,
)
_FLEET_NAMES = tuple(str(option.name) for option in _OF_FLEET if option.name != "rps")
_RUN_NAMES = ("deadline", "budget", "power", "tokens", "samples", "steps", "every", "best_plan")


@click.command("choose", cls=ChooseCommand, params=[*_OF_FLEET, format_flag(), output_flag()])
@click.option("--deadline", metavar="TIME", help="Longest time to train, e.g. 60d.")
@click.option("--budget", metavar="USD", help="Highest cost of the run, e.g. 300M: owned, or with --rent rented.")
@click.option("--power", metavar="POWER", help="Highest average power of the facility, e.g. 20MW.")
@click.option(
    "--objective",
    "aim",
    type=Named(tuple(_AIMS)),
    default="cost",
    show_default=True,
    help="What to minimise among clusters within every limit.",
)
@click.option(
    "--space",
    type=Named(("usual", "full")),
    default="usual",
    show_default=True,
    help="Plans to search: usual (ZeRO 1, 1F1B, 1 to 4 chunks, micro-batches of 1 to 4, all degrees and "
    "recomputation), or all that `slipstick search` tries. Flags of a plan fix its values.",
)
@click.option("--every", is_flag=True, help="Show every number of GPUs, not only the best of each system.")
@BY_EVIDENCE
@click.option("--best-plan", metavar="FILE", help="Write the plan of the first cluster, for `estimate --plan FILE`.")
@click.option(
    "--executor",
    type=Named(("local", "processes")),
    default="local",
    show_default=True,
    help="Where plans are priced: in this process, or in processes of this machine.",
)
@click.option("--jobs", type=Whole(min=1), metavar="N", help="Worker processes.  [default: one per core]")
@click.pass_context
def choose_command(
    ctx: click.Context, request: Request, asked: Asked | None, wanted: Choosing, fleet: Fleeting
) -> Result:
    """Choose a cluster for a training run of MODEL, or with --rps a fleet that serves it.

    Every system and number of GPUs gets its fastest plan; of each system the table shows the cheapest cluster that
    keeps the deadline, the budget and the power, and at which price of a GPU-hour the order would change.

    \b
    slipstick choose llama-3.1-70b --tokens 15T --deadline 60d --system all --gpus 1024:32768 --seq 8192 --gbs 2048
    slipstick choose mixtral-8x7b --tokens 1T --budget 5M --system dgx-h100,dgx-b200 --gpus 256:2048 --gbs 1024 --rent
    slipstick choose llama-3.1-70b --rps 500 --system all --isl 1024 --osl 256 --ttft p99:500ms --tpot p95:30ms
    slipstick choose llama-3.1-8b --rps 100 --also 'llama-3.1-70b rps=20 ttft=1s' --system dgx-h100,dgx-b200
    """  # noqa: D301
    from ...report.clusters import cluster_result

    if asked is None:
        return _fleets(ctx, request, wanted, fleet)
    collect_seldom()
    if wanted.space != "full":
        usual = {name: values for name, values in _USUAL.items() if name not in asked.flags}
        asked = replace(asked, flags={**usual, **asked.flags}, usual=frozenset(usual))
    return cluster_result(_compared(request, asked, wanted), wanted.every)


def _check_run(ctx: click.Context, counts: str | None) -> None:
    """Raise UsageError for flags of a fleet without --rps, and for a run without numbers of GPUs."""
    given = [name for name in _FLEET_NAMES if is_given(ctx, name)]
    if given:
        raise UsageError(f"--{given[0]}: of a fleet: add --rps R, requests a second")
    if counts is None:
        raise UsageError(
            "a training run needs numbers of GPUs, --gpus 1024:32768; a fleet requests a second, --rps 500"
        )


def _fleets(ctx: click.Context, request: Request, wanted: Choosing, fleet: Fleeting) -> Result:
    """Choose a fleet: the question of `slipstick size`, of every system and load."""
    from ...report.serving.fleets import fleet_result
    from ..serving.flags import Serving
    from ..serving.size import Sought, compared_fleets, days_of

    aims = {"cost": "cost", "energy": "energy", "carbon": "carbon"}
    if wanted.aim not in aims:
        raise UsageError(f"--objective {wanted.aim}: of a training run; of a fleet {', '.join(aims)}")
    serving = Serving(
        engine=fleet.engine,
        isl=fleet.isl,
        osl=fleet.osl,
        cached=None,
        prefix_hit=None,
        shared_prefix=False,
        chunked_prefill=None,
        max_num_seqs=None,
        block_size=None,
        memory_utilization=None,
        ttft=fleet.ttft,
        tpot=fleet.tpot,
    )
    sought = Sought(
        target_rps=str(fleet.rps),
        pools=fleet.disagg,
        max_gpus=None,
        top=1,
        aim=aims[wanted.aim],
        confirm=fleet.confirm,
        spare=fleet.spare,
        by_evidence=wanted.by_evidence,
    )
    if fleet.also:
        return mixed_fleets(ctx, request, serving, sought, fleet.also)
    days, serving = days_of(str(fleet.rps), serving)
    return fleet_result(compared_fleets(ctx, request, serving, sought, days))


def _asked(model: str, typed: Mapping[str, tuple[Value, ...]], systems: str, counts: str) -> Asked:
    """What the flags ask a search for."""
    flags = {
        name: value for name, value in typed.items() if name not in ("overrides", "quiet", "cache", "gpus", "system")
    }
    wrong = [name for name in flags if name in REFUSED and name not in _RUN and not name.startswith("checkpoint_")]
    if wrong:
        raise UsageError(f"--{wrong[0].replace('_', '-')} says nothing to a choice of clusters: leave it out")
    (given,) = typed.get("overrides", ((),))
    assert isinstance(given, tuple)
    paths = {".".join(keys): (value,) for keys, value in (split_override(str(text)) for text in given)}
    # Plans are chosen by their time; what the run costs under these terms is worked out for the chosen ones.
    kept = {name: value for name, value in flags.items() if name not in REFUSED | {"basis", "rent"}}
    return Asked(
        model=model,
        flags={**kept, "gpus": counts_of(counts), "system": systems_named(systems)},
        paths=paths,
        objectives=("step_time_s",),
    )


def counts_of(text: str) -> tuple[int, ...]:
    """Read numbers of GPUs: `1024:8192` doubles, `1024:4096:1024` adds, `512,768` is a list.

    >>> counts_of("1024:8192"), counts_of("64:256:64"), counts_of("512,768")
    ((1024, 2048, 4096, 8192), (64, 128, 192, 256), (512, 768))
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        listed = re.fullmatch(r"[0-9]{1,18}([ ,]+[0-9]{1,18})*[ ,]*", text.strip())
        found = tuple(int(one) for one in re.findall(r"[0-9]+", text)) if listed else ()
    else:
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 0)
        doubled = (first << k for k in range(_MOST_COUNTS) if 0 < first << k <= last)
        found = tuple(range(first, last + 1, step)[: _MOST_COUNTS + 1] if step else doubled)
    if not found or min(found) < 1 or len(found) > _MOST_COUNTS:
        raise UsageError(
            f"--gpus {text[:80]}: 1 to {_MOST_COUNTS} numbers, as in 1024:8192, 1024:4096:512 or 1024,1536"
        )
    return tuple(dict.fromkeys(found))


def _requirements(request: Request, wanted: Choosing) -> Requirements:
    """What the run has to keep; UsageError without its length."""
    from ...explore.clusters import Requirements

    run = run_of(request.run, request.words.phase)
    if run is None or run.amount is None:
        raise UsageError("a choice needs the length of the run: --tokens 15T, --samples N or --steps N")
    return Requirements(
        run=run,
        deadline_s=quantity_of(wanted.deadline, "s", "--deadline"),
        power_w=quantity_of(wanted.power, "W", "--power"),
        budget_usd=None if wanted.budget is None else count_of(wanted.budget.strip().lstrip("$")),
        terms=terms_of(request),
    )


def _compared(request: Request, asked: Asked, wanted: Choosing) -> ClusterComparison:
    """Search the plans of every system, and answer for the best of each number of its GPUs."""
    from ...backends.prices.book import books_of
    from ...explore.clusters import best_rows, clusters_in
    from ...explore.executors.executors import executor_of
    from ...report.clusters import ClusterComparison

    requirements = _requirements(request, wanted)
    usual, *others = books_of(request.machine.book)
    flags = {**asked.flags, "prices": (usual,)} if others else asked.flags
    asked = replace(asked, flags=flags, rows_at_once=rows_at_once("2GiB"))
    left_out = dict(_unsuited(request, asked))
    able = tuple(name for name in asked.flags["system"] if name not in left_out)
    if not able:
        raise UsageError(f"none of the systems can run this: {'; '.join(f'{k}: {v}' for k, v in left_out.items())}")
    job = job_of(replace(asked, flags={**asked.flags, "system": able}), request, space_yaml(asked))
    executor = executor_of(wanted.executor, wanted.jobs)
    with progress(sum(map(len, job.blocks())), request.quiet) as bar:
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
        raise InfeasibleError(f"none of {tally.num_candidates:,} plans is left: {counted(tally.pruned)}")
    has = {str(one.machine) for one in clusters}
    return {str(one): "no plan on these numbers of GPUs fits its memory" for one in job.machines if str(one) not in has}


def _plan_text(found: ClusterComparison, request: Request) -> str:
    """Return the plan of the first cluster as a file that `estimate --plan` takes."""
    from ...report.search.plans import machine_words
    from ..plans.text import plan_file_text, words_around

    first = found.ranking.candidates[0].item
    return plan_file_text(first.answer.plan, {**words_around(request), **machine_words(first.machine)})
