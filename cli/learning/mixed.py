"""`slipstick mixed`: a step whose pipeline stages stand on several systems, its layers shared out to suit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

import click

from ...ir.errors import PlanError, SlipstickError, UsageError
from ...ir.units import is_digits
from ..flags.names import of_catalogue
from ..flags.request import PlanCommand, Request
from ..flags.run import run_of
from ..output.answers import Answering, deliver_short, format_flag, output_flag
from ..plans.software import with_software
from ..prepare import check_model, lower_of, plan_of, sized, system_of, terms_of

if TYPE_CHECKING:
    from ...driver.fleet import Fleet
    from ...driver.fleet_step import MixedStep
    from ...ir.plan import Plan
    from ...report.results.mixed import MixedResult
    from ...report.results.result import Result

# So many systems are also tried in every other order.
_ORDERED = 3


class MixedCommand(Answering, PlanCommand):
    """A verb whose answer may not fit."""

    delivered = ("form", "output", "allow_infeasible")

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the answer; InfeasibleError where a stage does not fit its machine."""
        from ...report.results.mixed import MixedResult

        assert isinstance(result, MixedResult)
        return deliver_short(result.shortage, said, partial(super().deliver, result, form, said))


@click.command("mixed", cls=MixedCommand, params=[format_flag(), output_flag()])
@click.option(
    "--stages",
    metavar="SYSTEM:N,...",
    required=True,
    shell_complete=of_catalogue("systems"),
    help="Systems with their pipeline stages, from the first stage on, as dgx-h100:5,dgx-a100-80gb:3; their sum is "
    "--pp, and each stage has --gpus / --pp devices.",
)
@click.option(
    "--link",
    metavar="RATE",
    help="Bandwidth per GPU between two systems, e.g. 25Gbit/s.  [default: the slower of their outermost networks]",
)
@click.option(
    "--link-latency",
    metavar="TIME",
    help="Latency of a message between two systems, e.g. 1ms.  [default: that of the slower network]",
)
@click.option("--allow-infeasible", is_flag=True, help="Answer, with exit code 0, even when memory does not fit.")
def mixed_command(request: Request, stages: str, link: str | None, link_latency: str | None) -> MixedResult:
    """Estimate a step of MODEL whose pipeline stages stand on several systems, such as two generations of a chip.

    Layers are shared out so that the step is shortest and every stage fits its own chips: slower chips get fewer
    layers. --pp-layout even or a list takes another split. The answer stands beside the same plan with even layers,
    with the systems in another order, and on each system alone.

    \b
    slipstick mixed llama-3.1-405b --stages dgx-h100:5,dgx-a100-80gb:3 --gpus 512 --tp 8 --zero 1 --seq 8192 --gbs 256
    slipstick mixed llama-3.1-70b --stages dgx-h100:2,dgx-a100-80gb:2 --gpus 32 --tp 8 --link 25Gbit/s
    """  # noqa: D301
    from ...cost.flops import Convention
    from ...driver.fleet import Fleet
    from ...driver.fleet_step import mixed_step
    from ...ir.units import parse_typed
    from ...report.results.mixed import MixedResult

    check_model(request)
    if request.machine.system is not None or request.machine.loaded is not None:
        raise UsageError("--system: --stages names the systems; leave --system out")
    if run_of(request.run, "train") is not None:
        raise UsageError("a whole training run is not answered on several systems: leave its flags out")
    named = _named(stages)
    num = sum(num for _, num in named)
    if request.words.pp not in (1, num):
        raise PlanError(f"--pp {request.words.pp}: --stages {stages} has {num} stages; leave --pp out")
    request = request.said({"pp": num})
    asked = _with_one_software([request.said({"system": name}) for name, _ in named])
    systems = [system_of(one) for one in asked]
    fleet = Fleet(
        tuple(systems),
        tuple(num for _, num in named),
        None if link is None else parse_typed(link, "B/s", "--link"),
        None if link_latency is None else parse_typed(link_latency, "s", "--link-latency"),
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
