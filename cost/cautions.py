"""What a reader should know before trusting the numbers of one plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..backends.machine.system import System
from ..ir.graph import ONCE_A_STEP, Graph, Workload
from ..ir.layers import num_layers
from ..ir.ops import work_of
from ..ir.ops.unpriced import UnpricedAttrs, unpriced_calls
from ..ir.plan import Plan, PlanTable
from ..ir.sizes.expr import Num
from ..passes.fusion.absorb import expands
from .replicated import LARGE, Replicated

# Share of a device's memory beyond which allocators give back and take again: published runs that reserve more are slow
# or fail (nanotron, 72 of 80 GiB).
SAFE_SHARE = 0.9
# Share of a step that may wait for the host before it is worth a word.
_WAITING = 0.1
# Structure that costs something where its degree is one; of other axes nothing is left then.
_IDLE = {"ep": "ep=True", "etp": "etp=False", "expert_imbalance": "imbalance=True", "cp_ulysses": "usp=True"}


def cautions(
    graph: Graph,
    system: System,
    plan: Plan,
    metrics: Mapping[str, float],
    breakdown_s: Mapping[str, float],
    replicated: Replicated | None = None,
) -> Iterator[str]:
    """Yield warnings about a plan of a lowered graph, its memory and its host, each a line."""
    yield from _of_the_plan(graph, system, plan)
    if replicated is not None and replicated.largest >= LARGE:
        yield f"{replicated.line}; --tp-plan auto searches for a plan that divides more"
    # What operators without a rule weigh; a note of the graph names them.
    if unpriced_calls(graph):
        share = unpriced_byte_share(graph, {name: float(v[0]) for name, v in PlanTable.of([plan]).columns.items()})
        yield (
            f"operators without a rule move {share:.1%} of the bytes of a micro-batch; what they compute is unknown, "
            "and they may take longer than their bytes do"
        )
    need, has = metrics["peak_mem_bytes"], system.chip.hbm_bytes
    if SAFE_SHARE * has < need <= has:
        yield (
            f"memory is {need / has:.0%} full: beyond {SAFE_SHARE:.0%} allocators give back and take again, "
            "and steps may take several times as long"
        )
    yield from _of_the_host(system, metrics, breakdown_s)


def _of_the_plan(graph: Graph, system: System, plan: Plan) -> Iterator[str]:
    context = plan.kv_len + 1 if graph.workload is Workload.DECODE else plan.seq_len
    if graph.max_positions and context > graph.max_positions:
        yield f"{context} tokens are more than the {graph.max_positions} positions {graph.name} was made for"
    if graph.workload is Workload.DECODE and expands(graph):
        yield (
            "latent attention as the module writes it: keys and values of all cached tokens are expanded at every "
            "step; serving engines attend over the latents, which is much faster (--mla latent)"
        )
    if plan.tp > system.node_size:
        yield f"tp={plan.tp} spans nodes of {system.node_size} GPUs: its communication leaves {system.levels[0].name}"
    idle = [spelling for degree, spelling in _IDLE.items() if degree in plan.cut]
    if idle:
        yield (
            f"a family of {', '.join(idle)} with degrees that have no use for it: its graph distributes and exchanges "
            "what stays where it is, for which time and buffers are counted; a plan without a family has the structure "
            "of its degrees"
        )
    if plan.family.zero == 3 and plan.dp > 1 and graph.workload is Workload.TRAIN and not num_layers(graph):
        yield (
            f"no layers were found in {graph.name}: --zero 3 gathers what runs first and what runs last as one unit "
            "each, with all their parameters at once"
        )
    if plan.tp > 1 and plan.ep > 1 and plan.family.etp and not plan.family.sp:
        yield "without sp every tp rank is taken to exchange all routed rows of its replica: pessimistic"


def _of_the_host(system: System, metrics: Mapping[str, float], breakdown_s: Mapping[str, float]) -> Iterator[str]:
    """Say where devices wait for their host."""
    waiting = breakdown_s.get("host", 0.0) / metrics["step_time_s"]
    if waiting > _WAITING:
        yield (
            f"the devices wait {waiting:.0%} of the step for the host: a micro-batch is below what it takes "
            f"'{system.stack.name}' to issue a layer; larger micro-batches or CUDA graphs are nearly free"
        )


def unpriced_byte_share(graph: Graph, env: Mapping[str, Num]) -> float:
    """Return the part of the bytes of one pass over the model that operators without a rule read and write."""
    moved = {True: 0.0, False: 0.0}
    for region in graph.regions:
        for node in region.nodes:
            if node.phase not in ONCE_A_STEP:
                num_bytes = float(work_of(region, node).num_bytes.evaluate(env))
                moved[isinstance(node.attrs, UnpricedAttrs)] += graph.counts[region.name] * num_bytes
    return moved[True] / (moved[True] + moved[False]) if moved[True] else 0.0
