"""The numbers of a plan that may be chosen, and every combination of them that multiplies and divides as it must."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import PlanError
from ...ir.graph import Workload
from ...ir.plan import Family, PlanTable
from ...ir.plan.case import COUNTS, Above, PlanCase, divisors
from ...ir.plan.cases import legal
from ...ir.plan.word import SearchAxis
from ...ir.records import dataclass
from ...ir.schedules.registry import SCHEDULES, can_run

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Rows: TypeAlias = Mapping[str, Counts]
# Columns of a table of candidates. `ep` and `etp` are as people write them, `gbs` sequences a step.
_COUNTS = tuple(row for row in COUNTS if row.word.axis is not SearchAxis.ONE)
NUMBERS = tuple(row.name for row in _COUNTS)
# Columns of a table of plans that are columns of candidates.
_SHARED = tuple(row for row in _COUNTS if row.field in PlanTable.__annotations__)
_EVEN: Mapping[str, float] = MappingProxyType({})
# What a replica of inference may run at once by default: powers of two up to this.
_MOST_AT_ONCE = 1024
# The largest degree or batch: what multiplies two of them stays within 64 bits.
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Numbers of a plan to try; an empty axis means every legal value.

    Attributes:
        num_gpus: devices, all of them used.
        global_batch: sequences a step of training; empty for one micro-batch a replica. Inference has none: it runs
            one batch of `micro_batch` a replica.
        tp: tensor-parallel degrees.
        pp: pipeline stages.
        cp: context-parallel degrees.
        ep: expert-parallel degrees.
        dp: replicas.
        vpp: chunks a stage.
        micro_batch: sequences a replica runs at once.
        cp_ulysses: of cp, ranks that exchange sequence for heads inside of a ring or gather.
        dp_shard: replicas that share states, of families that have the symbol.

    Raises:
        PlanError: a number below one or beyond what a column holds, or no devices.
    """

    num_gpus: tuple[int, ...]
    global_batch: tuple[int, ...] = ()
    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    cp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    dp: tuple[int, ...] = ()
    vpp: tuple[int, ...] = ()
    micro_batch: tuple[int, ...] = ()
    cp_ulysses: tuple[int, ...] = (1,)
    dp_shard: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        """Refuse what no plan can have."""
        if not self.num_gpus:
            raise PlanError("a search of plans needs a number of GPUs: --gpus 1024")
        for name in self.__slots__:
            wrong = [number for number in getattr(self, name) if number < 1]
            if wrong:
                raise PlanError(f"{name}={wrong[0]}: degrees and batches are 1 or more")
            if beyond := [number for number in getattr(self, name) if number > _MOST]:
                raise PlanError(f"{name}={beyond[0]}: degrees and batches are {_MOST:,} or less")


def candidates(
    degrees: Degrees, family: Family, above: Above, num_blocks: int, load: Mapping[str, float] = _EVEN
) -> Counts:
    """Return every combination that a family can have, as (column of NUMBERS, candidate), in a fixed order.

    They are those that `make_plan` takes; what the model asks of them (heads, hidden sizes, lengths) is not looked at.
    `num_blocks` bounds the stages, `load` has numbers of experts that all plans share. A number is tried beside each
    row of those before it, and rows that break a rule go.
    """

    def case(rows: Rows) -> PlanCase:
        return PlanCase.columns(family, {**rows, **load})

    rows: Rows = {"num_gpus": np.array(degrees.num_gpus, dtype=np.int64)}
    sides = {"tp": above.tp, "pp": above.pp, "cp": above.cp, "ep": above.ep, "cp_ulysses": family.usp}
    for name in ("tp", "pp", "cp", "ep", "cp_ulysses", "dp_shard"):
        asked, side = tuple(dict.fromkeys(getattr(degrees, name))), sides.get(name)
        if name == "dp_shard" and not family.hsdp:
            asked = (1,)
        rows = _tried(rows, name, rows["num_gpus"], partial(_given_or_divisors, asked))
        fits = (rows[name] <= max(num_blocks, 1)) | (name != "pp")
        rows = _kept(rows, legal(case(rows), "ranks", "capacity_factor", name) & fits & _on(rows[name], side))
        if name == "cp" and degrees.dp:
            rows = _kept(rows, np.isin(case(rows).replicas, degrees.dp))
    return _batches(degrees, family, rows, num_blocks)


