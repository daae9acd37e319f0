"""The numbers of a plan that may be chosen, and every combination of them that multiplies and divides as it must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import PlanError
from ...ir.graph import Workload
from ...ir.plan import Family, PlanTable
from ...ir.plan.degrees import divisors
from ...ir.plan.legality import Above
from ...ir.schedules.registry import SCHEDULES, can_run

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
# Columns of a table of candidates. `ep` and `etp` are as people write them, `gbs` sequences a step.
NUMBERS = ("gpus", "tp", "pp", "cp", "ep", "etp", "dp", "vpp", "mbs", "gbs", "cp_ulysses", "dp_shard")
# What a replica of inference may run at once where nothing is said: powers of two up to this.
_MOST_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The numbers that may be chosen; an empty axis stands for every legal one.

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
        PlanError: a number below one, or no devices.
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


def candidates(degrees: Degrees, family: Family, above: Above, num_blocks: int) -> Counts:
    """Return every combination that a family can have, as (column of NUMBERS, candidate), in a fixed order.

    Degrees multiply to the number of devices, micro-batches to the batch, and the schedule can run them; what the model
    asks of them (heads, hidden sizes, lengths) is not looked at. `num_blocks` bounds the stages.
    """
    found = [
        _batches(degrees, family, row, num_blocks)
        for row in _meshes(degrees, family, above, num_blocks)
    ]  # fmt: skip
    return np.concatenate([np.zeros((len(NUMBERS), 0), dtype=np.int64), *found], axis=1)


def plan_table(family: Family, numbers: Counts, seq_len: int, kv_len: int, load: Sequence[float | None]) -> PlanTable:
    """Return candidates as a table of plans; `load` is the capacity factor and the imbalance of experts."""
    given = dict(zip(NUMBERS, numbers.astype(np.float64), strict=True))
    ones = np.ones(numbers.shape[1])
    factor, imbalance = load
    return PlanTable(
        family, given["gpus"], given["tp"], given["dp"], given["mbs"],
        given["gbs"] / (given["mbs"] * given["dp"]), ones * seq_len, ones * kv_len,
        given["cp"], given["ep"], given["pp"], given["vpp"], given["cp_ulysses"], given["dp_shard"],
        ones * factor if family.capacity and factor is not None else None,
        ones * imbalance if family.imbalance and imbalance is not None else None,
    )  # fmt: skip


_Mesh = tuple[int, int, int, int, int, int, int, int, int]


def _meshes(degrees: Degrees, family: Family, above: Above, num_blocks: int) -> Iterator[_Mesh]:
    """Every way to deal devices out: gpus, tp, pp, cp, ep, etp, dp, up, fsdp."""
    for gpus in degrees.num_gpus:
        for tp in _side(degrees.tp, gpus, above.tp):
            for pp in _side(degrees.pp, gpus // tp, above.pp):
                if pp > max(num_blocks, 1):
                    continue
                for cp in _side(degrees.cp, gpus // (tp * pp), above.cp):
                    dp = gpus // (tp * pp * cp)
                    if degrees.dp and dp not in degrees.dp:
                        continue
                    for ep, etp, inside in _experts(degrees, family, above, tp, dp):
                        for up in _ulysses(degrees, family, cp):
                            for fsdp in _shards(degrees, family, dp // inside):
                                yield gpus, tp, pp, cp, ep, etp, dp, up, fsdp


def _side(axis: Sequence[int], num: int, above: bool) -> list[int]:
    """Numbers of an axis that divide, and are above one or are one."""
    legal = divisors(num) if not axis else [n for n in dict.fromkeys(axis) if num % n == 0]
    return [n for n in legal if (n > 1) == above]


def _experts(degrees: Degrees, family: Family, above: Above, tp: int, dp: int) -> Iterator[tuple[int, int, int]]:
    """Degrees over experts and inside of them, and the part of the former inside dp; see `check_ep`."""
    etp = tp if family.etp else 1
    spread = 1 if family.etp or tp == 1 else tp
    for inside in divisors(dp):
        ep = inside * spread if above.ep else inside
        if (ep > 1) == above.ep and (not degrees.ep or ep in degrees.ep):
            yield ep, etp, inside


def _ulysses(degrees: Degrees, family: Family, cp: int) -> list[int]:
    """Inner degrees: above one in families that have them, and one in the others."""
    if not family.usp:
        return [1] if 1 in degrees.cp_ulysses or not degrees.cp_ulysses else []
    return [up for up in _side(degrees.cp_ulysses, cp, True) if up > 1]


def _shards(degrees: Degrees, family: Family, outside: int) -> list[int]:
    """Shard groups: of hybrid families alone."""
    if not family.hsdp:
        return [1]
    return [n for n in (degrees.dp_shard or divisors(outside)) if outside % n == 0]


def _batches(degrees: Degrees, family: Family, mesh: _Mesh, num_blocks: int) -> Counts:
    """Every way to cut the batch of one mesh into micro-batches, and its layers into chunks."""
    gpus, tp, pp, cp, ep, etp, dp, up, fsdp = mesh
    rows: list[tuple[int, ...]] = []
    for mbs, num_micro in _micro_batches(degrees, family, dp):
        chunks = _chunks(degrees.vpp, family.schedule, pp, num_micro, num_blocks)
        rows += [(gpus, tp, pp, cp, ep, etp, dp, vpp, mbs, num_micro * mbs * dp, up, fsdp) for vpp in chunks]
    return np.array(rows, dtype=np.int64).reshape(-1, len(NUMBERS)).T


def _micro_batches(degrees: Degrees, family: Family, dp: int) -> Iterator[tuple[int, int]]:
    """Sequences of a micro-batch, and how many of these a replica runs in a step."""
    if family.workload is not Workload.TRAIN or not degrees.global_batch:
        usual = [2**k for k in range(_MOST_AT_ONCE.bit_length())] if family.workload is not Workload.TRAIN else [1]
        yield from ((mbs, 1) for mbs in degrees.micro_batch or usual)
        return
    for batch in degrees.global_batch:
        if batch % dp == 0:
            own = batch // dp
            legal = [n for n in degrees.micro_batch if own % n == 0] if degrees.micro_batch else divisors(own)
            yield from ((mbs, own // mbs) for mbs in legal)


@lru_cache(maxsize=65536)
def _chunks(wanted: tuple[int, ...], schedule: str, pp: int, num_micro: int, num_blocks: int) -> tuple[int, ...]:
    """Chunks a stage that a schedule can run, each with a layer."""
    most = max(num_blocks // pp, 1)
    named = dict.fromkeys(SCHEDULES[schedule].chunks_of(n) for n in wanted or range(1, most + 1))
    return tuple(n for n in named if n <= most and can_run(schedule, num_micro, pp, n))
