"""A search of plans of one model on one or more machines: its parts, its blocks, and the plan behind each row."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...backends.machine.files.many_systems import Systems
from ...backends.machine.system import System
from ...cost.flops import Convention
from ...cost.money import SystemWork, Terms, step_money, system_money
from ...cost.schedules.pipeline import Paced, Pipelines
from ...cost.schedules.together import alone, together
from ...driver.estimate import Estimates, Lowered, screen
from ...driver.evaluation import evaluated
from ...ir.errors import InternalError, PlanError, SlipstickError
from ...ir.graph import Graph
from ...ir.kept import RecentResults
from ...ir.layers import num_layers
from ...ir.plan import CP_METHODS, RECOMPUTE, Family, Plan
from ...ir.plan.case import Above
from ...ir.plan.divisibility import has_experts
from ...ir.plan.training.decisions import Decisions
from ...ir.records import dataclass
from ...ir.schedules.registry import SCHEDULES, USUAL
from ...ir.text.printer import print_graph
from ...ir.text.untrusted import read_settings
from ..block import Array, Block, Found, cut, joined
from ..goals import Goal, MetricLimit
from ..machine import MachineChoice, contents
from .degrees import NUMBERS, Counts
from .lowerings import Lowerings, side_by_side, with_stages
from .metrics import metrics_of
from .pieces import BlockPieces, Index, Piece
from .space import PlanRunner, PlanSpace
from .tables import CandidateTables, plan_of

# A base of families, what the stack of a machine decides of them, and what says which plans it runs.
_Start: TypeAlias = tuple[Family, Decisions, PlanRunner | None]
UNEVEN = "heads, sizes, lengths or layers do not divide"
TOO_LARGE = "does not fit the memory"
# Machines come round again with each family; one is some 200 kB.
_MACHINES = 1024
PART = "part"  # the column of the part that a row is of
# Blocks that are worked on at a time, a second or so of work: their tables are held until their pipelines have run.
_TOGETHER = 256
# Columns that all rows of a part share, besides its machine.
WORDS = ("sp", "zero", "recompute", "schedule", "cp_method")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMachine(MachineChoice):
    """A system, with the families that its software stack implies.

    Attributes:
        bases: families with the settings that the space does not vary: kernels, types, layouts.
        decides: what its stack does of words that the space leaves open.
        runner: says which plans its software runs; None for all.
    """

    bases: tuple[Family, ...]
    decides: Decisions = field(default_factory=Decisions)
    runner: PlanRunner | None = None


@dataclass(frozen=True, slots=True)
class PlanPart:
    """Plans of one family on one machine, all with the same degrees above one; `base` is what the family starts from.

    `machine` and `base` are places among those of the job.
    """

    family: Family
    above: Above
    machine: int
    base: int


@dataclass(frozen=True, kw_only=True)
class PlanJob:
    """A search over every legal plan of a space on every machine.

    Attributes:
        graph: the traced model.
        space: the space of plans.
        machines: the machines.
        goals: metrics to optimise, in order of priority.
        limits: constraints on metrics.
        text: the space as YAML.
        rows_at_once: most candidates of a block.
        terms: the ownership model of the machines; None to leave money out.
        convention: how masked attention counts in MFU.
    """

    graph: Graph
    space: PlanSpace
    machines: tuple[PlanMachine, ...]
    goals: tuple[Goal, ...]
    limits: tuple[MetricLimit, ...] = ()
    text: str = ""
    rows_at_once: int = 16384
    terms: Terms | None = None
    convention: Convention = Convention.FULL

    @cached_property
    def parts(self) -> tuple[PlanPart, ...]:
        """All parts, machines of one family behind one another; PlanError where there is no family at all."""
        found: dict[tuple[Family, Above], dict[int, int]] = {}
        for k, machine in enumerate(self.machines):
            for base in machine.bases:
                for pair in self._families[base, machine.decides, machine.runner]:
                    found.setdefault(pair, {}).setdefault(k, self.bases.index(base))
        parts = [PlanPart(*pair, k, base) for pair, machines in found.items() for k, base in machines.items()]
        if not parts:
            raise PlanError("the space is empty: what is fixed contradicts itself, so there is no family of plans")
        return tuple(parts)

    @cached_property
    def _families(self) -> Mapping[_Start, Sequence[tuple[Family, Above]]]:
        """By each base and what runs it, the families that start from it: the same on every machine."""
        experts, workload = has_experts(self.graph), self.graph.workload
        spaces = {at.runner: self.space.run_by(at.runner, workload) for at in self.machines}
        return {start: tuple(spaces[start[2]].families(start[0], experts, start[1])) for start in self.starts}

    @cached_property
    def starts(self) -> tuple[_Start, ...]:
        """Each base, with what the stack of a machine that has it decides, and what says which plans it runs."""
        return tuple(dict.fromkeys((base, at.decides, at.runner) for at in self.machines for base in at.bases))

    @cached_property
    def bases(self) -> tuple[Family, ...]:
        """What families start from, on any machine."""
        return tuple(dict.fromkeys(base for machine in self.machines for base in machine.bases))

    def lowered_for(self, family: Family) -> Family:
        """Return the family on whose graph plans are priced: their own, or one with stages that is there too."""
        return self._staged.get(family, family)

    @cached_property
    def _staged(self) -> Mapping[Family, Family]:
        return with_stages({part.family for part in self.parts})

    @cached_property
    def num_blocks(self) -> int:
        """Layers that pipeline stages share out."""
        return num_layers(self.graph)

    @property
    def digest(self) -> str:
        """What tells this search from any other."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        text = "\n".join(
            [
                print_graph(self.graph),
                repr(self.space),
                repr(self.machines),
                repr(self.goals),
                repr(self.limits),
                repr((self.rows_at_once, self.terms, self.convention)),
                *contents(self.machines),
                *self._files(),
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def _files(self) -> Iterator[str]:
        """Yield what files of tensor-parallel plans say."""
        for path in sorted({base.tp_plan for base in self.bases}):
            if Path(path).suffix and Path(path).is_file():
                yield read_settings(Path(path))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of each row."""
        asked = {goal.name for goal in self.goals} | {limit.name for limit in self.limits}
        offloads = any(base.offload for base in self.bases)
        return metrics_of(self.graph, asked, offloads, money=self.terms is not None)

    @property
    def columns(self) -> Sequence[str]:
        """Part, system, numbers, words and metrics of each row."""
        return (PART, "system", "base", *NUMBERS, *WORDS, *self.metrics)

    @cached_property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """Of each column whose numbers stand for words, the words from 0 on."""
        return {
            "system": tuple(map(str, self.machines)),
            "base": tuple(_label(base, self.bases) for base in self.bases),
            "recompute": RECOMPUTE,
            "schedule": tuple(SCHEDULES),
            "cp_method": ("none", *CP_METHODS),
        }

    def words_of(self, part: PlanPart) -> Mapping[str, float]:
        """Return what a part puts into all its rows: numbers, or places among `words`."""
        f, words = part.family, self.words
        return {
            "system": float(part.machine),
            "base": float(part.base),
            "sp": float(f.sp),
            "zero": float(f.zero),
            "recompute": float(words["recompute"].index(f.recompute)),
            "schedule": float(words["schedule"].index(f.schedule)),
            "cp_method": float(words["cp_method"].index(f.cp)),
        }

    def numbers(self, part: PlanPart) -> Counts:
        """Return all candidates of a part that the software of its machine runs."""
        runner = self.machines[part.machine].runner
        whole = self._candidates.all_of(part.family, part.above)
        return whole if runner is None else self._candidates.run_by(runner, part.family, part.above)

    @cached_property
    def _candidates(self) -> CandidateTables:
        return CandidateTables(self.space, self.num_blocks)

    @property
    def has_plans(self) -> bool:
        """Whether there is any candidate."""
        try:
            return any(self.blocks())
        except PlanError:
            return False

    @cached_property
    def _blocks(self) -> tuple[Block, ...]:
        found: list[Block] = []
        for k, part in enumerate(self.parts):
            found += cut(k, self.numbers(part).shape[1], self.rows_at_once, len(found))
        place = side_by_side([self.lowered_for(part.family) for part in self.parts])
        return tuple(sorted(found, key=lambda block: (place[block.part], block.number)))

    def blocks(self) -> Sequence[Block]:
        """Return the blocks of all parts, those side by side that a worker lowers alike: numbers say their order."""
        return self._blocks

    def open(self) -> PlanWorker:
        """Return a worker that has nothing lowered yet."""
        return PlanWorker(self)

    def plan_of(self, row: Mapping[str, Array], at: int) -> Plan:
        """Return the plan of a row of its columns."""
        part = self.parts[int(row[PART][at])]
        return plan_of(self.space, part.family, [int(row[name][at]) for name in NUMBERS])


def _label(base: Family, bases: Sequence[Family]) -> str:
    """What a base has that another has not, as `precision=fp8`; nothing where there is one."""
    names = [f.name for f in fields(Family) if any(getattr(base, f.name) != getattr(other, f.name) for other in bases)]
    return " ".join(f"{name}={_word(getattr(base, name))}" for name in names)


def _word(value: object) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


class PlanWorker:
    """Works on blocks of plans in one process."""

    def __init__(self, job: PlanJob, lowerings: Lowerings | None = None) -> None:
        """Keep the job, and what others have lowered of its graph; nothing is loaded yet."""
        self._job = job
        self._lowerings = Lowerings(job.graph) if lowerings is None else lowerings
        self._systems, self._files = RecentResults[int, System](_MACHINES), Systems()

    def work(self, block: Block) -> Found:
        """Prune and evaluate a block."""
        return alone(self._worked([block]))[0]

    def work_through(self, blocks: Iterable[Block]) -> Iterator[Found]:
        """Yield what is found in each block.

        Neighbours that differ in nothing but schedules and in which degrees are one are a table together, and small
        tables have their pipelines run together.
        """
        batch, num = list[Block](), 0
        for block in blocks:
            batch.append(block)
            num += len(block)
            if num >= self._job.rows_at_once or len(batch) == _TOGETHER:
                yield from self._together(batch)
                batch, num = [], 0
        yield from self._together(batch)

    def _together(self, blocks: Sequence[Block]) -> Iterator[Found]:
        alike: dict[Hashable, list[Block]] = {}
        for block in blocks:
            part = self._job.parts[block.part]
            family = self._job.lowered_for(part.family)
            # Money is that of a system of so many devices: a table of several numbers of them is cut by these.
            own = self._job.terms is not None and block.number
            key = replace(family, schedule=USUAL), family.pipeline.split_backward, part.machine, own
            alike.setdefault(key, []).append(block)
        found = {one.number: one for some in together(map(self._worked, alike.values())) for one in some}
        yield from (found[block.number] for block in blocks)

    def _worked(self, blocks: Sequence[Block], own: bool = False) -> Generator[Pipelines, Paced, list[Found]]:
        """What is found in each of some blocks whose plans may be one table; `own`: on the graph of their family."""
        parts = [self._job.parts[block.part] for block in blocks]
        families = [part.family if own else self._job.lowered_for(part.family) for part in parts]
        lowered = self._lower(families[0])
        if isinstance(lowered, str) and own:
            return [Found(block.number, {lowered: len(block)}, 0, self._none()) for block in blocks]
        if isinstance(lowered, str):
            # Of a model that cannot have stages, plans without any may still be priced.
            each = list[Found]()
            for block in blocks:
                each += yield from self._worked([block], own=True)
            return each
        pieces = [
            Piece(block, family, self._job.numbers(part)[:, block.first : block.last])
            for block, part, family in zip(blocks, parts, families, strict=True)
        ]
        if self._job.terms is None:
            return (yield from self._found(lowered, BlockPieces(pieces)))
        (whole,), found = pieces, list[Found]()
        for some in np.split(whole.numbers, np.flatnonzero(np.diff(whole.numbers[0])) + 1, axis=1):
            found += yield from self._found(lowered, BlockPieces([replace(whole, numbers=some)]))
        return [joined(found)]

    def _found(self, lowered: Lowered, pieces: BlockPieces) -> Generator[Pipelines, Paced, list[Found]]:
        """What is found in each piece of a table."""
        system = self._system(self._job.parts[pieces.pieces[0].block.part].machine)
        screened, which = screen(lowered, system, pieces.table(self._job.space)), pieces.which
        num_legal = pieces.counted(screened.legal, which)
        pruned = {
            UNEVEN: pieces.counted(~screened.legal, which),
            TOO_LARGE: pieces.counted(screened.legal & ~screened.fits, which),
        }
        fitting, rows = screened.fitting(), np.flatnonzero(screened.fits)
        if fitting is None:
            return pieces.found(pruned, num_legal, self._none(), which[rows])
        try:
            table = yield from evaluated(lowered, system, fitting.plans, self._job.convention, fitting)
        except SlipstickError as error:
            if len(pieces) == 1:
                pruned[f"cannot be priced: {error}"] = [len(rows)]
                return pieces.found(pruned, num_legal, self._none(), which[:0])
            found = list[Found]()
            for one in pieces.alone():
                found += yield from self._found(lowered, one)
            return found
        columns = self._columns(pieces, rows, table)
        which = which[rows]
        for limit in self._job.limits:
            holds = limit.holds(columns[limit.name], float(table.system.chip.hbm_bytes))
            pruned[f"breaks {limit}"] = pieces.counted(~holds, which)
            columns, which = {name: column[holds] for name, column in columns.items()}, which[holds]
        return pieces.found(pruned, num_legal, columns, which)

    def _columns(self, pieces: BlockPieces, rows: Index, table: Estimates) -> dict[str, Array]:
        """The columns of the plans that fit, which are these rows of the pieces."""
        metrics = dict(table.metrics)
        if self._job.terms is not None:
            metrics |= self._money(table)
        numbers, which, job = pieces.numbers[:, rows].astype(np.float64), pieces.which[rows], self._job
        same = [{PART: float(one.block.part), **job.words_of(job.parts[one.block.part])} for one in pieces.pieces]
        columns = {name: np.array([words[name] for words in same])[which] for name in same[0]}
        columns |= dict(zip(NUMBERS, numbers, strict=True))
        columns |= {name: _column(metrics.get(name, 0.0), len(table.plans)) for name in job.metrics}
        return {name: columns[name] for name in job.columns}

    def _money(self, table: Estimates) -> Mapping[str, Array]:
        """Money and energy of the steps of a table, all of one number of devices, as `worth` has them."""
        m, num = table.metrics, len(table.plans)
        tokens = m["tokens_per_s"] * m["step_time_s"]
        work = SystemWork(table.lowered.source.workload, m["step_time_s"], tokens, m["model_flops"], None)
        money = system_money(table.system, int(table.plans.num_gpus[0]), self._job.terms)
        spent = step_money(money, work, table.timing, table.plans).metrics
        unknown = ("kg_co2e_per_mtok",) if money.made.unknown else ()
        return {k: _column(v, num) * (np.nan if k in unknown else 1.0) for k, v in spent.items()}

    def _none(self) -> dict[str, Array]:
        return {name: np.zeros(0) for name in self._job.columns}

    def _system(self, machine: int) -> System:
        return self._systems.of(machine, lambda: self._job.machines[machine].load(self._files))

    def _lower(self, family: Family) -> Lowered | str:
        """A family lowered, or why it cannot be."""
        try:
            return self._lowerings.of(family)
        except SlipstickError as error:
            if isinstance(error, InternalError):
                raise
            return f"cannot be built: {error}"


def _column(values: Array | float, num: int) -> Array:
    return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), num))
