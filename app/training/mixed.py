"""A step whose pipeline stages stand on several systems, its layers shared out to suit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from ...ir.errors import PlanError, SlipstickError, UsageError
from ...ir.records import dataclass
from ...ir.units import is_digits
from ..prepare import check_model, lower_of, plan_of, sized, system_of, terms_of
from ..request import Request
from ..run_words import quantity_of, run_of
from ..software import with_software

if TYPE_CHECKING:
    from ...driver.fleet import Fleet
    from ...driver.fleet_step import MixedStep
    from ...ir.plan import Plan
    from ...report.results.mixed import MixedResult

# So many systems are also tried in every other order.
_ORDERED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedRequest(Request):
    """A step, the systems under its stages, and the link between them."""

    stages: str
    link: str | None
    link_latency: str | None


def estimate_mixed(request: MixedRequest) -> MixedResult:
    """Estimate a step on several systems, beside the same plan with even layers, in other orders, and on each alone."""
    from ...cost.flops import Convention
    from ...driver.fleet import Fleet
    from ...driver.fleet_step import mixed_step
    from ...report.results.mixed import MixedResult

    check_model(request)
    if request.machine.system is not None or request.machine.loaded is not None:
        raise UsageError("--system: --stages names the systems; leave --system out")
    if run_of(request.run, "train") is not None:
        raise UsageError("a whole training run is not answered on several systems: leave its flags out")
    named = _named(request.stages)
    num = sum(num for _, num in named)
    if request.words.pp not in (1, num):
        raise PlanError(f"--pp {request.words.pp}: --stages {request.stages} has {num} stages; leave --pp out")
    request = request.said({"pp": num})
    asked = _with_one_software([request.said({"system": name}) for name, _ in named])
    systems = [system_of(one) for one in asked]
    fleet = Fleet(
        tuple(systems),
        tuple(num for _, num in named),
        quantity_of(request.link, "B/s", "--link"),
        quantity_of(request.link_latency, "s", "--link-latency"),
    )
    graph, plan = sized(asked[0], systems[0].stack)
    for one, system in zip(asked[1:], systems[1:], strict=True):
        if plan_of(one, system.stack).family != plan.family:
            raise PlanError(
                f"the software of {systems[0].name} ({systems[0].stack.name}) and {system.name} ({system.stack.name}) "
                "would run this plan in two forms; give one with --stack, or say --kernels and --scatter-p2p"
            )
    convention, terms = Convention(request.flops_convention), terms_of(request)
    lowered = lower_of(asked[0], graph, plan.family)

    def answer(plan: Plan, fleet: Fleet) -> MixedStep:
        return mixed_step(graph, plan, fleet, convention, lowered, terms)

    best = answer(plan, fleet)
    return MixedResult(best=best, others=dict(_others(best, fleet, answer)))


def _with_one_software(asked: Sequence[Request]) -> Sequence[Request]:
    """Return requests with the software that usually runs on all of them, without any where that differs."""
    from ...backends.machine.files.catalogue import NO_SOFTWARE

    found = [with_software(one) for one in asked]
    if len({one.machine.stack for one in found}) == 1:
        return found
    assumed = {name for one in found for name in one.machine.assumed}
    return [one.said({"stack": one.machine.stack or NO_SOFTWARE, "assumed": tuple(assumed)}) for one in asked]


def _named(stages: str) -> list[tuple[str, int]]:
    """Systems and how many stages each has; UsageError for what is no such list."""
    found = []
    for text in stages.split(","):
        name, _, num = text.strip().rpartition(":")
        if not name or not is_digits(num) or int(num) < 1:
            raise UsageError(f"--stages {stages}: SYSTEM:N,SYSTEM:N, as in dgx-h100:5,dgx-a100-80gb:3")
        found.append((name, int(num)))
    return found


def _others(
    best: MixedStep, fleet: Fleet, answer: Callable[[Plan, Fleet], MixedStep]
) -> Iterator[tuple[str, MixedStep]]:
    """Even layers, the systems in other orders, and each by itself; what cannot be is left out."""
    tried: dict[str, tuple[Plan, Fleet]] = {}
    even = replace(best.plan, pp_layout="even")
    if best.plan.pp_layout != "even":
        tried["even layers"] = even, fleet
    groups = list(zip(fleet.systems, fleet.stages, strict=True))
    balanced = replace(best.plan, pp_layout="auto")
    for order in permutations(groups) if len(groups) <= _ORDERED else ():
        other = replace(fleet, systems=tuple(s for s, _ in order), stages=tuple(n for _, n in order))
        if other.name != fleet.name:
            tried.setdefault(other.name, (balanced, other))
    for system in {system.name: system for system in fleet.systems}.values():
        alone = replace(fleet, systems=(system,), stages=(best.plan.pp,))
        if alone.name != fleet.name:
            tried.setdefault(alone.name, (balanced, alone))
    for label, (plan, others) in tried.items():
        with suppress(SlipstickError):
            yield label, answer(plan, others)
