"""The kinds of tables there are, and what judges each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from ..ir.errors import UsageError
from ..ir.records import dataclass
from .kernels.kernels import judge_kernels
from .results.outcomes import Outcome
from .rows.cases import Judge
from .rows.machine_room import MachineRoom
from .rows.tables import RowFault, Table

if TYPE_CHECKING:
    from ..frontend import GraphCache
    from .runs import Estimator

# Tables of kernels: the kind of table -> module and class of its judge.
JUDGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "attention": ("kernels.attention", "AttentionJudge"),
        "collectives": ("kernels.collectives", "CollectiveJudge"),
        "elementwise": ("kernels.elementwise", "ElementwiseJudge"),
        "gemm": ("kernels.gemm", "GemmJudge"),
        "moe": ("kernels.moe", "MoeJudge"),
    }
)
MEMORY_COLUMNS = ("id", "dataset", "accelerator", "layers", "hidden", "heads", "seq_len", "tp", "pp", "micro_batch")
LAYER_COLUMNS = (
    "id", "dataset", "accelerator", "phase", "op", "tp", "batch", "seq_len", "hidden", "heads", "dtype", "time_us",
)  # fmt: skip
SERVED_COLUMNS = (
    "id", "dataset", "measurement", "accelerator", "engine", "model", "precision", "batch_or_concurrency", "tp",
    "input_tokens", "output_tokens", "ttft_ms", "tpot_ms",
)  # fmt: skip
RUN_COLUMNS = ("id", "dataset", "metric", "measured", "arguments")
STEP_COLUMNS = (*MEMORY_COLUMNS, "model", "n_gpus", "global_batch", "step_time_s")


@dataclass(frozen=True, slots=True)
class JudgingSettings:
    """What judging may need: machines and constants, a cache of graphs, where to tell progress, how many processes.

    `estimate` answers the arguments of `slipstick estimate`; without it tables of runs are refused.
    """

    room: MachineRoom
    cache: GraphCache | None = None
    report: Callable[[str], None] | None = None
    jobs: int = 1
    estimate: Estimator | None = None


class TableKind(Protocol):
    """One kind of table."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it needs, by which it is told from others."""
        ...

    def outcomes(self, table: Table, settings: JudgingSettings, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row; those that cannot be read are added to `faults`."""
        ...


@dataclass(frozen=True, slots=True)
class KernelTable:
    """A table of measured kernels."""

    judge: Judge[object]

    @property
    def name(self) -> str:
        """What people call it."""
        return self.judge.name

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it needs."""
        return self.judge.columns

    def outcomes(self, table: Table, settings: JudgingSettings, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row."""
        return judge_kernels(self.judge, table, settings.room, faults)


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """A table of training runs with their peak memory, or whether they ran."""

    name: str = "memory"
    columns: tuple[str, ...] = MEMORY_COLUMNS

    def outcomes(self, table: Table, settings: JudgingSettings, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row."""
        from .memory import MemoryJudge, memory_outcome

        judge = MemoryJudge(settings.cache, settings.report)
        return [memory_outcome(verdict) for verdict in judge.judge(table.rows)]


@dataclass(frozen=True, slots=True)
class StepTable:
    """A table of training runs with the time of a step."""

    name: str = "training"
    columns: tuple[str, ...] = STEP_COLUMNS

    def outcomes(self, table: Table, settings: JudgingSettings, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row."""
        from .training.outcomes import step_outcomes

        calibration = settings.room.calibration
        return step_outcomes(table, settings.cache, calibration, settings.jobs, settings.report, faults)


@dataclass(frozen=True, slots=True)
class LayerTable:
    """A table of layers and of ops in them."""

    name: str = "layer"
    columns: tuple[str, ...] = LAYER_COLUMNS

    def outcomes(self, table: Table, settings: JudgingSettings, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row."""
        from .kernels.layers import LayerJudge

        return LayerJudge(settings.room, settings.cache, settings.report).outcomes(table, faults)


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A table of served requests."""

    name: str = "inference"
    columns: tuple[str, ...] = SERVED_COLUMNS

    def outcomes(self, table: Table, settings: JudgingSettings, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row, each of its quantities by itself."""
        from .inference.outcomes import served_outcomes

        return served_outcomes(table, settings.cache, settings.room.calibration, settings.report, faults)


@dataclass(frozen=True, slots=True)
class RunTable:
    """A table of whole runs as arguments of `slipstick estimate`."""

    name: str = "runs"
    columns: tuple[str, ...] = RUN_COLUMNS

    def outcomes(self, table: Table, settings: JudgingSettings, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row."""
        from .runs import RunJudge

        if settings.estimate is None:
            raise UsageError(f"{table.path}: tables of runs are judged by `slipstick validate`")
        return RunJudge(settings.estimate, settings.report).outcomes(table, faults)


def kernel_judges() -> dict[str, Judge[object]]:
    """Return a judge of each kind of table of kernels."""
    found = {}
    for name, (module, judge) in JUDGES.items():
        found[name] = cast("Judge[object]", getattr(import_module(f".{module}", __package__), judge)())
    return found


def table_kinds() -> dict[str, TableKind]:
    """Return every kind of table by its name."""
    others: list[TableKind] = [MemoryTable(), StepTable(), LayerTable(), ServedTable(), RunTable()]
    kinds: list[TableKind] = [*map(KernelTable, kernel_judges().values()), *others]
    return {kind.name: kind for kind in kinds}
