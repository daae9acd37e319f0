"""A model lowered for one family of plans: passes run, and what they made compiled to tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..backends.pricing.binding import Bindings
from ..backends.pricing.program import CompiledProgram, compile_graph
from ..backends.pricing.roofline import Backend
from ..cost.constraints import ConstraintProgram
from ..cost.flops import REPEATED, ModelFlops
from ..cost.memory.peak import MemoryProgram
from ..cost.must_move import MustMove
from ..cost.step.counted import Counted
from ..cost.step.stages import StageProgram
from ..cost.step.step_program import StepProgram
from ..ir.errors import PlanError, UsageError
from ..ir.graph import Graph, Workload
from ..ir.plan import Family
from ..ir.plan.divisibility import Uneven
from ..ir.plan.layout.layouts import Layouts
from ..ir.records import dataclass
from ..ir.sizes.fixed_sizes import check_open
from ..ir.text.stages import stage
from ..passes.adapters.adapt import Adapt
from ..passes.families import pipeline_for as pipeline_for
from ..passes.fusion.absorb import Absorb, absorbed
from ..passes.manager import Dump, PassPipeline, PassTime
from ..passes.mtp.mtp import Mtp

_ONE_KERNEL = (
    "kernels=eager: norms, rotary embeddings and activations count as one kernel each; what the model's own code "
    "spells out is in a graph that is loaded for it alone (spelled_out)"
)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A model compiled for one family of plans: traced graph, lowered graph, and both as tables."""

    source: Graph
    graph: Graph
    program: CompiledProgram
    bindings: Bindings
    memory: MemoryProgram
    stages: StageProgram
    constraints: ConstraintProgram
    uneven: Uneven
    flops: ModelFlops
    recomputed: ModelFlops
    step: StepProgram
    must_move: MustMove | None = None
    pass_times: tuple[PassTime, ...] = ()

    @property
    def counted(self) -> Counted:
        """What it counts whatever the machine."""
        return Counted(self.source, self.graph, self.flops, self.recomputed, self.must_move)


def lower(
    graph: Graph,
    family: Family,
    pipeline: PassPipeline | None = None,
    stop_after: str | None = None,
    dump: Dump | None = None,
    backends: Sequence[Backend] = (),
) -> Lowered:
    """Lower a traced graph for a family and compile it into tables, which `evaluate` only computes with.

    `backends` are asked in order, before the built-in models, which kernels they price.
    """
    if graph.axes:
        raise UsageError(f"graph '{graph.name}' is sharded already, over {', '.join(graph.axes)}: give the traced one")
    check_open(graph)
    with stage(f"lower {graph.name} ({graph.workload})"):
        done = compiled(graph, family, *(pipeline or pipeline_for(family)).run(graph, stop_after, dump))
    return replace(done, bindings=done.bindings.behind(backends)) if backends else done


def compiled(
    graph: Graph, family: Family, lowered: Graph, times: Sequence[PassTime], layouts: Layouts | None = None
) -> Lowered:
    """Compile what passes have made of a traced graph for a family; layouts go to and come from `layouts`.

    PlanError for a graph that is recorded for other kernels; a note where kernels are asked for that it does not hold.
    With adapters, the work that the model asks for is that of the graph that has them, and of no frozen weight; with
    modules of multi-token prediction it is theirs too, as in Megatron-LM (`num_floating_point_operations`).
    """
    if family.mtp_num_layers:
        graph = Mtp(family.mtp_num_layers).apply(graph).graph
    if family.lora_rank:
        words = (family.lora_modules, family.lora_base, family.lora_dropout > 0)
        graph = Adapt(family.lora_rank, *words).apply(graph).graph
    if graph.spelled_out and family.kernels != "eager":
        raise PlanError(
            f"kernels={family.kernels}: {graph.name} is recorded with norms, rotary embeddings and activations as its "
            "own code spells them out, which is kernels=eager; load it without spelled_out"
        )
    if family.kernels == "eager" and graph.workload is Workload.TRAIN and not graph.spelled_out:
        graph, lowered = (replace(g, notes=(*g.notes, _ONE_KERNEL)) for g in (graph, lowered))
    program = compile_graph(lowered, family.order)
    asked = absorbed(graph) if any(t.name == Absorb.name for t in times) else graph
    return Lowered(
        graph,
        lowered,
        program,
        Bindings(program),
        MemoryProgram.of(lowered),
        StageProgram.of(lowered, family.pp_layout, family.recomputed_layers, layouts),
        ConstraintProgram.of(lowered, graph),
        Uneven.of(lowered),
        ModelFlops.of(asked),
        ModelFlops.of(lowered, REPEATED),
        StepProgram.of(program),
        None if graph.workload is Workload.TRAIN else MustMove.of(lowered),
        tuple(times),
    )
