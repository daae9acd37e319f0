"""Words of spaces of chip designs."""

# fmt: off
from pathlib import Path
from typing import Annotated

from ...ir.records import dataclass
from .options import Listed, Opt, WordKind
from .search import SamplingArgs


@dataclass(frozen=True, kw_only=True)
class SweepArgs:
    """Axes of designs, and what stands around them."""

    node: Annotated[Listed, Opt("Technology nodes, as N5,N3.", metavar="LIST")] = "N5"
    die_area: Annotated[str | float, Opt("Areas of one die: 400:800:100mm2, or 400,600mm2.", metavar="AXIS")]
    power: Annotated[str | float | None, Opt("Powers of a package, as 700,1000W.", metavar="AXIS")] = None
    power_density: Annotated[str | float | None, Opt(
        "In its place, for each mm2 of its dies, as 0.6:1.0:0.1W/mm2.",
        metavar="AXIS",
    )] = None
    chiplets: Annotated[str | float, Opt("Dies of a package.", also=("--dies",), metavar="AXIS")] = "1"
    d2d: Annotated[Listed, Opt(
        "Interfaces between dies, each of which then is a GPU: ucie-advanced; `none` for dies that together are one.",
        metavar="LIST",
    )] = ""
    d2d_bandwidth: Annotated[str | float | None, Opt(
        "Of these to each neighbour, one direction: 1,2TB/s.",
        metavar="AXIS",
    )] = None
    join: Annotated[Listed | None, Opt(
        "How dies are joined by them: line, ring, mesh, ...  [default: line]",
        metavar="LIST",
    )] = None
    unit: Annotated[Listed, Opt("Units of compute.", metavar="LIST")] = "h100"
    memory: Annotated[Listed, Opt("Stacks of memory, as hbm3,hbm3e.", metavar="LIST")] = "hbm3"
    stacks: Annotated[str | float | None, Opt("Stacks of a package.  [default: as many as fit]", metavar="AXIS")] = None
    link: Annotated[Listed, Opt("Lanes to other packages.", metavar="LIST")] = "nvlink4"
    joint: Annotated[Listed | None, Opt(
        "How dies and memory are joined.  [default: as usual with the memory]",
        metavar="LIST",
    )] = None
    cooling: Annotated[Listed, Opt("air, liquid or two-phase.  [default: the best there is]", metavar="LIST")] = ""


@dataclass(frozen=True, kw_only=True)
class AroundArgs:
    """Packages of a node, and what joins nodes."""

    packages: Annotated[int, Opt("Packages of a node.", also=("--node-size",), metavar="INTEGER")] = 8
    network: Annotated[str, Opt("Between nodes.", metavar="NAME")] = "ndr-infiniband"
    like: Annotated[str | Path, Opt("Servers, racks and switches.", metavar="NAME|FILE")] = "dgx-h100"


@dataclass(frozen=True, kw_only=True)
class VolumeArgs:
    """Volume and margin of a package."""

    volume: Annotated[float | None, Opt(
        "Production volume of a design in packages, over which NRE is spread.",
        metavar="N",
    )] = None
    gross_margin: Annotated[float | None, Opt(
        "Gross margin of the package's maker, as a share of its price.",
        metavar="X",
    )] = None


@dataclass(frozen=True, kw_only=True)
class TechnologyArgs:
    """Technology of a design."""

    technology: Annotated[str | Path | None, Opt(
        "Nodes, units, memories and links.",
        kind=WordKind.PATH, metavar="FILE",
    )] = None
    scaling: Annotated[str | None, Opt(
        "How logic shrinks by node: papers or foundry.  [default: papers]",
        metavar="NAME",
    )] = None


@dataclass(frozen=True, kw_only=True)
class DesignsArgs:
    """Objectives and rows of a table of designs."""

    objective: Annotated[Listed | None, Opt(
        "Columns to minimise (with a +: to maximise), in order of priority; rows are sorted by the first.  [default: "
        "usd_per_step,step_time_s; without a model +fp16_flops_per_usd,+hbm_bytes_per_usd]",
        name="objectives", metavar="LIST",
    )] = None
    pareto: Annotated[bool, Opt("Only Pareto-optimal rows.", name="only_pareto")] = False
    top: Annotated[int | None, Opt("Only the first rows.  [default: 20 of a table]", least=1, metavar="N")] = None


@dataclass(frozen=True, kw_only=True)
class DesignSamplingArgs(SamplingArgs):
    """Sampling of designs, which are priced as a table of many at once."""

    trials_at_once: Annotated[int | None, Opt(
        "Trials per batch: larger batches run faster, smaller ones let the sampler learn sooner.  [default: 32]",
        least=1, metavar="N",
    )] = None


@dataclass(frozen=True, kw_only=True)
class StudyArgs:
    """Journal of trials."""

    study: Annotated[str | Path | None, Opt(
        "Keep the trials of the optimiser here, as a journal of Optuna, and resume those that it holds.",
        kind=WordKind.PATH, metavar="FILE",
    )] = None


@dataclass(frozen=True, kw_only=True)
class OptimiseArgs:
    """Parts and budgets of an optimised design."""

    node: Annotated[Listed | None, Opt(
        "Technology nodes, as N5,N3, oldest first.  [default: all]",
        metavar="LIST",
    )] = None
    area: Annotated[str | None, Opt("Most silicon of a package, all dies together, as 814mm2.", metavar="AREA")] = None
    die_area: Annotated[str | None, Opt("Most silicon of one die, instead of --area.", metavar="AREA")] = None
    power: Annotated[str | None, Opt("Most power of a package, as 700W.", metavar="POWER")] = None
    memory: Annotated[Listed, Opt("Memories to choose from.", metavar="LIST")] = "hbm3"
    link: Annotated[Listed, Opt("Lanes to choose from.", metavar="LIST")] = "nvlink4"
    dies: Annotated[Listed, Opt("Dies of a package.", also=("--chiplets",), metavar="LIST")] = "1"
    d2d: Annotated[str, Opt("Interface between dies: each die is then a GPU.", metavar="NAME")] = ""
    d2d_bandwidth: Annotated[str | float | None, Opt(
        "To each neighbouring die, one direction, as 2TB/s.",
        metavar="RATE",
    )] = None
    unit: Annotated[Listed, Opt("Compute units to choose from.", metavar="LIST")] = "h100"
    joint: Annotated[str | None, Opt(
        "Packaging technology.  [default: as usual with the memory]",
        metavar="NAME",
    )] = None
    cooling: Annotated[Listed, Opt("air, liquid or two-phase.  [default: the best there is]", metavar="LIST")] = ""


@dataclass(frozen=True, kw_only=True)
class AimArgs:
    """Objective of an optimised design."""

    objective: Annotated[str, Opt(
        "What to minimise: step time, dollars or joules of a token, or a column of `slipstick sweep` (+ to maximise).",
        metavar="time|$|energy|COLUMN",
    )] = "time"
