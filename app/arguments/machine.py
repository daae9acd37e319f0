"""Words of the machine, of a whole run, of money, and of files that say other words."""

# fmt: off
from pathlib import Path
from typing import Annotated, Literal

from ...ir.records import dataclass
from .options import Opt, Pairs


@dataclass(frozen=True, kw_only=True)
class FileArgs:
    """Plan file and launch script."""

    plan: Annotated[str | Path | None, Opt(
        "Plan file (YAML, JSON): values of other flags under their names: `tp: 8`, `gbs: 2048`, also `model` and "
        "`system`. Flags on the command line override it. See `slipstick schema plan`.",
        metavar="FILE",
    )] = None
    launch: Annotated[str | Path | None, Opt(
        "Launch of another framework, read as by `slipstick import`: a script, a file of settings, or a command as "
        "one quoted word. Flags on the command line override it.",
        flags=("--from", "--launch"), metavar="FILE|COMMAND",
    )] = None


@dataclass(frozen=True, kw_only=True)
class EnvironmentArgs:
    """Environment of a launch script."""

    env: Annotated[Pairs, Opt(
        "Environment variable for the script of a launch. Repeatable.",
        name="environment", metavar="NAME=VALUE",
    )] = ()


@dataclass(frozen=True, kw_only=True)
class SystemArgs:
    """The machine."""

    system: Annotated[str | Path | None, Opt(
        "A name of `slipstick list systems`, or a YAML file (required).",
        metavar="NAME|FILE", catalogue="systems",
    )] = None


@dataclass(frozen=True, kw_only=True)
class MachineArgs:
    """Its software, constants and prices, and numbers that are set anew."""

    stack: Annotated[str | Path | None, Opt(
        "Software stack: a name of `slipstick list stacks` or a YAML file. Overheads, host time, overlap, kernels, "
        "allocator reserve; vllm@0.6 or vllm@2024-06 for an older version; none for the pure machine.  [default: "
        "what usually runs such plans on such chips]",
        metavar="NAME|FILE", catalogue="stacks",
    )] = None
    as_of: Annotated[str | None, Opt(
        "Use software versions of this date: a year, month or day, e.g. 2024-06.  [default: as of today]",
        metavar="DATE",
    )] = None
    calibration: Annotated[str | Path | None, Opt(
        "Constants of the kernels: a name of the catalogue, a YAML file that `slipstick calibrate` wrote, or "
        "'default' for those that are not specific to a chip.  [default: the chip's]",
        metavar="NAME|FILE", catalogue="calibration",
    )] = None
    prices: Annotated[str | Path | None, Opt(
        "Price book: a profile of `slipstick list prices`, or a YAML file of differences from the usual one.  "
        "[default: the system's, else the usual]",
        metavar="NAME|FILE", catalogue="prices",
    )] = None


@dataclass(frozen=True, kw_only=True)
class YearArgs:
    """The date of prices and limits."""

    year: Annotated[int | None, Opt(
        "Limits and prices of this year, as of --prices market@2027.  [default: each as of its own date]",
        least=2020, metavar="YEAR",
    )] = None


@dataclass(frozen=True, kw_only=True)
class OverrideArgs:
    """Numbers that are set anew."""

    cuda_graph: Annotated[bool | None, Opt(
        "Launch kernels from captured CUDA graphs: no launch gaps on the host.  [default: the stack's]",
    )] = None
    set: Annotated[Pairs, Opt(
        "Override a number of the system or its prices, e.g. chip.memory.hbm.bandwidth=4.8TB/s, "
        "prices.nodes.N5.wafer_price=13400USD. Repeatable.",
        name="overrides", metavar="KEY=VALUE",
    )] = ()


@dataclass(frozen=True, kw_only=True)
class MachineWordsArgs(MachineArgs, YearArgs, OverrideArgs):
    """Words of a machine beside its name."""


