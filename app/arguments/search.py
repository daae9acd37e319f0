"""Words of searches: what may be chosen, how machines are sampled, where plans are priced."""

# fmt: off
from pathlib import Path
from typing import Annotated, Literal

from ...ir.records import dataclass
from .options import Opt, Pairs, Texts, WordKind


@dataclass(frozen=True, kw_only=True)
class SpaceArgs:
    """What may be chosen."""

    objective: Annotated[Texts, Opt(
        "Metrics to optimise, in order of priority, as step_time_s,usd_per_mtok; with several, plans on the Pareto "
        "front are marked. Prefix + to maximise or - to minimise a metric that has no direction of its own. "
        "Repeatable.  [default: step_time_s]",
        name="objectives", metavar="LIST",
    )] = ()
    constraint: Annotated[Texts, Opt(
        "Limit that a plan must meet: 'peak_mem_bytes<=0.95' (a share of the device), 'step_time_s<=20s', "
        "'mfu>=0.4'. Repeatable.",
        name="constraints", metavar="LIMIT",
    )] = ()
    fix: Annotated[Pairs, Opt(
        "Fixed value, e.g. tp=8 or zero=1: the same as the flag. Repeatable.",
        metavar="KEY=VALUE",
    )] = ()
    vary: Annotated[Pairs, Opt(
        "Values to search: tp=1,2,4, precision=none,fp8, or `all` values of a flag; a number of the system by its "
        "path or the end of it, as a list or first:last:count: system.hbm.bandwidth=2TB/s:10TB/s:9. Repeatable; all "
        "combinations. A range without steps, 2TB/s..10TB/s or 1us..20us:log, is for an optimiser: see --trials.",
        metavar="KEY=VALUES",
    )] = ()
    space: Annotated[str | Path | None, Opt(
        "Search space as YAML, see `slipstick schema space`; flags override it.",
        kind=WordKind.PATH, name="space_file", metavar="FILE",
    )] = None


@dataclass(frozen=True, kw_only=True)
class SamplingArgs:
    """How machines are chosen where they are too many to try all."""

    trials: Annotated[int | None, Opt(
        "Number of trials that a sampler chooses, instead of all combinations; ranges such as 2TB/s..10TB/s need it. "
        "Needs slipstick[search].",
        least=1, most=1000000, metavar="N",
    )] = None
    sampler: Annotated[Literal["tpe", "nsga2", "random"] | None, Opt(
        "Sampler: tpe (Bayesian), nsga2 (evolutionary, for several objectives; needs hundreds of trials), random.  "
        "[default: tpe]",
    )] = None
    seed: Annotated[int | None, Opt(
        "Random seed; the same seed gives the same points.  [default: 0]",
        least=0, metavar="N",
    )] = None
    trials_at_once: Annotated[int | None, Opt(
        "Trials per batch: larger batches run faster, smaller ones let the sampler learn sooner.  [default: 8]",
        least=1, metavar="N",
    )] = None


@dataclass(frozen=True, kw_only=True)
class ExecutionArgs:
    """Executor and ledger of a search."""

    max_memory: Annotated[str, Opt("Memory limit per process.", metavar="SIZE")] = "2GiB"
    executor: Annotated[Literal["local", "processes", "ray"], Opt(
        "Where plans are evaluated: in this process, in worker processes, or on a Ray cluster.",
    )] = "local"
    jobs: Annotated[int | None, Opt("Worker processes.  [default: one per core]", metavar="N")] = None
    address: Annotated[str | None, Opt(
        "Address of a running Ray cluster; without it one is started here.",
        metavar="HOST:PORT",
    )] = None
    resume: Annotated[str | None, Opt("Resume a run; finished blocks are not repeated.", metavar="RUN")] = None
    runs: Annotated[str | Path | None, Opt(
        "Folder of runs.  [default: that of `slipstick runs list`]",
        kind=WordKind.PATH, metavar="DIR",
    )] = None
    ledger: Annotated[bool, Opt("Save finished blocks of plans, so that the run can be resumed and exported.")] = True


@dataclass(frozen=True, kw_only=True)
class AnswerArgs:
    """What is shown."""

    top: Annotated[int, Opt("Best plans.", least=1, metavar="N")] = 20
    why: Annotated[bool, Opt("Explain why the best plan beats the second.")] = True


@dataclass(frozen=True, kw_only=True)
class PlainRequestArgs:
    """What requests are like, where all are alike."""

    isl: Annotated[str | float, Opt(
        "Tokens of a prompt, a whole number.",
        also=("--prompt", "--input-len"), metavar="N",
    )] = "1024"
    osl: Annotated[str | float, Opt(
        "Tokens of an answer, a whole number; the prompt makes the first.",
        also=("--output-len",), metavar="N",
    )] = "1024"


@dataclass(frozen=True, kw_only=True)
class PoolSearchArgs:
    """Search of disaggregated pools."""

    pools: Annotated[Literal["auto", "on", "off"], Opt(
        "Disaggregated prefill and decode: searched beside colocated replicas, alone, or not at all.",
    )] = "auto"
