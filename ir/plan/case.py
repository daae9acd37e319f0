"""The numbers of one plan or of many, in the words of people, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from math import isqrt
from operator import attrgetter
from typing import TYPE_CHECKING

from ..graph import Workload
from ..records import dataclass
from .layout.ranks import misfit
from .word import changed
from .words import WORDS, Family, PlanNumbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def divisors(n: int) -> list[int]:
    """Return the divisors of a positive number, in order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def nearest(value: int, allowed: Sequence[int], most: int = 4) -> str:
    """Return the allowed values nearest to one, in order.

    >>> nearest(3, [1, 2, 4, 8, 16])
    '1, 2, 4, 8'
    """
    return ", ".join(map(str, sorted(sorted(allowed, key=lambda a: (abs(a - value), a))[:most])))


@dataclass(frozen=True, slots=True)
class Above:
    """Which degrees are above one: what a family is made for, and so the same for a whole table of plans."""

    tp: bool
    pp: bool
    cp: bool
    ep: bool

    @property
    def idle(self) -> Mapping[str, object]:
        """Defaults of words that say nothing beside these degrees."""
        told = ((row, row.word.needs) for row in WORDS.values() if row.word.needs)
        return {row.field: row.default for row, degree in told if not getattr(self, degree)}

    @classmethod
    def all(cls) -> Iterator[Above]:
        """Yield all sixteen."""
        yield from (cls(*(bool(bits >> k & 1) for k in range(4))) for bits in range(16))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCase(PlanNumbers):
    """Numbers that people ask of plans of a family, and what follows from them.

    In the place of each number there may be a column of many plans (`columns`): rules therefore join what they read of
    numbers by & and |, and what they read of words alone by `and` and `or`.
    """

    family: Family
    num_gpus: int = 1
    kv_len: int = 0
    dp_shard: int = 1

    @classmethod
    def of(cls, said: PlanNumbers, family: Family) -> PlanCase:
        """Return the case of what people say."""
        numbers = dict(zip(PARTS, _SAID(said), strict=True))
        numbers["num_gpus"] = said.num_devices
        if said.kv_len is None:
            numbers["kv_len"] = said.seq_len if family.workload is Workload.DECODE else 0
        if said.dp_shard is None:
            numbers["dp_shard"] = 1
        return cls(family=family, **numbers)

    @classmethod
    def columns(cls, family: Family, columns: Mapping[str, NDArray[np.int64] | float]) -> PlanCase:
        """Return the case of many plans of one family; what they have in common is a number."""
        return changed(cls(family=family), columns)

    @property
    def completed(self) -> Mapping[str, int | float | None]:
        """All numbers, with what follows in the place of what was left open."""
        numbers = dict(zip(PARTS, _SAID(self), strict=True))
        return {**numbers, "etp": self.inside, "dp": self.replicas, "global_batch": self.batch}

    @property
    def train(self) -> bool:
        """Whether a step of training is planned."""
        return self.family.workload is Workload.TRAIN

    @property
    def ranks(self) -> int:
        """GPUs of a replica."""
        return self.tp * self.pp * self.cp

    @property
    def replicas(self) -> int:
        """The data-parallel degree that tp, pp and cp leave."""
        return self.num_gpus // self.ranks

    @property
    def inside(self) -> int:
        """The tensor-parallel degree inside experts."""
        if self.family.etp_dp:
            return self.tp if self.etp is None else self.etp
        return self.tp if self.family.etp else 1

    @property
    def spread(self) -> int:
        """Ranks of tp over which experts are sharded before those of dp: all where experts are whole."""
        return 1 if self.family.etp else 1 + (self.tp - 1) * ((self.ep > 1) | self.family.ep)

    @property
    def outside(self) -> int:
        """Ranks of data parallelism outside of `ep`."""
        return self.replicas // inner_ep(self.ep, self.tp, self.inside, self.family)

    @property
    def step(self) -> int:
        """Sequences that all replicas run at once."""
        return self.micro_batch * self.replicas

    @property
    def batch(self) -> int:
        """Sequences a step."""
        return self.step if self.global_batch is None else self.global_batch

    @property
    def near_batch(self) -> str:
        """The batches of whole steps next to the one that was asked for."""
        below = self.batch // self.step * self.step
        return " or ".join(f"--gbs {batch}" for batch in (below, below + self.step) if batch)

    @property
    def asked(self) -> int:
        """GPUs that all degrees need, where the replicas are said too."""
        return self.num_gpus if self.dp is None else self.ranks * self.dp

    @property
    def counts(self) -> Sequence[tuple[str, int]]:
        """All counts that are said, by the names of their flags."""
        return [pair for pair in zip(_FLAGS, _COUNTED(self), strict=True) if pair[1] is not None]

    @property
    def groups(self) -> Mapping[str, int]:
        """Ranks of the groups of each axis of the order: of ep those inside dp, of dp those outside of ep."""
        ep = inner_ep(self.ep, self.tp, self.inside, self.family)
        return {"tp": self.tp, "cp": self.cp, "ep": ep, "dp": self.outside, "pp": self.pp}

    @property
    def misfit(self) -> str:
        """What is wrong with the shapes of a placement, in words."""
        return misfit(self.family.placement, self.groups)

    @property
    def legal_etp(self) -> str:
        """Degrees inside experts, in words; those over replicas too where experts are split so."""
        wide = [self.tp * d for d in divisors(self.replicas)] if self.family.etp_dp and not self.train else [self.tp]
        return ", ".join(map(str, sorted({1, *wide})))

    @property
    def or_whole(self) -> str:
        """How ranks of tp share whole experts, where an ep that does not lie inside dp could be meant so."""
        if self.tp == 1 or self.ep % self.tp or self.tp * self.replicas % self.ep:
            return ""
        return f"; over ranks of tp experts lie whole: add --etp 1{' --sp' if self.train else ''}"


# Numbers in the order of their record; of these the counts of devices, sequences and tokens, as words.
PARTS = tuple(part.name for part in fields(PlanNumbers))
_SAID = attrgetter(*PARTS)
COUNTS = tuple(row for part in PARTS for row in WORDS.values() if row.field == part and row.kind is int)
_COUNTED = attrgetter(*(row.field for row in COUNTS))
_FLAGS = tuple(row.name.replace("_", "-") for row in COUNTS)


def inner_ep(ep: int, tp: int, etp: int, family: Family) -> int:
    """Return the part of `ep` (or of `etp`, where that is above tp) inside dp: experts lie over tp first."""
    if family.etp_dp:
        return etp // tp
    return ep if family.etp else ep // (1 + (tp - 1) * (ep > 1))
