"""Words of `size` and `choose`: the least machines that do a work in time."""

# fmt: off
from pathlib import Path
from typing import Annotated, Literal

from ...ir.records import dataclass
from .options import Listed, Opt, Pairs


@dataclass(frozen=True, kw_only=True)
class EvidenceArgs:
    """Order of systems by evidence or value."""

    by_evidence: Annotated[bool, Opt(
        "Rank systems whose chip nobody measured behind the others, or among them.",
        off="--by-value",
    )] = True


@dataclass(frozen=True, kw_only=True)
class SizeArgs:
    """Objective and limits of a deployment."""

    target_rps: Annotated[str | float | Path, Opt(
        "Target rate of requests per second, or several that are compared; or how it goes over a day, by a curve or "
        "a file of requests: the fleet is made for its peak.",
        also=("--rps",), metavar="R[,R..]|FIRST:LAST|diurnal:PEAK,LOW|FILE",
    )]
    disagg: Annotated[Literal["auto", "on", "off"], Opt(
        "Disaggregated prefill and decode: whichever takes fewer GPUs, always, or never.",
        name="pools",
    )] = "auto"
    max_gpus: Annotated[int | None, Opt("Limit on the number of GPUs.  [default: any]", least=1, metavar="N")] = None
    top: Annotated[int, Opt("Plans to show.", least=1, metavar="N")] = 8
    objective: Annotated[Literal["cost", "gpus", "energy", "carbon"], Opt(
        "What to minimise among several systems.",
        name="aim",
    )] = "cost"
    confirm: Annotated[Literal["auto", "on", "off"], Opt(
        "Simulate the first plans request by request, and add replicas until they keep the limits: auto does so "
        "where a limit is on a percentile.",
    )] = "auto"
    spare: Annotated[int, Opt(
        "Spare replicas (N+1: 1); for disaggregated plans, spare workers of each pool.",
        least=0, metavar="N",
    )] = 0


@dataclass(frozen=True, kw_only=True)
class FleetArgs:
    """The fleet that serves a model."""

    rps: Annotated[str | float | Path | None, Opt(
        "Choose a fleet for this request rate instead of a training run: one rate, several, or a day as a curve or a "
        "file of requests.",
        metavar="R[,R..]|FIRST:LAST|diurnal:PEAK,LOW|FILE",
    )] = None
    isl: Annotated[str | float, Opt("Input tokens of each request.", metavar="N")] = "1024"
    osl: Annotated[str | float, Opt("Output tokens of each request.", metavar="N")] = "1024"


@dataclass(frozen=True, kw_only=True)
class FleetPlanArgs:
    """Plans of a fleet."""

    spare: Annotated[int, Opt("Replicas beyond what it takes.", least=0, metavar="N")] = 0
    confirm: Annotated[Literal["auto", "on", "off"], Opt(
        "Simulate the first plans request by request; auto does so where a limit is on a percentile.",
    )] = "auto"
    disagg: Annotated[Literal["auto", "on", "off"], Opt(
        "Disaggregated prefill and decode: whichever takes fewer GPUs, always, or never.",
    )] = "auto"
    also: Annotated[Pairs, Opt(
        "A further model on the same fleet, with the rate, lengths and limits of its own requests. Repeatable.",
        metavar="'MODEL rps=R [isl=N] [osl=N] [ttft=T] [tpot=T]'",
    )] = ()


@dataclass(frozen=True, kw_only=True)
class SystemsArgs:
    """Systems of a comparison."""

    system: Annotated[str, Opt(
        "Systems to compare: names of `slipstick list systems`, YAML files, or all of the catalogue.",
        also=("--systems",), metavar="NAME,..|all", catalogue="systems",
    )]


@dataclass(frozen=True, kw_only=True)
class CountsArgs:
    """Numbers of GPUs of a choice."""

    gpus: Annotated[Listed | None, Opt(
        "Numbers of GPUs of a training run: first:last doubles, first:last:step adds, or a list with commas.",
        metavar="FIRST:LAST|LIST",
    )] = None


@dataclass(frozen=True, kw_only=True)
class ChooseArgs:
    """The training run that a cluster is chosen for."""

    deadline: Annotated[str | float | None, Opt("Longest time to train, e.g. 60d.", metavar="TIME")] = None
    budget: Annotated[str | float | None, Opt(
        "Highest cost of the run, e.g. 300M: owned, or with --rent rented.",
        metavar="USD",
    )] = None
    power: Annotated[str | None, Opt("Highest average power of the facility, e.g. 20MW.", metavar="POWER")] = None
    objective: Annotated[Literal["cost", "time", "energy", "carbon"], Opt(
        "What to minimise among clusters within every limit.",
        name="aim",
    )] = "cost"
    space: Annotated[Literal["usual", "full"], Opt(
        "Plans to search: usual (ZeRO 1, 1F1B, 1 to 4 chunks, micro-batches of 1 to 4, all degrees and "
        "recomputation), or all that `slipstick search` tries. Flags of a plan fix its values.",
    )] = "usual"
    every: Annotated[bool, Opt("Show every number of GPUs, not only the best of each system.")] = False


@dataclass(frozen=True, kw_only=True)
class ExecutorArgs:
    """Executor of a search."""

    executor: Annotated[Literal["local", "processes"], Opt(
        "Where plans are priced: in this process, or in processes of this machine.",
    )] = "local"
    jobs: Annotated[int | None, Opt("Worker processes.  [default: one per core]", least=1, metavar="N")] = None
