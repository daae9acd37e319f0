"""The structure of a plan that may be chosen: every family of plans that makes sense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...ir.graph import Workload
from ...ir.plan import CP_METHODS, Family, Plan, PlanTable
from ...ir.plan.case import Above
from ...ir.plan.cases import contradiction
from ...ir.plan.structure import divides_layers
from ...ir.plan.training.decisions import Decisions
from ...ir.plan.word import Value, changed
from ...ir.records import dataclass
from ...ir.schedules.registry import SCHEDULES, USUAL
from .degrees import Degrees

_NOTHING = Decisions()


class PlanRunner(Protocol):
    """What says which plans of a space a software stack runs; equal ones say the same."""

    def alike(self, family: Family, plans: PlanTable) -> NDArray[np.int64]:
        """Return the class of each plan of a family: all plans of one are run, or none."""
        ...

    def takes(self, word: str, value: Value, workload: Workload) -> bool:
        """Whether the stack runs any plan with a value of a word."""
        ...

    def runs(self, plan: Plan) -> bool:
        """Whether the stack runs what a search chose of a plan."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Settings of a plan, as tuples of the values to try; settings without effect at a degree of 1 are not varied.

    Attributes:
        sp: sequence parallelism.
        zero: ZeRO stages.
        recompute: what is recomputed.
        schedule: order of micro-batches on stages.
        cp: how attention crosses context-parallel ranks.
        etp: whether experts are split over tp, or whole.
    """

    sp: tuple[bool, ...] = (True, False)
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[str, ...] = ("none", "selective", "full")
    schedule: tuple[str, ...] = tuple(SCHEDULES)
    cp: tuple[str, ...] = CP_METHODS
    etp: tuple[bool, ...] = (True, False)

    @classmethod
    def usual(cls, workload: Workload) -> Choices:
        """Return all that a workload has; a step of inference has no gradients, and one that decodes no sequence."""
        if workload is Workload.TRAIN:
            return cls()
        sp = (False,) if workload is Workload.DECODE else (True, False)
        return cls(sp=sp, zero=(0,), recompute=("none",), schedule=(USUAL,))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpace:
    """A space of plans.

    Attributes:
        degrees: numbers to try.
        choices: settings to try.
        seq_len: tokens of a sequence.
        kv_len: tokens already cached, of decode.
        capacity_factor: rows that an expert has room for, over the mean; None for as many as come.
        expert_imbalance: rows of the busiest expert-parallel rank over the mean, where experts are sharded.
        left_open: words that the stack decides, for each family by its degrees and choices; ordered, for the digest.
    """

    degrees: Degrees
    choices: Choices
    seq_len: int
    kv_len: int = 0
    capacity_factor: float | None = None
    expert_imbalance: float = 1.0
    left_open: tuple[str, ...] = ()

    def load(self, family: Family) -> Mapping[str, float]:
        """Return the numbers of experts that all plans of a family share."""
        load = {
            "capacity_factor": self.capacity_factor if family.capacity else None,
            "expert_imbalance": self.expert_imbalance if family.imbalance else None,
        }
        return {name: number for name, number in load.items() if number is not None}

    def run_by(self, runner: PlanRunner | None, workload: Workload) -> PlanSpace:
        """Return the space without values of words of which a stack runs no plan; of a word without any, all others."""
        if runner is None:
            return self
        usual, kept = Choices.usual(workload), dict[str, object]()
        for name in ("sp", "zero", "recompute", "schedule", "cp"):
            word = "cp_method" if name == "cp" else name
            tried, others = (
                tuple(value for value in getattr(choices, name) if runner.takes(word, value, workload))
                for choices in (self.choices, usual)
            )
            kept[name] = tried or others or getattr(self.choices, name)
        return replace(self, choices=changed(self.choices, kept))

    def families(
        self, base: Family, has_experts: bool, decides: Decisions = _NOTHING
    ) -> Iterator[tuple[Family, Above]]:
        """Yield each family once, with the degrees that are above one in it; `base` has all that is not chosen.

        `decides` is what the stack does of words that are left open. A combination that contradicts itself, as an
        offload of parameters without ZeRO 3, is none.
        """
        seen: set[tuple[Family, Above]] = set()
        for above in Above.all():
            if above.ep and not has_experts:
                continue
            for family in self._of(base, above, has_experts, decides):
                if (family, above) not in seen and not contradiction(family, above):
                    seen.add((family, above))
                    yield family, above

    def why_none(self, base: Family, has_experts: bool, decides: Decisions = _NOTHING) -> str:
        """Return the first contradiction of all families that start from `base`; nothing where one makes sense."""
        first = ""
        for above in Above.all():
            for family in self._of(base, above, has_experts, decides) if has_experts or not above.ep else ():
                told = contradiction(family, above)
                if not told:
                    return ""
                first = first or told
        return first

    def _of(self, base: Family, above: Above, has_experts: bool, decides: Decisions) -> Iterator[Family]:
        """Families of some degrees above one, some of them twice."""
        c, idle = self.choices, above.idle
        etps = c.etp if has_experts else (True,)
        usps = {up > 1 for up in self.degrees.cp_ulysses or (1, 2)} if above.cp else {False}
        # Families that differ in their schedule share a graph: they are neighbours.
        for sp, cp, etp, usp, recompute, zero, schedule in product(
            c.sp, c.cp, etps, sorted(usps), c.recompute, c.zero, c.schedule
        ):
            if SCHEDULES[schedule].split_backward and not above.pp:
                continue
            follows = decides.words(recompute, zero, above.pp)
            yield changed(base, {
                "tp": divides_layers(1 + above.tp, 1 + above.cp, base.workload),
                "sp": sp and above.tp, "zero": zero, "recompute": recompute, "schedule": schedule,
                "cp": cp if above.cp else "none", "etp": etp or not above.tp, "usp": usp, "ep": above.ep,
                "pp": above.pp, "scatter_p2p": base.scatter_p2p and above.pp,
                "imbalance": self.expert_imbalance != 1.0 and above.ep,
                **{name: follows[name] for name in self.left_open}, **idle,
            })  # fmt: skip
