"""The structure of a graph that degrees ask for: derived from them, or checked against a family that was given.

A graph is cut over an axis only where its family says so. A degree above one on an axis that the graph lacks would
divide devices and no work, so such plans are refused wherever plans are made and wherever they are priced. The other
way round is legal: a graph that is cut over an axis of degree one is the graph without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from operator import attrgetter

from ..errors import PlanError
from ..graph import Workload
from ..placement import AXES, MeshAxis
from ..records import dataclass
from ..schedules.registry import ALIASES
from .training.decisions import Decisions, Software
from .word import changed
from .words import CP_METHODS, PLAIN, SERVING_KERNELS, Family, LoweringPolicy, PlanNumbers, PlanWords


@dataclass(frozen=True, slots=True)
class DegreeRule:
    """A degree above one needs a graph with its axis.

    Attributes:
        degree: the degree, as plans call it.
        word: the word of a family that says whether its graph has the axis.
        value: what it says then.
    """

    degree: str
    word: str
    value: str | bool = True

    def has(self, family: Family) -> bool:
        """Whether a family makes graphs that have the axis."""
        return getattr(family, self.word) not in (False, "none")

    @property
    def spelling(self) -> str:
        """How a family says that there is one."""
        return f"{self.word}={self.value!r}"


RULES = (
    DegreeRule("tp", "tp"),
    DegreeRule("cp", "cp", "allgather"),
    DegreeRule("cp_ulysses", "usp"),
    DegreeRule("ep", "ep"),
    DegreeRule("pp", "pp"),
    DegreeRule("dp_shard", "hsdp"),
    DegreeRule("expert_imbalance", "imbalance"),
)


def check_structure(family: Family, degrees: Mapping[str, float | None]) -> None:
    """Raise PlanError for degrees above one that the graph of a family is not cut over.

    >>> check_structure(Family(), {"cp": 4})
    Traceback (most recent call last):
        ...
    slipstick.ir.errors.PlanError: cp=4 with a family of cp=none: its graph is not cut so, and nothing would be \
