"""`slipstick topologies`: networks that cost, draw or carry the same, and a step of a model on each."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import click

from ...ir.errors import InfeasibleError, PlanError, UsageError
from ..flags.numbers import Named
from ..flags.request import PlanCommand, Request
from ..output.answers import Answering, format_flag, output_flag
from ..plans.software import with_software
from ..prepare import check_model, graph_of, plan_of, system_of

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...ir.plan import Plan
    from ...report.results.topologies import TopologyResult

# What is equal, and the unit of its budget.
_UNITS = {"cost": "USD", "power": "W", "bandwidth": "B/s"}


class TopologyCommand(Answering, PlanCommand):
    """A verb that has the flags of a plan."""


@click.command("topologies", cls=TopologyCommand, params=[format_flag(), output_flag()])
@click.option(
    "--topologies",
    metavar="LIST",
    help="Topologies with their numbers: torus=16x16x16, fat_tree=2 (oversubscription), dragonfly=16x32x8 (hosts, "
    "routers, groups), hyperx, hypercube, ...; node/torus joins nodes.  [default: fat_tree,fat_tree=2,"
    "rail_optimised,dragonfly,torus,hyperx, of the most cubic shapes]",
)
@click.option(
    "--equal",
    type=Named(tuple(_UNITS)),
    default="cost",
    show_default=True,
    help="What is equal: links are as fast as the budget allows.",
)
@click.option(
    "--budget",
    metavar="QUANTITY",
    help="Of a GPU: 5000USD of network, 150W, or 100GB/s.  [default: of the first topology with one port a link]",
)
@click.option(
    "--vary",
    multiple=True,
    metavar="WORD=LIST",
    help="Values of a word of the plan, as ep=16,32,64: each topology has its fastest plan that fits. Repeatable.",
)
def topologies_command(
    request: Request, topologies: str | None, equal: str, budget: str | None, vary: tuple[str, ...]
) -> TopologyResult:
    """Compare topologies of equal cost, power or bandwidth by a step of MODEL on each, under its best placement.

    All are built of the ports, switches, cables and optics of the outermost network of --system; the rates of their
    links are scaled until each network meets the budget. Only rails, and topologies behind node/, keep the levels
    inside of its nodes.

    \b
    slipstick topologies llama-3.1-70b --system dgx-h100 --gpus 4096 --tp 8 --pp 4 --zero 1 --seq 8192 --gbs 1024
    slipstick topologies mixtral-8x7b --system dgx-h100 --gpus 512 --topologies torus,fat_tree=2 --vary ep=1,2,4,8
    """  # noqa: D301
    from ...explore.topologies import EQUALS, equalised, steps_on, topology_network, usual_networks
    from ...ir.units import parse_typed
    from ...report.results.topologies import TopologyResult

    check_model(request)
    request = with_software(request)
    system = system_of(request)
    plans = _plans(request, system, vary)
    num_gpus = plans[0].num_gpus
    if topologies is None:
        networks = usual_networks(system, num_gpus)
    else:
        networks = [topology_network(name, system, num_gpus) for name in topologies.split(",")]
    kind = EQUALS[EQUALS.index(equal)]
    each = None if budget is None else parse_typed(budget, _UNITS[equal], "--budget")
    whole = None if each is None else each * (1 if kind == "bandwidth" else num_gpus)
    graph = graph_of(request, system.stack)
    steps = steps_on(equalised(networks, kind, whole), system, graph, plans)
    if all(step.answer is None for step in steps):
        raise InfeasibleError(
            f"no plan fits the memory of {system.name}, on any topology; `slipstick estimate` with the same flags says "
            "what it needs, and which changes fit"
        )
    return TopologyResult(steps=steps, model=graph.name, system=system.name, num_gpus=num_gpus, equal=equal)


def _plans(request: Request, system: System, vary: tuple[str, ...]) -> list[Plan]:
    """Return the plan, or those of all values that are varied, of one number of GPUs; PlanError where none is one."""
    from ..search.axes import parameter, values_of

    axes = {}
    for text in vary:
        word, _, listed = text.partition("=")
        axes[parameter(word)] = values_of(word, listed)
    if "gpus" in axes:
        raise UsageError("--vary gpus: topologies are of one size; say --gpus")
    found: list[Plan] = []
    wrong: list[PlanError] = []
    for values in product(*axes.values()):
        try:
            found.append(plan_of(request.said(dict(zip(axes, values, strict=True))), system.stack))
        except PlanError as error:
            wrong.append(error)
    if not found:
        raise wrong[0]
    return found
