"""Which degrees suit a lowered graph, and what a degree that does not divide does to the largest share."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from ..graph import Constraint, Graph, Role, Workload
from ..ops import Trait, has
from ..placement import CP, EP, TP, UP, AxisGroup
from ..records import dataclass
from ..sizes.expr import Expr, Num, as_expr
from ..sizes.shares import read_share, smallest_share
from . import Plan, divisors
from .layout.stages import lay_stages
from .legality import expert_options

Array = NDArray[np.float64]


def suits(constraint: Constraint, size: Num, degree: Num) -> NDArray[np.bool_]:
    """Return whether a degree suits the size that a constraint's dim has under a plan; arrays run over plans."""
    return deals(np.asarray(size), np.asarray(degree), np.array(constraint.copied))


def deals(sizes: Array, degrees: Array, copied: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether degrees divide sizes, or where these are `copied`, sizes the degrees; all arrays broadcast."""
    # Rounded: a quotient comes out of powers, 147 * 49^-1 a little beside 3.
    whole = np.round(sizes, 6)
    divides = (degrees == 1) | (np.mod(whole, degrees) == 0)
    return np.asarray(divides | (copied & (np.mod(degrees, whole) == 0)) if copied.any() else divides)


def check_divisibility(graph: Graph, plan: Plan) -> None:
    """Raise PlanError for degrees that do not fit: each axis with its smallest dim, the degree and what is legal.

    Stages must find layers, too.
    """
    lay_stages(graph, plan.family.pp_layout, plan.pp, plan.vpp, schedule=plan.family.schedule)
    asked = expert_options(plan.family, plan.ep)
    if asked and not has_experts(graph) and not (plan.family.ep and deals_tables(graph)):
        raise PlanError(f"{', '.join(asked)}: {graph.name} has no experts to deal out; leave it out (ep=1)")
    broken = [(size, c) for size, c in _sizes(graph, plan) if not suits(c, size, _degree(plan, c))]
    first = {c.axes: (size, c) for size, c in sorted(broken, key=lambda sc: -sc[0])}
    order = list(plan.mesh)
    messages = [_message(graph, plan, *first[axes]) for axes in sorted(first, key=lambda a: order.index(a[-1]))]
    if messages:
        raise PlanError("; ".join(messages))


def has_experts(graph: Graph) -> bool:
    """Whether there are experts to deal out, split or fill."""
    return any(has(n, Trait.HOLDS_EXPERTS) for r in graph.regions for n in r.nodes)


def deals_tables(graph: Graph) -> bool:
    """Whether `ep` distributes tables: of a model without experts that reads features of samples, not of positions.

    That is a ranking model, whose tables are most of its bytes and whose batch is spread over the same ranks. A step
    that reads what tokens before have left is none of a ranking model, though it has one position alone.
    """
    if graph.workload is Workload.DECODE:
        return False
    nodes = [(r, n) for r in graph.regions for n in r.nodes if has(n, Trait.READS_TABLE)]
    of_samples = [(r, n) for r, n in nodes if not any("seq" in as_expr(d).symbols for d in r.by_id[n.key].type.dims)]
    return len(nodes) == len(of_samples) > 1 and not has_experts(graph)


def legal_degrees(graph: Graph, plan: Plan, axis: AxisGroup) -> list[int]:
    """Return the degrees of a group that suit every dim it shards; where all may be uneven, those that divide GPUs.

    Of `tp+ep`, those that hold all of tp.
    """
    mine = [(size, c) for size, c in _sizes(graph, plan) if c.axis == axis]
    common = math.gcd(*(round(size) for size, c in mine if not c.copied))
    if common == 0:
        common = plan.num_gpus if set(axis.axes) <= {*graph.axes} else 1
    inner = plan.mesh[axis.axes[0]] if len(axis.axes) > 1 else 1
    return [d for d in divisors(common) if (d % inner == 0 or d == 1) and all(suits(c, size, d) for size, c in mine)]


@dataclass(frozen=True, slots=True)
class Uneven:
    """What degrees may cut unevenly, or copy, in a lowered graph.

    Attributes:
        copied: the constraints on things of which more ranks than there are hold copies.
        shares: size and axis of the shares that parameters are cut into, with the first parameter that has each.
    """

    copied: tuple[Constraint, ...]
    shares: tuple[tuple[int, str, str], ...]

    @classmethod
    def of(cls, graph: Graph) -> Uneven:
        """Look through constraints and parameters."""
        copied = tuple(c for c in graph.constraints if c.copied)
        known = {(c.dim, c.axis) for c in copied}
        return cls(copied, tuple((*cut, name) for cut, name in _shares(graph).items() if cut not in known))

    def notes(self, plan: Plan) -> Iterator[str]:
        """Say in a line each what a degree cuts unevenly, with the largest and the smallest share, or copies."""
        for c in self.copied:
            ranks = _degree(plan, c)
            if isinstance(c.dim, int) and ranks > c.dim:
                yield f"{c.axis}={ranks} is more than the {c.dim} {c.where}: {ranks // c.dim} ranks hold a copy of each"
        for size, axis, name in self.shares:
            ranks = plan.mesh[axis]
            if size % ranks:
                yield (
                    f"{axis}={ranks} does not divide {size} ('{name}'): the largest share, {-(-size // ranks)}, is "
                    f"priced; the smallest is {smallest_share(size, ranks)}"
                )


def _shares(graph: Graph) -> dict[tuple[int, str], str]:
    """The shares that parameters are cut into, each with the first parameter that has it."""
    found: dict[tuple[int, str], str] = {}
    for region in graph.regions:
        for v in region.of_role(Role.PARAM):
            names = {f for d in v.type.dims if isinstance(d, Expr) for f in d.factors}
            for share in filter(None, map(read_share, sorted(names))):
                found.setdefault(share, v.name)
    return found


def _degree(plan: Plan, constraint: Constraint) -> int:
    return math.prod(plan.mesh[a] for a in constraint.axes)


def _message(graph: Graph, plan: Plan, size: float, c: Constraint) -> str:
    degree = _degree(plan, c)
    legal = ", ".join(map(str, legal_degrees(graph, plan, c.axis)))
    nearest = _nearest_lengths(plan) if "seq" in as_expr(c.dim).symbols else ""
    rest = f" that cp={plan.cp} leaves" if CP in as_expr(c.dim).symbols and _is_count(c) else ""
    flag = (
        "tp x cp"
        if c.axes == (TP, CP)
        else "cp_ulysses"
        if c.axes == (UP,)
        else "etp"
        if plan.family.etp_dp and c.axes[-1] == EP
        else c.axes[-1]
    )
    return f"{flag}={degree} {_trouble(size, degree, c)}{rest}; legal {flag}: {legal}{nearest}"


def _trouble(size: float, degree: int, c: Constraint) -> str:
    number = f"{size:.10g}"
    what = f"the {number} {c.where}" if _is_count(c) else f"{number} ({c.where})"
    if c.copied and degree > size:
        return f"is no multiple of {what}"
    return f"is more than {what}" if degree > size else f"does not divide {what}"


def _is_count(c: Constraint) -> bool:
    """Whether a constraint is on a number of things, such as heads, and not on a dim of some tensor."""
    return not c.where.startswith("dim ")


def _nearest_lengths(plan: Plan) -> str:
    """The lengths next to the one given that all degrees over the sequence divide."""
    step = plan.cp * (plan.tp if plan.family.sp else 1) * (2 if plan.cp > 1 and plan.family.cp != "ulysses" else 1)
    below = plan.seq_len // step * step
    return "; nearest: " + " or ".join(f"--seq {n}" for n in (below, below + step) if n > 0)


def _sizes(graph: Graph, plan: Plan) -> list[tuple[float, Constraint]]:
    env = {"mbs": plan.micro_batch, "seq": plan.seq_len, "kv": plan.kv_len, **plan.mesh}
    numbers = {k: float(v) for k, v in env.items()}
    return [(float(as_expr(c.dim).evaluate(numbers)), c) for c in graph.constraints]


__all__ = ["Uneven", "check_divisibility", "deals", "deals_tables", "has_experts", "legal_degrees", "suits"]
