"""Networks that cost, draw or carry the same, and a step of a model on each."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, PlanError, UsageError
from ...ir.records import dataclass
from ..prepare import check_model, graph_of, plan_of, system_of
from ..request import Request
from ..run_words import quantity_of
from ..search.axes import parameter, values_of
from ..software import with_software

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...ir.plan import Plan
    from ...report.results.topologies import TopologyResult

# What is equal, and the unit of its budget.
_UNITS = {"cost": "USD", "power": "W", "bandwidth": "B/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest(Request):
    """A step, the topologies that are compared by it, and what is equal of them."""

    topologies: str | None
    equal: str
    budget: str | None
    vary: tuple[str, ...]


def compare_topologies(request: TopologyRequest) -> TopologyResult:
    """Compare networks by a step on each under its best placement; InfeasibleError where no plan fits."""
    from ...explore.topologies import EQUALS, equalised, steps_on, topology_network, usual_networks
    from ...report.results.topologies import TopologyResult

    check_model(request)
    request = with_software(request)
    system = system_of(request)
    plans = _plans(request, system)
    num_gpus = plans[0].num_gpus
    equal = request.equal
    if request.topologies is None:
        networks = usual_networks(system, num_gpus)
    else:
        networks = [topology_network(name, system, num_gpus) for name in request.topologies.split(",")]
    kind = EQUALS[EQUALS.index(equal)]
    each = quantity_of(request.budget, _UNITS[equal], "--budget")
    whole = None if each is None else each * (1 if kind == "bandwidth" else num_gpus)
    graph = graph_of(request, system.stack)
    steps = steps_on(equalised(networks, kind, whole), system, graph, plans)
    if all(step.answer is None for step in steps):
        raise InfeasibleError(
            f"no plan fits the memory of {system.name}, on any topology; `slipstick estimate` with the same flags says "
            "what it needs, and which changes fit"
        )
    return TopologyResult(steps=steps, model=graph.name, system=system.name, num_gpus=num_gpus, equal=equal)


def _plans(request: TopologyRequest, system: System) -> list[Plan]:
    """Return the plan, or those of all values that are varied, of one number of GPUs; PlanError where none is one."""
    axes = {}
    for text in request.vary:
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
