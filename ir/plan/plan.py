"""A plan (parallel degrees, batches, policy), checked and completed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from types import MappingProxyType

from ..errors import PlanError
from ..placement import DEGREES
from ..records import dataclass
from .case import PARTS, PlanCase, inner_ep
from .cases import LARGEST, check
from .structure import (
    Defaults,
    check_structure,
    divides_layers,
    family_of,
    idle_axes,
    policy_of,
    structure_of,
)
from .training.decisions import Software
from .word import PlanWord, changed
from .words import WORDS, Family, PlanNumbers, PlanWords


# Without slots, so that its family may be kept once it was asked for.
@dataclass(frozen=True, kw_only=True)
class Plan(PlanWords):
    """One plan, checked: the degrees multiply to the number of GPUs and the batch divides. Nothing is left open.

    `micro_batch` is in sequences a replica, `global_batch` in sequences a step, `kv_len` the tokens already cached
    in decode. For inference the global batch is `micro_batch * dp`. Of the `dp` replicas `dp_shard` neighbours share
    states in shards when the family is hybrid (`hsdp`). `etp` is 1 or tp, or in inference a multiple of it inside of
    tp x dp; `capacity_factor` the rows that an expert has room for over their mean number, None for as many as come;
    `expert_imbalance` the rows of the busiest expert-parallel rank over the mean. `cut` has the degrees of one over
    which the graph is cut all the same: none, unless the plan was made of a family that says so, or of `dp_shard=1`.
    """

    # What a rule or the stack would choose has no default here; Python is fine with that, keywords alone being given.
    num_gpus: int  # pyright: ignore[reportGeneralTypeIssues]
    etp: int  # pyright: ignore[reportGeneralTypeIssues]
    dp: int  # pyright: ignore[reportGeneralTypeIssues]
    global_batch: int  # pyright: ignore[reportGeneralTypeIssues]
    kv_len: int  # pyright: ignore[reportGeneralTypeIssues]
    dp_shard: int  # pyright: ignore[reportGeneralTypeIssues]
    sp: bool  # pyright: ignore[reportGeneralTypeIssues]
    kernels: str  # pyright: ignore[reportGeneralTypeIssues]
    scatter_p2p: bool  # pyright: ignore[reportGeneralTypeIssues]
    early_stop: bool  # pyright: ignore[reportGeneralTypeIssues]
    reshard: str  # pyright: ignore[reportGeneralTypeIssues]
    pp_layout: str  # pyright: ignore[reportGeneralTypeIssues]
    cut: frozenset[str] = frozenset()

    @cached_property
    def family(self) -> Family:
        """The structure of the graph that the plan runs: its policy, and the axes of its degrees."""
        return family_of(self, {}, self.cut)

    @property
    def inner_ep(self) -> int:
        """The part of `ep` (or of `etp`, where that is above tp) that lies inside dp: experts lie over tp first."""
        return inner_ep(self.ep, self.tp, self.etp, self.family)

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches a replica runs in one step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def mesh(self) -> Mapping[str, int]:
        """The degree of each mesh axis; `cp` is what is left outside `up`, `dp` outside `ep` and `fsdp`."""
        inner, left = self.cp_ulysses, self.dp // (self.inner_ep * self.dp_shard)
        degrees = (self.tp, inner, self.cp // inner, self.inner_ep, self.dp_shard, left, self.pp)
        return dict(zip(DEGREES, degrees, strict=True))

    @property
    def degrees(self) -> str:
        """The degrees as people write them: `tp8 dp8`."""
        pairs = (
            ("tp", self.tp),
            ("pp", self.pp),
            ("vpp", self.vpp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("fsdp", self.dp_shard),
            ("dp", self.dp),
        )
        apart = (self.tp * self.cp > 1 and not self.family.etp) or self.family.etp_dp
        whole = f" etp{self.etp}" if apart else ""
        return " ".join(f"{n}{d}" for n, d in pairs if d > 1 or n in ("tp", "dp")) + whole

    @property
    def words(self) -> PlanWords:
        """What people say to have this plan: all that a rule or the stack would choose is said too."""
        own = {f.name: getattr(self, f.name) for f in fields(PlanWords)}
        family = self.family
        chosen = {
            "dp": None,
            "kv_len": None,
            "dp_shard": self.dp_shard if family.hsdp else None,
            "tp_plan": "auto" if self.tp_plan.startswith("auto:") else self.tp_plan,
            "etp": self.etp if family.etp_dp or (self.tp * self.cp > 1 and not family.etp) else None,
        }
        return changed(PlanWords(), {**own, **chosen})

    def under(self, family: Family, numbers: Mapping[str, float | None] = MappingProxyType({})) -> Plan:
        """Return the plan with other numbers and under another family, checked; None leaves a number open."""
        own = {name: getattr(self, name) for name in PARTS}
        return completed(changed(PlanNumbers(), {**own, **numbers}), family)


def numbers_first() -> tuple[PlanWord, ...]:
    """Return all words as people read a plan: its numbers in the order of its fields, then the others."""
    order = {name: place for place, name in enumerate(PARTS)}
    return tuple(sorted(WORDS.values(), key=lambda row: order.get(row.field, len(order))))


def make_plan(
    *,
    num_gpus: int,
    seq_len: int,
    family: Family | Defaults | None = None,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    ep: int = 1,
    etp: int | None = None,
    dp: int | None = None,
    vpp: int = 1,
    micro_batch: int = 1,
    global_batch: int | None = None,
    kv_len: int = 0,
    cp_ulysses: int = 1,
    dp_shard: int | None = None,
    capacity_factor: float | None = None,
    expert_imbalance: float = 1.0,
) -> Plan:
    """Check and complete a plan: `dp` follows from the other degrees, `global_batch` defaults to one micro-batch each.

    A family that is given is taken as it is, and refused where its graph is not cut over a degree above one. Of
    `Defaults` the structure follows from the degrees, and what they leave open is as the command line has it.

    PlanError shows every factor and the nearest legal values; NotBuiltError refuses what this version cannot model.

    >>> plan = make_plan(num_gpus=64, seq_len=8192, tp=8, cp=2, global_batch=64, family=Defaults(kernels="fused"))
    >>> plan.dp, plan.family.sp, plan.family.cp
    (4, True, 'allgather')
    """
    numbers = PlanNumbers(
        num_gpus=num_gpus, seq_len=seq_len, tp=tp, pp=pp, cp=cp, ep=ep, etp=etp, dp=dp, vpp=vpp,
        micro_batch=micro_batch, global_batch=global_batch, kv_len=kv_len, cp_ulysses=cp_ulysses, dp_shard=dp_shard,
        capacity_factor=capacity_factor, expert_imbalance=expert_imbalance,
    )  # fmt: skip
    if isinstance(family, Family):
        return completed(numbers, family)
    if family is None or (family.stack is None and family.kernels is None):
        raise PlanError(
            "kernels follow from the software that runs: give family=Defaults(stack=system.stack), "
            "Defaults(kernels='eager'), or a Family"
        )
    return completed(numbers, family.family(numbers))


def plan_of(words: PlanWords, stack: Software | None = None) -> Plan:
    """Check and complete a plan from its settings and a software stack, as flags and plan files do.

    PlanError shows every factor and the nearest legal values; NotBuiltError refuses what this version cannot model.

    >>> plan = plan_of(PlanWords(num_gpus=64, tp=8, cp=2, seq_len=8192, global_batch=64))
    >>> plan.dp, plan.family.sp, plan.family.cp
    (4, True, 'allgather')
    """
    return completed(words, structure_of(words, stack))


def completed(said: PlanNumbers, family: Family) -> Plan:
    """Return the plan of some numbers and a family, checked and completed."""
    case = PlanCase.of(said, family)
    check(case)
    return plan_of_case(case)


def plan_of_case(case: PlanCase) -> Plan:
    """Return the plan of a case that is not checked; PlanError for a degree that its graph is not cut over.

    With one rank of tensor parallelism the plan is that of a graph which is not cut over it.
    """
    numbers = {**case.completed, "vpp": case.family.pipeline.chunks_of(case.vpp)}
    check_structure(case.family, numbers)
    family = changed(case.family, {"tp": divides_layers(case.tp, case.cp, case.family.workload)})
    words = policy_of(family) | ({} if family.cp == "none" else {"cp_method": family.cp})
    plan = Plan(**words, **numbers, phase=str(family.workload), cut=idle_axes(family, numbers))  # type: ignore[arg-type]
    # What its family would be worked out as, which `replace` does.
    plan.__dict__["family"] = family
    return plan


def differences(made: Plan, meant: Plan) -> Iterator[str]:
    """Yield the numbers of a plan and the parts of its structure that are not as they were meant, with both values."""
    for a, b, names in ((made, meant, PARTS), (made.family, meant.family, [part.name for part in fields(Family)])):
        for name in names:
            if getattr(a, name) != getattr(b, name):
                yield f"{name}={getattr(a, name)}, not {getattr(b, name)}"


__all__ = ["LARGEST", "Defaults", "Family", "Plan", "make_plan", "plan_of"]
