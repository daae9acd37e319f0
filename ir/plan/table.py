"""Many plans of one family as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import PlanError
from ..records import dataclass
from .structure import RULES, check_structure
from .words import AXES, CAPACITY, IMBALANCE, Family

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .plan import Plan


def _most(column: NDArray[np.float64]) -> float:
    """Return the largest number of a column, 1 of an empty one."""
    return float(column.max(initial=1.0))


@dataclass(frozen=True)
class PlanTable:
    """Many plans of one family as equally long columns; a single plan is a table of one row."""

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
        """Build the columns; PlanError when the plans are of several families."""
        import numpy as np

        families = {p.family for p in plans}
        if len(families) != 1:
            raise PlanError(f"a table holds plans of one family, these are of {len(families)}")

        (family,) = families
        has = {"family": False, "capacity_factor": family.capacity, "expert_imbalance": family.imbalance}
        read = {name: name for name in cls.__annotations__ if has.get(name, True)}
        read["ep"] = "inner_ep" if family.etp_dp else "ep"
        columns = {name: [getattr(plan, part) for plan in plans] for name, part in read.items()}
        return cls(family, **{name: np.array(column, dtype=np.float64) for name, column in columns.items()})

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.tp)

    def part(self, plans: slice | NDArray[np.intp]) -> PlanTable:
        """Return some of the plans."""
        from dataclasses import fields, replace

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
        degrees = {
            "tp": self.tp,
            "up": up,
            "cp": cp / up,
            "ep": ep,
            "fsdp": fsdp,
            "dp": self.dp / (ep * fsdp),
            "pp": pp,
        }
        load = {CAPACITY: self.capacity_factor, IMBALANCE: self.expert_imbalance}
        loads = {name: column for name, column in load.items() if column is not None}
        return {**degrees, "mbs": self.micro_batch, "seq": self.seq_len, "kv": self.kv_len, **loads}

    @property
    def mesh(self) -> Mapping[str, float]:
        """The largest degree of each mesh axis."""
        return {axis: _most(self.columns[axis]) for axis in AXES}

    @cached_property
    def stages(self) -> NDArray[np.float64]:
        """Pipeline stages of each plan and chunks of each stage, as two rows."""
        import numpy as np

        return np.stack([np.ones(len(self)) if c is None else c for c in (self.pp, self.vpp)])

    @property
    def global_batch(self) -> NDArray[np.float64]:
        """Sequences a step."""
        return self.num_micro_batches * self.micro_batch * self.dp
