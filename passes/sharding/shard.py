"""Sharding by placement propagation: parameters and inputs get placements, everything else follows."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...ir.errors import UnknownNameError
from ...ir.graph import Constraint, Graph, Node, Phase, Region, Role, Value
from ...ir.ops import OpClass, Trait, call_of, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.fused.routing import RoutedAttrs
from ...ir.ops.states import is_expert
from ...ir.placement import CP, DP, EP, FSDP, REPLICATE, TP, UP, MeshAxis, Partial, Placement, Shard, group_axes
from ...ir.plan import CP_METHODS, IMBALANCE
from ...ir.plan.divisibility import deals_tables
from ...ir.records import dataclass
from ...ir.saved import mark_saved
from ...ir.sizes.expr import symbol
from ...ir.types import DType
from ..base import Pass, PassResult, require
from .annotate import (
    OverEp,
    Placements,
    StateKeys,
    enters_bag,
    gathers_output,
    gives_rows,
    is_table,
    lay_whole,
    reduces_input_grad,
    reduces_output,
    source_placements,
    splits_input,
    weight_behind,
    with_whole_states,
)
from .ask import SAMPLE_AXES, Answer, Ask
from .builder import RegionBuilder
from .cuts import Cuts
from .exchange import ExchangeOptions, imbalance_of, routing_regions, top_k
from .facts import GraphFacts
from .follow import is_cut_apart
from .own_batch import back_to_sequence, data_axes
from .plans.auto import Ports
from .plans.choose import plan_for
from .plans.plans import TpPlan
from .rules import answer_of, gather_notes

# Methods of context parallelism that give each rank a chunk from the front and one from the back (zig-zag).
BALANCED = ("allgather", "ring")
ZIG_ZAG = Constraint(symbol("seq") / 2, CP.group, "pairs of tokens, front and back, that a balanced split distributes")


@dataclass(frozen=True, slots=True)
class ShardPass(Pass):
    """Shard over `dp` and `tp`, on request over `cp` (the sequence) and `ep` (experts, inside data parallelism).

    | option            | meaning                                                                                 |
    |-------------------|-----------------------------------------------------------------------------------------|
    | tp                | tensor parallelism; false: no value lies over tp, and no plan is asked of dense layers  |
    | tp_plan           | which layers are split how: megatron, dtensor, dtensor-naive, hf, auto, or a file       |
    | sp                | sequence parallelism: between the split layers, activations lie sharded over length     |
    | regather          | under sp, gather inputs again in the backward phase instead of keeping them whole       |
    | cp                | context parallelism: none, allgather, ring (block by block), ulysses                    |
    | usp               | inside allgather or ring, the ranks of axis `up` exchange sequence for heads            |
    | ep                | experts over ep, tokens travel to them and back; or tables of a ranking model by column |
    | etp               | over tp, experts are split inside; false: whole, distributed over tp too where ep is on   |
    | exchange          | how rows get to experts over ep: alltoall, or all tokens to all ranks: allgather        |
    | inside            | over ep, experts are split inside too, not distributed; all tokens go to all ranks        |
    | imbalance         | the busiest rank gets and computes more rows than the mean: the symbol `imb`            |
    | popularity        | of experts, power:X or a file; eplb, where they lie so that loads are equal; copies     |
    | wire              | fp8: rows, and gradients of results, travel to their experts in fp8                     |
    | routing_nodes     | a token is sent to at most so many nodes and copied there; 0 for no limit               |
    | zero              | ZeRO stage: 1 shards optimizer states over dp, 2 gradients too, 3 parameters too        |
    | hsdp              | hybrid: what ZeRO shards lies over fsdp, and dp holds replicas of those shards          |
    | once              | gradients are reduced once a step even under ZeRO 2 and 3, in sums of whole ones        |
    | reduced           | element type in which gradients are reduced; empty: the type that they have             |
    | replicate_unknown | gather the inputs of an op that has no sharding rule, instead of refusing it            |
    """

    name: ClassVar[str] = "shard"
    tp_plan: str = "megatron"
    sp: bool = False
    regather: bool = False
    zero: int = 0
    cp: str = "none"
    ep: bool = False
    replicate_unknown: bool = False
    usp: bool = False
    hsdp: bool = False
    once: bool = False
    reduced: str = ""
    etp: bool = True
    imbalance: bool = False
    popularity: tuple[str, ...] = ()
    wire: str = ""
    routing_nodes: int = 0
    exchange: str = "alltoall"
    inside: bool = False
    tp: bool = True

    def requires(self, graph: Graph) -> None:
        """The graph is not sharded yet."""
        require(not graph.axes, f"graph '{graph.name}' is sharded already, over {graph.axes}")

    def apply(self, graph: Graph) -> PassResult:
        """Propagate forward through the regions, then backward."""
        if self.cp not in ("none", *CP_METHODS):
            raise UnknownNameError.of("method of context parallelism", self.cp, ("none", *CP_METHODS))
        plan = plan_for(self.tp_plan, graph, shard_by) if self.tp or self.inside else TpPlan("none", ())
        facts = GraphFacts.of(graph, data_axes(self.hsdp, self.ep))
        sharded = with_whole_states(lambda whole: _Propagation(facts, self, plan).run(whole))
        return PassResult(mark_saved(sharded), changed=True)

    def ensures(self, graph: Graph) -> None:
        """Every value has a placement on every axis."""
        bare = [f"{r.name}/%{v.id}" for r in graph.regions for v in r.values if len(v.placements) != len(graph.axes)]
        require(not bare, f"values without placement: {bare[:5]}")


def shard_by(graph: Graph, plan: TpPlan, ports: Ports | None = None, facts: GraphFacts | None = None) -> Graph:
    """Return a graph sharded over `dp` and `tp` by a plan, with ports as given, and no other option changed.

    `facts` are those of the graph over `dp`, for who shards it again and again.
    """
    known = facts or GraphFacts.of(graph, (DP,))
    return with_whole_states(lambda whole: _Propagation(known, ShardPass(), plan, ports).run(whole))


class _Propagation:
    """The state of one run: a builder a region, and the placements of the ports seen so far."""

    def __init__(self, facts: GraphFacts, options: ShardPass, plan: TpPlan, ports: Ports | None = None) -> None:
        self.facts, self.graph, self.own, self.plan = facts, facts.graph, facts.own, plan
        self.sp, self.zero, self.cp = options.sp, options.zero, options.cp
        self.scatters_early = self.zero >= 2 and not options.once
        self.reduced = DType.parse(options.reduced) if options.reduced else None
        self.home = FSDP if options.hsdp else DP
        # Heads are exchanged before keys and values cross the ring, so that it moves only the heads of a rank.
        sequence = [] if options.cp == "none" else [UP, CP] if options.usp else [CP]
        tensor = [TP] if options.tp else []
        self.axes = (*data_axes(options.hsdp, options.ep), *sequence, *tensor)
        self.spread = (EP,) if options.etp else (*tensor, EP)  # axes over which whole experts lie
        self.ep, self.etp = options.ep, options.etp
        self.tables = options.ep and deals_tables(self.graph)
        self.over_ep = OverEp.TABLES if self.tables else OverEp.INSIDE if options.inside else OverEp.WHOLE
        self.own_tokens = routing_regions(self.graph) if options.sp and (options.ep or not options.etp) else frozenset()
        # Axes whose ranks all have the tokens, and of these the ones that deal out experts.
        over_tp = tensor if options.ep and not options.etp and not options.sp else []
        gathered = [EP] if options.inside or options.exchange == "allgather" else []
        self.all_tokens, self.own_rows = (*over_tp, *gathered), (*over_tp, *([] if options.inside else gathered))
        self.builders = {r.name: self._builder(r, options, facts.cuts[r.name]) for r in self.graph.regions}
        self.ports = dict(ports or {})
        self.replicate_unknown, self.notes = options.replicate_unknown, [plan.note] if plan.note else []
        # What answers of rules depend on, besides the node and how its inputs lie.
        self.asks = self.sp, self.cp, self.own_tokens, self.all_tokens, self.own_rows, options.replicate_unknown

    def _builder(self, region: Region, options: ShardPass, cuts: Cuts) -> RegionBuilder:
        imbalance = symbol(IMBALANCE) if options.imbalance else imbalance_of(region, options.popularity, self.spread)
        exchange = ExchangeOptions(options.wire, options.routing_nodes, imbalance, top_k(region))
        banks = () if self.etp else (v.type.dims for v in region.of_role(Role.PARAM) if is_expert(region, v))
        freed, known = (options.regather and options.sp, self.zero == 3), self.facts.types.setdefault(region.name, {})
        return RegionBuilder(region, self.axes, *freed, self.sp, cuts, exchange, frozenset(banks), known)

    def run(self, whole: StateKeys) -> Graph:
        """Return the sharded graph, in which some caches and parameters are whole on every rank of `tp`."""
        self.notes += [f"'{name}' is whole on every rank of tp: its layer reads all of it" for _, name in sorted(whole)]
        for name in self.graph.sequence_once():
            self._sources(self.builders[name], whole)
            self._phase(self.builders[name], forward=True)
        for name in dict.fromkeys(reversed(tuple(self.graph.sequence()))):  # the last layer may be of the first kind
            self._phase(self.builders[name], forward=False)
        regions = tuple(self._finish(self.builders[r.name]) for r in self.graph.regions)
        notes = (*self.graph.notes, *dict.fromkeys(self.notes))
        constraints = {k: c for b in self.builders.values() for k, c in b.constraints.items()}
        kept = (*constraints.values(), *([ZIG_ZAG] if self.cp in BALANCED else []))
        return replace(self.graph, regions=regions, axes=self.axes, constraints=kept, notes=notes)

    def _sources(self, b: RegionBuilder, whole_states: StateKeys) -> None:
        whole = None if self.etp else Shard(0) if self.ep or self.zero == 3 else REPLICATE
        places = source_placements(b.old, self.plan, self.zero, self.home, whole, self.over_ep)
        known = lay_whole(b.old, places, whole_states)
        for v in b.old.values:
            if v.id in known:
                b.add_source(v, b.packed(v, self.own.source(v, {axis: known[v.id][axis] for axis in self.axes})))
            if EP in self.axes and v.role is Role.PARAM and self._is_dealt(b.old, v):
                self._constrain_dealt(b, v, known[v.id])

    def _constrain_dealt(self, b: RegionBuilder, v: Value, lies: Placements) -> None:
        """Experts are sharded whole over ep, or cut inside over tp and ep alike; tables are cut over ep."""
        cut = lies[EP]
        if self.tables:
            b.constrain(Constraint(v.type.dims[-1], EP.group, f"columns of table '{v.name}'"))
        elif self.over_ep is OverEp.WHOLE:
            b.constrain_experts(v, self.spread)
        elif isinstance(cut, Shard):
            b.constrain(
                Constraint(v.type.dims[cut.dim], group_axes((TP, EP)), f"dim {cut.dim} of {v.type}, '{v.name}'")
            )

    def _phase(self, b: RegionBuilder, forward: bool) -> None:
        for node in b.old.nodes:
            if (node.phase is Phase.FORWARD) == forward:
                self._import_ports(b, node)
                self._node(b, node)
        self._export(b, forward)

    def _import_ports(self, b: RegionBuilder, node: Node) -> None:
        for i in node.inputs:
            v = b.old.by_id[i]
            if v.role is Role.PORT and i not in b.now:
                b.add_source(v, self.ports[v.name])

    def _node(self, b: RegionBuilder, node: Node) -> None:
        """Ask the op's rule on every axis, place the node, then apply the plan's wishes to its result."""
        self._scatter_gradient(b, node)
        if node.phase.is_forward_work and splits_input(b.old, node, self.plan):
            b.settle(node.inputs[0], {**b.where[b.now[node.inputs[0]]], TP: REPLICATE}, node)
        if has(node, Trait.ACCUMULATES) and self.scatters_early:
            param = next(p for p, g in b.old.grads if g == node.key)
            if self._has_tail(b, param):
                b.sum_copies(param, node.inputs[0], node)
            self._reduce(b, node.inputs[0], self._gradient_at_rest(b, param, node.inputs[0]), node)
        if isinstance(node.attrs, RoutedAttrs):
            node = self._with_all_tokens(b, node, node.attrs)
        answers = {axis: self._ask(b, node, axis) for axis in self.axes}
        if self.cp in BALANCED and isinstance(node.attrs, AttentionAttrs):
            queries = answers[CP].inputs[has(node, Trait.BACKWARD)]
            node = replace(node, attrs=replace(node.attrs, balanced=queries == Shard(2)))
        within = [axis for axis in self.axes if axis not in SAMPLE_AXES]
        self.notes += gather_notes(b.old, node, ([self._seen(b, i, axis) for axis in within] for i in node.inputs))
        needs = tuple({a: answers[a].inputs[i] for a in self.axes} for i in range(len(node.inputs)))
        if self.cp == "ring" and isinstance(node.attrs, AttentionAttrs):
            keys = slice(2, 4) if has(node, Trait.BACKWARD) else slice(1, 3)
            b.ring_gather(node.inputs[keys], needs[keys], node)
        gives = tuple({a: answers[a].outputs[i] for a in self.axes} for i in range(len(node.outputs)))
        b.add_node(node, needs, gives)
        self.own.settle(b, node)
        self._force(b, node)

    def _with_all_tokens(self, b: RegionBuilder, node: Node, attrs: RoutedAttrs) -> Node:
        """Tokens, ids and routing weights are gathered in one message, in front of the dispatch."""
        if EP in self.all_tokens and has(node, Trait.DISPATCHES, backward=False):
            readers = (n for n in b.old.users[node.inputs[1]] if has(n, Trait.COMBINES, backward=False))
            weights = (i for n in readers for i in n.inputs[1:2])
            b.gather_together((*node.inputs, *weights), EP, node)
        return replace(node, attrs=replace(attrs, own=group_axes(tuple(a for a in (TP, EP) if a in self.own_rows))))

    def _ask(self, b: RegionBuilder, node: Node, axis: MeshAxis) -> Answer:
        of_forward = b.asked.get(node.forward, ()) if node.forward is not None else ()
        given = tuple(self._seen(b, i, axis, node) for i in node.inputs)
        forward = tuple(p[axis] for p in of_forward)
        key = (self.asks, b.old.name, node.key, axis, given, forward)
        if key not in self.facts.answers:
            ask = Ask(
                axis, call_of(b.old, node), given,
                is_param=tuple(weight_behind(b.old, i) is not None for i in node.inputs),
                reduced=tuple(self._reduced(b, i, axis) for i in node.inputs),
                phase=Phase.FORWARD if node.phase.is_forward_work else node.phase, forward=forward,
                cp="ulysses" if axis == UP else self.cp,
                own_tokens=b.old.name in self.own_tokens, all_tokens=axis in self.all_tokens,
                cut_again=has(node, Trait.TAKES_RANGE) and is_cut_apart(b.old, node),
                on_all=b.on_all(node) if axis == TP else (), stacked=axis == TP and b.cuts.stacked(b.old, node, given),
            )  # fmt: skip
            self.facts.answers[key] = answer_of(node, ask, self.replicate_unknown)
        return self.facts.answers[key]

    def _seen(self, b: RegionBuilder, value: int, axis: MeshAxis, node: Node | None = None) -> Placement:
        """What a rule sees: a parameter that ZeRO keeps in shards counts as whole, for it is gathered to be used.

        A backward node sees the shard that its forward node took of a whole value: that is what autograd has kept.
        """
        v = b.old.by_id[value]
        if v.role is Role.PARAM and axis in self._same_over(self._is_dealt(b.old, v)):
            return REPLICATE
        have = b.where[b.now[value]][axis]
        taken = b.taken(value, node.forward, axis) if node is not None else None
        return taken if taken is not None and have == REPLICATE else have

    def _is_dealt(self, region: Region, v: Value) -> bool:
        """Whether each rank of `ep` has its own part of a parameter: experts, or columns of tables."""
        return is_expert(region, v) or (self.tables and is_table(region, v))

    def _same_over(self, expert: bool) -> tuple[MeshAxis, ...]:
        """The axes over which a parameter is the same: for experts without `ep`, but `tp` where each rank has all."""
        if not expert:
            return self.home, UP, CP, EP
        return (self.home, UP, CP) if self.etp or self.ep else (self.home, UP, CP, TP)

    def _reduced(self, b: RegionBuilder, value: int, axis: MeshAxis) -> Placement:
        """Where a partial sum goes: over `tp` with sequence parallelism, into shards of the sequence."""
        dims = b.old.by_id[value].type.dims
        if not self.sp or axis != TP or len(dims) != 3:
            return REPLICATE
        return Shard(1) if self.own.is_length(dims[1]) else REPLICATE

    def _force(self, b: RegionBuilder, node: Node) -> None:
        """Apply what the plan says of a layer's result; embeddings and the loss are never left partial over `tp`."""
        out = node.outputs[0]
        have = b.where[b.now[out]]
        if gathers_output(b.old, node, self.plan):
            b.gathered[node.key] = have.get(TP, REPLICATE)
            b.settle(out, {**have, TP: REPLICATE}, node)
        elif node.phase is Phase.BACKWARD and splits_input(b.old, node, self.plan):
            b.settle(out, {**have, TP: REPLICATE}, node)
        elif reduces_output(b.old, node, self.plan) and isinstance(have.get(TP), Partial):
            b.settle(out, {**have, TP: self._reduced(b, out, TP)}, node)
        elif reduces_input_grad(b.old, node, self.plan):
            for grad in node.outputs[: 2 if has(node, Trait.ROUTES) else 1]:
                b.settle(grad, {**b.where[b.now[grad]], TP: REPLICATE}, node)
        elif has(node, Trait.COMBINES, backward=False) and EP in self.all_tokens:
            b.settle(out, {**have, EP: Shard(0)}, node)
        elif has(node, Trait.READS_TABLE) or (self.tables and gives_rows(b.old, node)):
            rows = {EP: Shard(0)} if self.tables and gives_rows(b.old, node) else {}
            sums = {TP: self._reduced(b, out, TP)} if isinstance(have.get(TP), Partial) else {}
            b.settle(out, {**have, **sums, **rows}, node)
        elif has(node, Trait.ATTENDS, OpClass.SCAN) and self.cp != "none":
            back_to_sequence(b, node, self.axes, self.cp == "ring")
        elif has(node, OpClass.LOSS, backward=False):
            statistics = node.outputs[1]
            b.settle(statistics, {**b.where[b.now[statistics]], TP: REPLICATE}, node)

    def _scatter_gradient(self, b: RegionBuilder, node: Node) -> None:
        """Each rank takes its shard of a gathered result's gradient; that of a bag's sum goes back to the table."""
        if self.tables and enters_bag(b.old, node):
            columns = Shard(b.old.by_id[node.inputs[0]].type.rank - 1)
            b.settle(node.inputs[0], {**b.where[b.now[node.inputs[0]]], EP: columns}, node)
        before = b.gathered.get(node.forward) if node.forward is not None else None
        if before is None or node.forward is None or node.phase.is_forward_work:
            return
        dims = b.old.by_id[node.forward].type.dims
        for i in node.inputs:
            source = b.old.producer.get(i)
            later = source is not None and source.phase is not Phase.FORWARD
            if later and b.old.by_id[i].type.dims == dims:
                b.settle(i, {**b.where[b.now[i]], TP: before}, node)

    def _export(self, b: RegionBuilder, forward: bool) -> None:
        """What leaves a region is whole or sharded, but for a loss, and alike wherever a port of that name is made."""
        for port in b.old.outputs:
            node = b.old.producer.get(port.value)
            if port.value not in b.now or (node is not None and (node.phase is Phase.FORWARD) != forward):
                continue
            user = node or Node("output", (), (port.value,))
            if port.name not in self.ports:
                # Activations leave whole or sharded; the gradient of what is made of parameters is reduced once a
                # step.
                value = port.value
                have = b.where[b.now[value]]
                source, dims = b.old.producer.get(value), b.old.by_id[value].type.dims
                later = source is not None and source.phase is not Phase.FORWARD
                kept = self.axes if all(isinstance(d, int) for d in dims) else SAMPLE_AXES
                sums = [a for a, p in have.items() if isinstance(p, Partial) and not (later and a in kept)]
                self.ports[port.name] = {**have, **{a: self._reduced(b, value, a) for a in sums}}
            if not port.name.startswith("result") or b.old.by_id[port.value].type.dims:
                b.settle(port.value, self.ports[port.name], user)

    def _finish(self, b: RegionBuilder) -> Region:
        for param, grad in b.old.grads:
            self._reduce_gradient(b, param, grad)
        return b.finish(b.old.outputs, b.old.grads)

    def _reduce_gradient(self, b: RegionBuilder, param: int, grad: int) -> None:
        """A gradient ends where its parameter lies, under ZeRO in a shard of that; what that takes runs once a step."""
        user = replace(b.old.producer[grad], phase=Phase.REDUCE)
        wanted = {**b.where[b.now[param]], **self._gradient_at_rest(b, param, grad, only_data=True)}
        kept = b.dtype(grad)
        if not self.scatters_early and self._has_tail(b, param):
            b.sum_copies(param, grad, user)
        self._reduce(b, grad, wanted, user)
        if not self._has_tail(b, param):
            b.sum_copies(param, grad, user)
        b.cast(grad, kept, user)

    def _has_tail(self, b: RegionBuilder, param: int) -> bool:
        """Whether a parameter ends in copied heads: a shard of its gradient would not know which rows are theirs."""
        lies = b.where[b.now[param]].get(TP)
        return isinstance(lies, Shard) and b.cuts.tail((param, lies.dim)) != 0

    def _reduce(self, b: RegionBuilder, grad: int, wanted: Placements, user: Node) -> None:
        """Bring a gradient where it is wanted, in the type in which gradients are reduced."""
        if self.reduced is not None and not b.lies(grad, wanted):
            b.cast(grad, self.reduced, user)
        b.settle(grad, wanted, user)

    def _gradient_at_rest(
        self, b: RegionBuilder, param: int, grad: int, only_data: bool = False
    ) -> dict[MeshAxis, Placement]:
        """Where ZeRO keeps a gradient: sharded over every data axis over which its parameter is the same.

        The gradient of one number is whole everywhere.
        """
        same = self._same_over(self._is_dealt(b.old, b.old.by_id[param]))
        axes = [a for a in self.axes if a in same] if self.zero and b.old.by_id[param].type.dims else []
        shards: dict[MeshAxis, Placement] = dict.fromkeys(axes, Shard(0))
        return shards if only_data else {**b.where[b.now[grad]], **shards}