divided; use Family(cp='allgather'), or Defaults(stack=system.stack), which follows the degrees
    """
    wrong = [rule for rule in RULES if (degrees.get(rule.degree) or 1) > 1 and not rule.has(family)]
    if not wrong:
        return
    told = ", ".join(f"{rule.degree}={degrees[rule.degree]:g}" for rule in wrong)
    have = ", ".join(f"{rule.word}={getattr(family, rule.word)}" for rule in wrong)
    raise PlanError(
        f"{told} with a family of {have}: its graph is not cut so, and nothing would be divided; use "
        f"Family({', '.join(rule.spelling for rule in wrong)}), or Defaults(stack=system.stack), which follows the "
        "degrees"
    )


def check_axes(axes: Sequence[MeshAxis], mesh: Mapping[str, float]) -> None:
    """Raise PlanError for mesh axes of a degree above one that a lowered graph does not have."""
    wrong = [axis for axis in AXES if mesh.get(axis, 1) > 1 and axis not in axes]
    if wrong:
        told = ", ".join(f"{axis}={mesh[axis]:g}" for axis in wrong)
        raise PlanError(
            f"the graph was lowered over {', '.join(axes)}, and plans have {told}: lower it for the family of the "
            "plans, lower(graph, plan.family)"
        )


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings of a plan that its degrees and the software decide, as on the command line.

    Attributes:
        stack: the software whose kernels and ways to send these are: `system.stack`.
        policy: all that neither degrees nor the words below decide, as the ZeRO stage or what is recomputed; its
            structure (`sp`, `cp`, `usp`, `ep`, `pp`, `etp`, `hsdp`, ...) and its kernels are not read. Of what the
            stack decides, what is not as by default is said.
        cp_method: how attention crosses context-parallel ranks, where there are several.
        sp: sequence parallelism; None: in training, with tp above one that divides the sequence.
        kernels: None: those of the stack, eager where inference has none of that name.
        scatter_p2p: None: in training with several stages, as the stack has it.
    """

    stack: Software | None = None
    policy: Family = field(default_factory=Family)
    cp_method: str = CP_METHODS[0]
    sp: bool | None = None
    kernels: str | None = None
    scatter_p2p: bool | None = None

    def family(self, numbers: PlanNumbers) -> Family:
        """Return the family of some numbers; eager kernels where nothing says which."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("stack", "policy")}
        left_open = {name: None for name in OPEN if getattr(self.policy, name) == getattr(PLAIN, name)}
        said = {**policy_of(self.policy), **left_open, **own, "phase": str(self.policy.workload)}
        given = {f.name: getattr(numbers, f.name) for f in fields(PlanNumbers)}
        return structure_of(changed(PlanWords(), {**given, **said}), self.stack)


# Words that a stack decides in training where they are left open.
OPEN = tuple(Decisions().words("none", 0, False))
_POLICY = tuple(part.name for part in fields(LoweringPolicy))
_STANDING = attrgetter(*_POLICY)


def policy_of(record: LoweringPolicy) -> dict[str, object]:
    """Return the words of a record that a graph is lowered for as they stand, by their fields."""
    return dict(zip(_POLICY, _STANDING(record), strict=True))


def structure_of(words: PlanWords, stack: Software | None = None) -> Family:
    """Return the structure that words make: axes of the degrees above one, and what a rule or the stack decides.

    >>> family = structure_of(PlanWords(tp=8, cp=2, seq_len=8192))
    >>> family.sp, family.cp, family.pp, family.kernels
    (True, 'allgather', False, 'plain')
    """
    train = words.phase == Workload.TRAIN
    decides = Decisions() if stack is None or not train else stack.decides
    follows = decides.words(words.recompute, words.zero, words.pp > 1)
    decided: dict[str, object] = {
        **{name: word for name, word in follows.items() if getattr(words, name) is None},
        "sp": (train and words.tp > 1 and words.seq_len % words.tp == 0) if words.sp is None else words.sp,
        "kernels": words.kernels or usual_kernels(Workload(words.phase), stack),
        "schedule": _schedule(words.schedule, words.vpp),
        "tp_plan": f"auto:{words.tp}" if words.tp_plan == "auto" else words.tp_plan,
    }
    cut = frozenset() if words.dp_shard is None else frozenset({"dp_shard"})
    # With one rank of tp, --etp 1 still says how experts lie over ranks that share out a cache: whole.
    whole = words.phase == Workload.DECODE and words.cp > 1 and words.tp == words.etp == 1
    return family_of(words, decided, cut | {"ep", "etp"} if whole else cut)


def family_of(words: PlanWords, decided: Mapping[str, object], cut: frozenset[str]) -> Family:
    """Return the family of words, some decided anew: cut over axes of degrees above one, and over those in `cut`."""
    workload = Workload(words.phase)
    return Family(
        **{**policy_of(words), **decided},  # type: ignore[arg-type]
        workload=workload,
        tp=divides_layers(words.tp, words.cp, workload),
        cp=words.cp_method if words.cp > 1 or "cp" in cut else "none",
        usp=words.cp_ulysses > 1 or "cp_ulysses" in cut,
        ep=words.ep > 1 or "ep" in cut,
        pp=words.pp > 1 or "pp" in cut,
        etp=(words.etp != 1 or words.tp == 1) and "etp" not in cut,
        etp_dp=workload is not Workload.TRAIN and (words.etp or 1) > words.tp,
        hsdp=(words.dp_shard or 1) > 1 or "dp_shard" in cut,
        capacity=words.capacity_factor is not None,
        imbalance=words.expert_imbalance != 1 or "expert_imbalance" in cut,
    )


def divides_layers(tp: int, cp: int, workload: Workload) -> bool:
    """Whether a graph is cut over tensor parallelism: in decode, ranks of `cp` share layers too."""
    return tp > 1 or (cp > 1 and workload is Workload.DECODE)


def idle_axes(family: Family, numbers: Mapping[str, float | None]) -> frozenset[str]:
    """Return the degrees of one over which the graph of a family is cut all the same."""
    found = [rule.degree for rule in RULES if numbers[rule.degree] == 1 and rule.has(family)]
    return frozenset(found if family.etp or numbers["tp"] != 1 else [*found, "etp"])


def usual_kernels(workload: Workload, stack: Software | None) -> str:
    """Return the kernels of a stack, plain without one; in inference all that serving engines do not have are eager."""
    kernels = "plain" if stack is None else stack.decides.kernels
    return kernels if workload is Workload.TRAIN or kernels in SERVING_KERNELS else "eager"


def _schedule(named: str, vpp: int) -> str:
    """Return the name of a schedule, which may have another word with chunks; PlanError where there are none."""
    if named not in ALIASES:
        return named
    if vpp == 1:
        raise PlanError(f"schedule {named} needs several chunks a stage, not vpp=1; legal vpp: 2, 3, 4, ...")
    return ALIASES[named].name
