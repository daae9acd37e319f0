"""The words of each function of Python, which are its parameters: a type checker reads them here."""

# fmt: off
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ...ir.records import dataclass
from .designs import (
    AimArgs,
    AroundArgs,
    DesignSamplingArgs,
    DesignsArgs,
    OptimiseArgs,
    StudyArgs,
    SweepArgs,
    TechnologyArgs,
    VolumeArgs,
)
from .fleets import (
    ChooseArgs,
    CountsArgs,
    EvidenceArgs,
    ExecutorArgs,
    FleetArgs,
    FleetPlanArgs,
    SizeArgs,
)
from .machine import (
    EnvironmentArgs,
    FileArgs,
    MachineWordsArgs,
    MoneyArgs,
    OtherArgs,
    QuietArgs,
    RunArgs,
    YearArgs,
)
from .others import CostArgs, ExportArgs, StepArgs, StrictArgs, TraceArgs
from .plan import DescribingArgs, LoweringArgs, PlanArgs, WorkloadArgs
from .search import AnswerArgs, ExecutionArgs, PlainRequestArgs, PoolSearchArgs, SamplingArgs, SpaceArgs
from .serving import CachedArgs, EngineArgs, LimitArgs, RequestArgs, ServerArgs, TargetArgs, WorkerArgs
from .training import MixedArgs, PlacementArgs, RecomputeArgs, SampleArgs, TopologyArgs

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...frontend.leaves import Module
    from ...ir.graph import Graph

# A name of the catalogue or a path; a graph, or a module that is traced; None where a plan or a launch names it.
Model: TypeAlias = "str | Path | Graph | Module | None"
Machine: TypeAlias = "str | Path | System | None"


@dataclass(frozen=True)
class ModelArg:
    """What is asked about."""

    model: Model


@dataclass(frozen=True)
class MachineArg(ModelArg):
    """And on what."""

    system: Machine


@dataclass(frozen=True)
class NamedMachineArg(ModelArg):
    """And on what, by its name: its stack or its numbers are chosen by the verb."""

    system: str | Path | None


@dataclass(frozen=True)
class MachinesArg(ModelArg):
    """And on which machines, by their names; with commas between them, or `all`, as one."""

    system: str | Path | Sequence[str]


@dataclass(frozen=True)
class MachineAlone:
    """A machine by itself."""

    system: Machine


@dataclass(frozen=True)
class ModelOrNone:
    """A model, where one is asked about."""

    model: Model = None


@dataclass(frozen=True)
class MachineOrNone(ModelArg):
    """And a machine, where one is needed."""

    system: Machine = None


@dataclass(frozen=True, kw_only=True)
class PlanVerbWords(
    FileArgs, EnvironmentArgs, WorkloadArgs, PlanArgs, MachineWordsArgs, RunArgs, MoneyArgs, LoweringArgs, OtherArgs,
    QuietArgs,
):
    """Words of a plan, its machine, its model and its run."""


@dataclass(frozen=True, kw_only=True)
class EstimateWords(PlanVerbWords, EngineArgs, StepArgs, StrictArgs, MachineArg):
    """Words of `estimate`."""


@dataclass(frozen=True, kw_only=True)
class ServeWords(
    PlanVerbWords, ServerArgs, StrictArgs, NamedMachineArg
):
    """Words of `serve`."""


@dataclass(frozen=True, kw_only=True)
class SizeWords(
    PlanVerbWords, EngineArgs, RequestArgs, CachedArgs, TargetArgs, LimitArgs, SizeArgs, EvidenceArgs, NamedMachineArg
):
    """Words of `size`."""


@dataclass(frozen=True, kw_only=True)
class ExportWords(
    PlanVerbWords, ServerArgs, ExportArgs, NamedMachineArg
):
    """Words of `export`."""


@dataclass(frozen=True, kw_only=True)
class SearchWords(
    PlanVerbWords, SpaceArgs, SamplingArgs, ExecutionArgs, AnswerArgs, EngineArgs, PlainRequestArgs, CachedArgs,
    TargetArgs,
    LimitArgs, PoolSearchArgs, WorkerArgs, MachinesArg,
):
    """Words of `search`."""


@dataclass(frozen=True, kw_only=True)
class ChooseWords(  # pyright: ignore[reportIncompatibleVariableOverride]  # GPUs of a choice are several
    CountsArgs, FleetArgs, TargetArgs, EngineArgs, FleetPlanArgs, ChooseArgs, EvidenceArgs, ExecutorArgs, PlanVerbWords,
    MachinesArg,
):
    """Words of `choose`."""


@dataclass(frozen=True, kw_only=True)
class MixedWords(PlanVerbWords, MixedArgs, ModelArg):
    """Words of `mixed`."""


@dataclass(frozen=True, kw_only=True)
class PosttrainWords(  # placement of the engine, not of ranks
    SampleArgs, PlacementArgs, PlanVerbWords, MachineArg
):
    """Words of `posttrain`."""


@dataclass(frozen=True, kw_only=True)
class RecomputeWords(PlanVerbWords, RecomputeArgs, MachineArg):
    """Words of `recompute`."""


@dataclass(frozen=True, kw_only=True)
class TopologiesWords(PlanVerbWords, TopologyArgs, MachineArg):
    """Words of `topologies`."""


@dataclass(frozen=True, kw_only=True)
class SweepWords(
    PlanVerbWords, SweepArgs, AroundArgs, VolumeArgs, TechnologyArgs, DesignsArgs, DesignSamplingArgs, StudyArgs,
    ModelOrNone,
):
    """Words of `sweep`; without a model it costs designs alone."""


@dataclass(frozen=True, kw_only=True)
class OptimiseWords(PlanVerbWords, OptimiseArgs, AroundArgs, TechnologyArgs, AimArgs, ModelArg):
    """Words of `optimise`."""


@dataclass(frozen=True, kw_only=True)
class CompileWords(PlanVerbWords, MachineOrNone):
    """Words of `compile`."""


@dataclass(frozen=True, kw_only=True)
class OperatorsWords(DescribingArgs, QuietArgs, TraceArgs, ModelArg):
    """Words of `operators`."""


@dataclass(frozen=True, kw_only=True)
class CostWords(YearArgs, MoneyArgs, CostArgs, MachineAlone):
    """Words of `cost`."""
