"""Many plans of one family as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import InternalError, PlanError
from ..placement import DEGREES
from ..records import dataclass
from ..schedules.registry import SCHEDULES, USUAL
from .structure import RULES, check_structure
from .words import CAPACITY, IMBALANCE, Family

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..schedules.kind import ScheduleKind
    from .plan import Plan


def _most(column: NDArray[np.float64]) -> float:
    """Return the largest number of a column, 1 of an empty one."""
    return float(column.max(initial=1.0))


@dataclass(frozen=True)
class PlanTable:
    """Many plans of one family as equally long columns; a single plan is a table of one row.

    `scheduled` is the place of each plan's schedule among `SCHEDULES`, where a table holds families that differ in that
    alone: they share a graph, and all that does not depend on the order of tasks is worked out once.
    """

    family: Family
    num_gpus: NDArray[np.float64]
    tp: NDArray[np.float64]
    dp: NDArray[np.float64]
    micro_batch: NDArray[np.float64]
    num_micro_batches: NDArray[np.float64]
    seq_len: NDArray[np.float64]
    kv_len: NDArray[np.float64]
    cp: NDArray[np.float64] | None = None
    ep: NDArray[np.float64] | None = None
    pp: NDArray[np.float64] | None = None
    vpp: NDArray[np.float64] | None = None
    cp_ulysses: NDArray[np.float64] | None = None
    dp_shard: NDArray[np.float64] | None = None
    capacity_factor: NDArray[np.float64] | None = None
    expert_imbalance: NDArray[np.float64] | None = None
    scheduled: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Refuse degrees that the graph of the family is not cut over."""
        family = self.family
        # Ranks of data parallelism that share split experts are a column of `ep`, and no expert is sharded.
        degrees = [rule.degree for rule in RULES if rule.degree != "ep" or not family.etp_dp]
        given = {degree: getattr(self, degree) for degree in degrees}
        check_structure(family, {name: _most(column) for name, column in given.items() if column is not None})
        if (self.capacity_factor is not None) != family.capacity:
            raise PlanError(f"a family with capacity={family.capacity} and a capacity_factor: give both, or neither")

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanTable:
        """Build the columns; PlanError when the plans are of several families.

        Plans with tensor parallelism and without are priced on one graph, which is cut over it.
        """
        import numpy as np

        families = {p.family for p in plans}
        if any(family.tp for family in families):
            families = {replace(family, tp=True) for family in families}
        if len(families) != 1:
            raise PlanError(f"a table holds plans of one family, these are of {len(families)}")

        (family,) = families
        given = {"capacity_factor": family.capacity, "expert_imbalance": family.imbalance}
        has = {"family": False, "scheduled": False, **given}
        read = {name: name for name in cls.__annotations__ if has.get(name, True)}
        read["ep"] = "inner_ep" if family.etp_dp else "ep"
        columns = {name: [getattr(plan, part) for plan in plans] for name, part in read.items()}
        return cls(family, **{name: np.array(column, dtype=np.float64) for name, column in columns.items()})

    @classmethod
    def joined(cls, tables: Sequence[PlanTable]) -> PlanTable:
        """Put tables under one another whose families differ in nothing but the schedule; InternalError otherwise.

        Either all of these split the backward phase, or none does.
        """
        import numpy as np

        first, *others = tables
        if not others:
            return first
        alike = {(replace(t.family, schedule=USUAL), t.family.pipeline.split_backward) for t in tables}
        if len(alike) > 1:
            raise InternalError("tables of plans are joined whose families differ in more than their schedule")
        names = [
            f.name for f in fields(cls) if f.name not in ("family", "scheduled") and getattr(first, f.name) is not None
        ]
        columns = {name: np.concatenate([getattr(t, name) for t in tables]) for name in names}
        place = {name: float(k) for k, name in enumerate(SCHEDULES)}
        own = [np.full(len(t), place[t.family.schedule]) for t in tables]
        same = len({t.family.schedule for t in tables}) == 1
        return cls(first.family, **columns, scheduled=None if same else np.concatenate(own))

    def schedules(self) -> Iterator[tuple[ScheduleKind, NDArray[np.intp]]]:
        """Yield each schedule that some plan has, with the rows of these plans."""
        import numpy as np

        if self.scheduled is None:
            yield self.family.pipeline, np.arange(len(self))
            return
        kinds = list(SCHEDULES.values())
        for place in np.unique(self.scheduled).tolist():
            yield kinds[int(place)], np.flatnonzero(self.scheduled == place)

    def of_schedule(self, fact: Callable[[ScheduleKind], float]) -> float | NDArray[np.float64]:
        """Return a fact of each plan's schedule; one number where all have one schedule."""
        import numpy as np

        if self.scheduled is None:
            return fact(self.family.pipeline)
        facts = np.array([float(fact(kind)) for kind in SCHEDULES.values()])
        return np.asarray(facts[self.scheduled.astype(np.intp)])

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.tp)

    def part(self, plans: slice | NDArray[np.intp]) -> PlanTable:
        """Return some of the plans."""
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "family"}
        return replace(self, **{name: c[plans] for name, c in columns.items() if c is not None})

    def repeated(self, times: int) -> PlanTable:
        """Return the plans so many times, one table behind the other."""
        import numpy as np

        return self.part(np.tile(np.arange(len(self)), times))

    @cached_property
    def columns(self) -> Mapping[str, NDArray[np.float64]]:
        """What each symbol of a lowered graph is, plan by plan."""
        ones = self.tp * 0.0 + 1.0
        given = (self.cp, self.cp_ulysses, self.ep, self.pp, self.dp_shard)
        cp, up, ep, pp, fsdp = (ones if c is None else c for c in given)
        if not self.family.etp:
            ep = (ep > 1) * (ep / self.tp) + (ep <= 1)
        degrees = dict(zip(DEGREES, (self.tp, up, cp / up, ep, fsdp, self.dp / (ep * fsdp), pp), strict=True))
        load = {CAPACITY: self.capacity_factor, IMBALANCE: self.expert_imbalance}
        loads = {name: column for name, column in load.items() if column is not None}
        return {**degrees, "mbs": self.micro_batch, "seq": self.seq_len, "kv": self.kv_len, **loads}

    @property
    def mesh(self) -> Mapping[str, float]:
        """The largest degree of each mesh axis."""
        return {axis: _most(self.columns[axis]) for axis in DEGREES}

    @cached_property
    def stages(self) -> NDArray[np.float64]:
        """Pipeline stages of each plan and chunks of each stage, as two rows."""
        import numpy as np

        return np.stack([np.ones(len(self)) if c is None else c for c in (self.pp, self.vpp)])

    @property
    def global_batch(self) -> NDArray[np.float64]:
        """Sequences a step."""
        return self.num_micro_batches * self.micro_batch * self.dp
