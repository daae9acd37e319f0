"""The structure of a graph that degrees ask for: derived from them, or checked against a family that was given.

A graph is cut over an axis only where its family says so. A degree above one on an axis that the graph lacks would
divide devices and no work, so such plans are refused wherever plans are made and wherever they are priced. The other
way round is legal: a graph that is cut over an axis of degree one is the graph without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from .errors import PlanError
from .family import AXES, SERVING_KERNELS, Family
from .graph import Workload

# The word of context parallelism where nothing is said, as flags have it.
CP_METHOD = "allgather"


class Software(Protocol):
    """What a software stack decides where a plan says nothing."""

    @property
    def kernels(self) -> str:
        """What its kernels keep and write in place, in the words of a family."""
        ...

    @property
    def scatter_p2p(self) -> bool:
        """Whether tensor-parallel ranks send pieces to the next pipeline stage."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A degree above one needs a graph with its axis.

    Attributes:
        degree: the degree, as plans call it.
        has: whether a family makes graphs that have the axis.
        given: the word of a family that says so, and its value.
        spelling: how a family says that there is one.
    """

    degree: str
    has: Callable[[Family], bool]
    given: Callable[[Family], str]
    spelling: str


RULES = (
    Rule("cp", lambda f: f.cp != "none", lambda f: f"cp={f.cp}", "cp='allgather'"),
    Rule("cp_ulysses", lambda f: f.usp, lambda f: f"usp={f.usp}", "usp=True"),
    Rule("ep", lambda f: f.ep, lambda f: f"ep={f.ep}", "ep=True"),
    Rule("pp", lambda f: f.pp, lambda f: f"pp={f.pp}", "pp=True"),
    Rule("dp_shard", lambda f: f.hsdp, lambda f: f"hsdp={f.hsdp}", "hsdp=True"),
    Rule("expert_imbalance", lambda f: f.imbalance, lambda f: f"imbalance={f.imbalance}", "imbalance=True"),
)


def check_structure(family: Family, degrees: Mapping[str, float]) -> None:
    """Raise PlanError for degrees above one that the graph of a family is not cut over.

    >>> check_structure(Family(), {"cp": 4})
    Traceback (most recent call last):
        ...
    slipstick.ir.errors.PlanError: cp=4 with a family of cp=none: its graph is not cut so, and nothing would be \
divided; use Family(cp='allgather'), or Defaults(stack=system.stack), which follows the degrees
    """
    wrong = [rule for rule in RULES if degrees.get(rule.degree, 1) > 1 and not rule.has(family)]
    if not wrong:
        return
    told = ", ".join(f"{rule.degree}={degrees[rule.degree]:g}" for rule in wrong)
    have = ", ".join(rule.given(family) for rule in wrong)
    raise PlanError(
        f"{told} with a family of {have}: its graph is not cut so, and nothing would be divided; use "
        f"Family({', '.join(rule.spelling for rule in wrong)}), or Defaults(stack=system.stack), which follows the "
        "degrees"
    )


def check_axes(axes: Sequence[str], mesh: Mapping[str, float]) -> None:
    """Raise PlanError for mesh axes of a degree above one that a lowered graph does not have."""
    wrong = [axis for axis in AXES if mesh.get(axis, 1) > 1 and axis not in axes]
    if wrong:
        told = ", ".join(f"{axis}={mesh[axis]:g}" for axis in wrong)
        raise PlanError(
            f"the graph was lowered over {', '.join(axes)}, and plans have {told}: lower it for the family of the "
            "plans, lower(graph, plan.family)"
        )


def unsaid(family: Family, degrees: Mapping[str, float]) -> list[str]:
    """Return where a family and degrees differ, either way: flags make a structure of degrees and say no other."""
    return [
        f"{rule.given(family)} with {rule.degree}={degrees[rule.degree]:g}"
        for rule in RULES
        if rule.degree in degrees and rule.has(family) != (degrees[rule.degree] > 1)
    ]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a plan leaves open, to be decided by its degrees and the software as the command line has it.

    Attributes:
        stack: the software whose kernels and ways to send these are: `system.stack`.
        policy: all that neither degrees nor the words below decide, as the ZeRO stage or what is recomputed; its
            structure (`sp`, `cp`, `usp`, `ep`, `pp`, `etp`, `hsdp`, ...) and its kernels are not read.
        cp_method: how attention crosses context-parallel ranks, where there are several.
        sp: sequence parallelism; None: in training, with tp above one that divides the sequence.
        kernels: None: those of the stack, eager where inference has none of that name.
        scatter_p2p: None: in training with several stages, as the stack has it.
    """

    stack: Software | None = None
    policy: Family = field(default_factory=Family)
    cp_method: str = CP_METHOD
    sp: bool | None = None
    kernels: str | None = None
    scatter_p2p: bool | None = None

    def family(
        self, *, seq_len: int, tp: int = 1, pp: int = 1, cp: int = 1, ep: int = 1, etp: int | None = None,
        vpp: int = 1, cp_ulysses: int = 1, dp_shard: int | None = None, capacity_factor: float | None = None,
        expert_imbalance: float = 1.0,
    ) -> Family:  # fmt: skip
        """Return the family of some degrees, which are those of `make_plan`; eager kernels where nothing says which."""
        base, train = self.policy, self.policy.workload is Workload.TRAIN
        scatter = train and pp > 1 and self.stack is not None and self.stack.scatter_p2p
        return replace(
            base,
            sp=(train and tp > 1 and seq_len % tp == 0) if self.sp is None else self.sp,
            kernels=self.kernels or usual_kernels(base.workload, self.stack),
            scatter_p2p=scatter if self.scatter_p2p is None else self.scatter_p2p,
            schedule=_schedule(base.schedule, vpp),
            cp=self.cp_method if cp > 1 else "none",
            usp=cp_ulysses > 1,
            ep=ep > 1,
            pp=pp > 1,
            etp=etp != 1 or tp == 1,
            etp_dp=not train and (etp or 1) > tp,
            hsdp=dp_shard is not None,
            capacity=capacity_factor is not None,
            imbalance=expert_imbalance != 1,
            tp_plan=f"auto:{tp}" if base.tp_plan == "auto" else base.tp_plan,
        )


def usual_kernels(workload: Workload, stack: Software | None) -> str:
    """Return the kernels of a stack, plain without one; in inference all that serving engines do not have are eager."""
    kernels = "plain" if stack is None else stack.kernels
    return kernels if workload is Workload.TRAIN or kernels in SERVING_KERNELS else "eager"


def _schedule(named: str, vpp: int) -> str:
    """Return the schedule: interleaved is 1f1b with chunks, and PlanError where there are none."""
    if named != "interleaved":
        return named
    if vpp == 1:
        raise PlanError("schedule interleaved needs several chunks a stage, not vpp=1; legal vpp: 2, 3, 4, ...")
    return "1f1b"


__all__ = ["RULES", "Defaults", "Rule", "Software", "check_axes", "check_structure", "unsaid", "usual_kernels"]