def _on(column: Counts, side: bool | None) -> NDArray[np.bool_]:
    """Return which numbers are above one, or are one, as it was asked."""
    return np.ones(len(column), dtype=np.bool_) if side is None else (column > 1) == side


def _given_or_divisors(given: tuple[int, ...], num: int) -> Sequence[int]:
    return given or divisors(num)


def _tried(rows: Rows, name: str, known: Counts, values: Callable[[int], Sequence[int]]) -> Rows:
    """Return each row once for each value that another number may have, in order, where `known` is what says which."""
    found = {num: values(num) for num in np.unique(known).tolist()}
    each = [found[num] for num in known.tolist()]
    at = np.repeat(np.arange(len(each)), [len(one) for one in each])
    return {**_kept(rows, at), name: np.fromiter(chain.from_iterable(each), dtype=np.int64, count=len(at))}


def _kept(rows: Rows, which: NDArray[np.bool_] | NDArray[np.intp]) -> Rows:
    return {name: column[which] for name, column in rows.items()}


def _batches(degrees: Degrees, family: Family, rows: Rows, num_blocks: int) -> Counts:
    """Return all rows with every way to cut their batch into micro-batches, and their layers into chunks."""
    train = family.workload is Workload.TRAIN
    if train and degrees.global_batch:
        rows = _tried(rows, "global_batch", rows["num_gpus"], lambda _: degrees.global_batch)
        rows = _tried(rows, "micro_batch", rows["global_batch"], partial(_given_or_divisors, degrees.micro_batch))
    else:
        usual = [1] if train else [2**k for k in range(_MOST_AT_ONCE.bit_length())]
        rows = _tried(rows, "micro_batch", rows["num_gpus"], lambda _: degrees.micro_batch or usual)
    rows = _kept(rows, legal(PlanCase.columns(family, rows), "batch"))
    case = PlanCase.columns(family, rows)
    # Micro-batches of a replica and stages say together how many chunks there may be.
    stages, num = np.asarray(case.pp), np.asarray(case.batch // case.step)
    most = int(stages.max(initial=1)) + 1
    rows = _tried(
        rows,
        "vpp",
        num * most + stages,
        lambda key: _chunks(degrees.vpp, family.schedule, key % most, key // most, num_blocks),
    )
    numbers = PlanCase.columns(family, rows).completed
    return np.stack(np.broadcast_arrays(*(np.asarray(numbers[row.field]) for row in _COUNTS))).astype(np.int64)


def plan_table(family: Family, numbers: Counts, seq_len: int, kv_len: int, load: Mapping[str, float]) -> PlanTable:
    """Return candidates as a table of plans, with numbers of experts that all of them share."""
    given = dict(zip(NUMBERS, numbers.astype(np.float64), strict=True))
    same = {"seq_len": seq_len, "kv_len": kv_len, **load}
    columns = {name: np.full(numbers.shape[1], value, dtype=np.float64) for name, value in same.items()}
    columns |= {row.field: given[row.name] for row in _SHARED}
    return PlanTable(family, num_micro_batches=given["gbs"] / (given["mbs"] * given["dp"]), **columns)


def counted(numbers: Sequence[int]) -> Mapping[str, int]:
    """Return the numbers of a candidate by what a plan calls them."""
    return {row.field: number for row, number in zip(_COUNTS, numbers, strict=True)}


@lru_cache(maxsize=65536)
def _chunks(wanted: tuple[int, ...], schedule: str, pp: int, num_micro: int, num_blocks: int) -> tuple[int, ...]:
    """Chunks a stage that a schedule can run, each with a layer."""
    most = max(num_blocks // pp, 1)
    named = dict.fromkeys(SCHEDULES[schedule].chunks_of(n) for n in wanted or range(1, most + 1))
    return tuple(n for n in named if n <= most and can_run(schedule, num_micro, pp, n))