@dataclass(frozen=True, kw_only=True)
class RunArgs:
    """A whole training run."""

    tokens: Annotated[str | float | None, Opt(
        "Length of the run in tokens, e.g. 15T (K, M, B, T): adds days and GPU-hours.",
        metavar="N",
    )] = None
    samples: Annotated[str | float | None, Opt("Length of the run in sequences.", metavar="N")] = None
    steps: Annotated[str | float | None, Opt("Length of the run in steps.", metavar="N")] = None
    checkpoint_every: Annotated[str | None, Opt(
        "Checkpoint interval, e.g. 30min or 500steps; auto: the one that makes the run shortest.  [default with "
        "--mtbf: auto]",
        metavar="TIME|Nsteps|auto",
    )] = None
    checkpoint_bandwidth: Annotated[str | float | None, Opt(
        "Checkpoint bandwidth of the storage for the whole job, e.g. 200GB/s.",
        metavar="RATE",
    )] = None
    checkpoint_node_bandwidth: Annotated[str | float | None, Opt(
        "Checkpoint bandwidth of a node, e.g. 2GB/s; the lower of both bounds counts.",
        metavar="RATE",
    )] = None
    checkpoint_bytes: Annotated[str | None, Opt(
        "Size of a checkpoint.  [default: weights and optimizer states]",
        metavar="SIZE",
    )] = None
    checkpoint_stall: Annotated[str | float | None, Opt(
        "Measured stall per checkpoint.  [default: the write, or the copy to the host]",
        metavar="TIME",
    )] = None
    checkpoint_async: Annotated[bool | None, Opt(
        "Asynchronous checkpoints: stall only for the copy to host memory.  [default: off]",
    )] = None
    mtbf: Annotated[str | None, Opt(
        "Mean time between failures of a GPU (or node, or the whole job), all causes, e.g. 50000h; with --serve "
        "replicas fail by it.",
        metavar="TIME[/gpu|/node|/job]",
    )] = None
    restart_time: Annotated[str | float | None, Opt(
        "Time from a failure to the first step after it.  [default: 10min]",
        metavar="TIME",
    )] = None
    sites: Annotated[int | None, Opt(
        "Sites with the GPUs of the plan each, which train one model over a slow link (DiLoCo, local SGD).",
        least=1, metavar="N",
    )] = None
    site_bandwidth: Annotated[str | float | None, Opt(
        "Bandwidth of a site's link to other sites, each direction, e.g. 1Gbit/s.",
        metavar="RATE",
    )] = None
    site_latency: Annotated[str | float | None, Opt(
        "Latency of a message between sites.  [default: 0]",
        metavar="TIME",
    )] = None
    sync_every: Annotated[int | None, Opt("Steps of a site between two outer steps.", least=1, metavar="STEPS")] = None
    sync_dtype: Annotated[str | None, Opt(
        "Data type of exchanges between sites: fp32, bf16, int8, fp4.  [default: fp32]",
        metavar="TYPE",
    )] = None
    sync_fragments: Annotated[int | None, Opt(
        "Parts of the model that are exchanged apart, one every sync-every / N steps (Streaming DiLoCo).  [default: "
        "1]",
        least=1, metavar="N",
    )] = None
    sync_overlap: Annotated[int | None, Opt(
        "Steps that go on while a fragment is exchanged.  [default: 0]",
        least=0, metavar="STEPS",
    )] = None


@dataclass(frozen=True, kw_only=True)
class MoneyArgs:
    """Ownership of the machine."""

    basis: Annotated[Literal["market", "build"], Opt(
        "market: list prices of what is sold; build: bottom-up from dies, packages and parts.",
    )] = "market"
    rent: Annotated[bool, Opt("Rent by the hour at a cloud's price.  [default: own]", off="--own")] = False


@dataclass(frozen=True, kw_only=True)
class OtherArgs:
    """FLOP convention, unpriced operators and the cache."""

    allow_unpriced: Annotated[bool, Opt(
        "Price operators without a rule by the bytes that they move, and list them, instead of refusing the model.",
    )] = False
    flops_convention: Annotated[Literal["full", "causal"], Opt(
        "Attention FLOPs in MFU: of all pairs (full) or of unmasked pairs (causal).",
    )] = "full"
    cache: Annotated[bool, Opt("Keep traced graphs in the user's cache folder.")] = True


@dataclass(frozen=True, kw_only=True)
class QuietArgs:
    """Progress on or off."""

    quiet: Annotated[bool, Opt("Show no progress.", flags=("-q", "--quiet"))] = False
