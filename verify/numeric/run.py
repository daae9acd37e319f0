"""A lowered graph run on simulated ranks: forward through the schedule, backward in reverse, then reductions.

Every rank of the mesh runs each node on its own part, in float64; collectives see the parts of all ranks. Behind the
forward phase only what the graph marks as kept is still there, so a backward phase that reads anything else is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

import torch
from torch import Tensor

from ...ir.graph import Graph, Node, Phase, Region, Role, Value, Workload
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.fused.routing import RoutedAttrs
from ...ir.ops.tensors.normalize import DimAttrs
from ...ir.placement import Partial, Replicate, group_axes
from ...ir.records import dataclass
from ...ir.units import is_digits
from .axes import Where, axes_of
from .call import LayoutMismatchError, Local, LocalDim, NotComputedError, RankCall
from .layout import LocalSizes, is_source, put_back, scattered
from .ops.attention import loss_of
from .ops.plain import run_recorded
from .ops.table import HELD, REFERENCES, Here
from .stages import RankExchange, StagePorts, converted, joined

_EARLY = (Phase.PREPARE, Phase.FORWARD)
_LATER = (Phase.RECOMPUTE, Phase.BACKWARD)
# Two ways of adding up the same numbers in float64 differ by less, four orders of magnitude above rounding.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Results:
    """What a run left: results by port name, gradients by parameter, how many nodes every rank ran."""

    results: Mapping[str, Tensor]
    grads: Mapping[str, Tensor]
    num_nodes: int


@dataclass
class Instance:
    """One round of a region: which layer it is, and what every rank holds of each value so far.

    `layer` counts over all layers, `members` over those of one list: by what stands before the star of a name.
    """

    region: Region
    layer: int
    stage: int = 0
    members: Mapping[str, int] = field(default_factory=dict)
    held: dict[int, list[Local]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)

    def name(self, value: Value) -> str:
        """Return the name of a parameter or input in this layer."""
        return value.name.replace("*", str(self.members.get(value.name.partition("*")[0], self.layer)))


class Runner:
    """The state of one run."""

    def __init__(
        self, layout: LocalSizes, state: Mapping[str, Tensor], inputs: Mapping[str, Tensor], num_stages: int = 1
    ) -> None:
        """Know the graph with its sizes, parameters and buffers by name, inputs by name, and how many stages."""
        self.layout, self.state, self.inputs = layout, state, inputs
        self.mesh = layout.mesh
        self.num_nodes = 0
        self.ports = StagePorts(layout, num_stages)
        self.logits: dict[str, Tensor] = {}
        self.constants = {name: torch.tensor(given) for name, given in layout.graph.constants}
        self._experts: dict[tuple[str, int], Tensor] = {}

    def run(self) -> Results:
        """Run everything but the optimizer, which changes no number that is compared."""
        graph = self.layout.graph
        rounds = self.rounds(graph)
        for each in rounds:
            self.forward(each)
        for each in reversed(rounds):
            self._import(each, Phase.BACKWARD)
            self._phase(each, _LATER)
            self._export(each, _LATER)
        grads: dict[str, Tensor] = {}
        stages: dict[str, set[int]] = {}
        for each in rounds:
            self._phase(each, (Phase.REDUCE,))
            for param, grad in each.region.grads:
                name = each.name(each.region.by_id[param])
                found = self.rebuilt(each.region, grad, each.held[grad])
                grads[name] = grads[name] + found if name in grads else found
                stages.setdefault(name, set()).add(each.stage)
        self.ports.check_shared(stages)
        return Results({**dict(self._results(rounds)), **self.logits}, grads, self.num_nodes)

    def rounds(self, graph: Graph) -> list[Instance]:
        """Return the regions in running order; layers are counted over all that repeat or that are numbered."""
        found: list[Instance] = []
        layer, members = 0, Counter[str]()
        names = list(graph.sequence())
        for place, name in enumerate(names):
            region = graph.region(name)
            lists = {v.name.partition("*")[0] for v in region.values if "*" in v.name}
            numbers = {name: self._number(name, members[name]) for name in lists}
            found.append(Instance(region, layer, self.ports.stage(place), numbers))
            layer += bool(lists)
            members.update(lists)
        return found

    def _number(self, name: str, member: int) -> int:
        """Return the number of the n-th part of a list that has weights: an activation between two has none."""
        rest = (n.removeprefix(name).partition(".")[0] for n in self.state if n.startswith(name))
        numbers = sorted({int(n) for n in rest if is_digits(n)})
        return numbers[member] if member < len(numbers) else member

    def _results(self, rounds: Sequence[Instance]) -> Iterator[tuple[str, Tensor]]:
        # A loss is summed with its gradients; what an inference step returns must be whole.
        is_whole = self.layout.graph.workload is not Workload.TRAIN
        for each in rounds:
            for port in each.region.outputs:
                if port.name.startswith("result") and port.value in each.held:
                    summed = [axis for axis, p in each.region.by_id[port.value].placements if isinstance(p, Partial)]
                    if is_whole and summed:
                        raise LayoutMismatchError(f"{port.name} %{port.value} is left as a partial sum over {summed}")
                    yield port.name, self.rebuilt(each.region, port.value, each.held[port.value])

    def forward(self, each: Instance) -> None:
        """Run the forward phase of one round, and forget what is not kept."""
        for v in each.region.values:
            if is_source(v):
                each.held[v.id] = self._source(each, v)
        self._import(each, Phase.FORWARD)
        self._phase(each, _EARLY)
        self._export(each, _EARLY)
        # A copy of a result for those who ask; the rest is given back as an allocator would.
        kept = {v.storage for v in each.region.values if v.saved}
        results = {p.value for p in each.region.outputs if p.name.startswith("result")}
        prepared = {o for n in each.region.nodes if n.phase is Phase.PREPARE for o in n.outputs}
        each.held = {
            i: h
            for i, h in each.held.items()
            if is_source(v := each.region.by_id[i]) or v.storage in kept or i in results or i in prepared
        }

    def _import(self, each: Instance, phase: Phase) -> None:
        """Take what other regions have handed on; what was there in the forward phase must have been kept from it."""
        for v in each.region.of_role(Role.PORT):
            if v.id in each.held or v.id in each.taken:
                continue
            if (found := self.ports.get(each.region, v.name, each.stage, phase)) is not None:
                each.held[v.id] = found
                each.taken.add(v.id)

    def _export(self, each: Instance, phases: Sequence[Phase]) -> None:
        for port in each.region.outputs:
            node = each.region.producer.get(port.value)
            phase = node.phase if node is not None else Phase.FORWARD
            is_made = node is not None or is_source(each.region.by_id[port.value])
            if is_made and phase in phases and not port.name.startswith("result"):
                self.ports.put(port.name, each.held[port.value], each.stage)

    def whole(self, each: Instance, v: Value) -> Tensor | None:
        """Return the module's tensor, or the given one, of the name that a parameter or input has in this round."""
        name = each.name(v)
        found = self.inputs.get(name, self.state.get(name, self.constants.get(name)))
        # A graph has complex numbers as pairs of real ones, side by side in a last dim.
        return torch.view_as_real(found) if found is not None and found.is_complex() else found

    def _source(self, each: Instance, v: Value) -> list[Local]:
        name, whole = each.name(v), self.whole(each, v)
        if whole is None:
            raise NotComputedError(f"{v.role} '{name}' is nothing that the module names")
        found: list[Local] = []
        for place in self.mesh.ranks:
            axes = self.layout.own(each.region, v, place)
            if tuple(a.size for a in axes) != tuple(whole.shape):
                raise NotComputedError(f"'{name}' is {list(whole.shape)} in the module, {v.type} in the graph")
            found.append(Local(scattered(whole, axes), axes))
        return found

    def _phase(self, each: Instance, phases: Sequence[Phase]) -> None:
        for node in each.region.nodes:
            if node.phase in phases:
                self.node(each, node)

    def node(self, each: Instance, node: Node) -> None:
        """Run one node on every rank."""
        missing = [i for i in node.inputs if i not in each.held]
        if missing:
            told = ", ".join(f"%{i}" for i in missing)
            place = f"'{node.op}' at '{node.scope or 'the top'}' ({each.region.name}, {node.phase})"
            raise LayoutMismatchError(f"{place} reads {told}, which is not kept")
        given = [each.held[i] for i in node.inputs]
        self.num_nodes += 1
        if isinstance(node.attrs, CollectiveAttrs):
            made = RankExchange(self.layout, each.region, node, partial(self.experts, each.region)).run(given)
        elif has(node, Trait.RENAMES) or (has(node, Trait.TAKES_RANGE) and node.meaning is None):
            exchange = RankExchange(self.layout, each.region, node, partial(self.experts, each.region))
            made = [converted(exchange, g, o) for g, o in zip(given, node.outputs, strict=True)]
        else:
            made = self._alone(each, node, given)
        if has(node, OpClass.LOSS, backward=False):
            self.logits["logits"] = self._logits(each, node.inputs[0])
        for out, parts in zip(node.outputs, made, strict=True):
            self._check(each.region, node, out, parts)
            each.held[out] = parts

    def _logits(self, each: Instance, value: int) -> Tensor:
        """What the loss is made of, in front of a softmax that is a step of its own."""
        node = each.region.producer.get(value)
        value = node.inputs[0] if node is not None and has(node, Trait.SOFTMAX, backward=False) else value
        return self.rebuilt(each.region, value, each.held[value])

    def _alone(self, each: Instance, node: Node, given: Sequence[Sequence[Local]]) -> list[list[Local]]:
        """Run a node on each rank by itself; the loss of a part of the vocabulary is put together."""
        said = "" if node.meaning is None else node.meaning.steps[0].operator
        if "attention" in said and has(node, Trait.SOFTMAX, backward=False):
            raise NotComputedError(
                "attention taken apart has neither scale nor mask in the graph: its cost alone is there"
            )
        if has(node, Trait.SOFTMAX) and (over := self._cut_along(each.region, node)):
            return [self._together(each.region, node, given, over)]
        made = [self._on(each.region, node, rank, [g[rank] for g in given]) for rank in range(len(self.mesh.ranks))]
        by_output = [list(parts) for parts in zip(*made, strict=True)]
        logits = each.region.by_id[node.inputs[0]] if has(node, OpClass.LOSS, backward=False) else None
        if logits is not None and (over := self.layout.cutting(logits, logits.type.rank - 1)):
            for group in self.mesh.groups(group_axes(tuple(over))):
                whole = torch.stack([by_output[1][r].tensor for r in group]).sum(0)
                for r in group:
                    call = self._call(each.region, node, r, [g[r] for g in given], [(), ()])
                    by_output[0][r] = Local(loss_of(call, whole, given[1][r].tensor), ())
        return by_output

    def _cut_along(self, region: Region, node: Node) -> list[str]:
        """The axes that cut the dim along which a softmax runs: kernels exchange its maxima and sums themselves."""
        assert isinstance(node.attrs, DimAttrs)
        return self.layout.cutting(region.by_id[node.inputs[0]], node.attrs.dim)

    def _together(
        self, region: Region, node: Node, given: Sequence[Sequence[Local]], over: Sequence[str]
    ) -> list[Local]:
        """Run a softmax on whole rows, of which every rank keeps its part."""
        assert isinstance(node.attrs, DimAttrs)
        dim, made = node.attrs.dim, dict[int, Local]()
        for group in self.mesh.groups(group_axes(tuple(over))):
            whole = [joined([g[r] for r in group], dim) for g in given]
            axes = [whole[0].axes if whole[0] is not None else ()]
            call = self._call(region, node, group[0], [w for w in whole if w is not None], axes)
            (result,) = REFERENCES[node.op](call)
            for r in group:
                held = given[0][r].axes[dim].held
                made[r] = Local(result.index_select(dim, held), given[0][r].axes)
        return [made[r] for r in range(len(self.mesh.ranks))]

    def _call(
        self, region: Region, node: Node, rank: int, given: Sequence[Local], axes: Sequence[Sequence[LocalDim]]
    ) -> RankCall:
        sources, results = ([region.by_id[i] for i in ids] for ids in (node.inputs, node.outputs))
        held = None
        if has(node, OpClass.ATTENTION):
            query = given[1 if has(node, Trait.BACKWARD) else 0]
            held = query.axes[2].index
        return RankCall(
            node,
            tuple(g.tensor for g in given),
            tuple(tuple(a.length for a in out) for out in axes),
            self.mesh.ranks[rank],
            self.mesh.degrees,
            tuple(sources),
            tuple(results),
            held,
            self.layout.sizes,
        )

    def _on(self, region: Region, node: Node, rank: int, given: Sequence[Local]) -> list[Local]:
        where = Where(self.layout, region, node, self.mesh.ranks[rank])
        if (act := HELD.get(node.op)) is not None:
            over = node.attrs.own.axes if isinstance(node.attrs, RoutedAttrs) else ()
            call, experts = self._call(region, node, rank, given, []), self.experts(region, rank, over)
            return act(Here(where, call, rank, experts), given)
        reference = REFERENCES.get(node.op, run_recorded)
        axes = axes_of(where, given)
        try:
            made = reference(self._call(region, node, rank, given, axes))
        except (RuntimeError, IndexError, TypeError) as error:
            raise where.refused(f"{error}") from error
        return [Local(t, a) for t, a in zip(made, axes, strict=True)]

    def experts(self, region: Region, rank: int, over: Sequence[str] = ()) -> Tensor:
        """Return the experts whose rows a rank takes: those that its part of a bank holds.

        With axes, those of all ranks at its place on these: what then goes on over another axis, an exchange brings to
        the rank that holds the expert.
        """
        ranks = self.mesh.ranks
        if over:
            near = (r for r, place in enumerate(ranks) if all(place.get(a) == ranks[rank].get(a) for a in over))
            return torch.cat([self.experts(region, r) for r in near])
        key = region.name, rank
        if key not in self._experts:
            banks = (n for n in region.nodes if has(n, Trait.BANK, backward=False))
            first = next((n.inputs[1] for n in banks), None)
            self._experts[key] = torch.zeros(0, dtype=torch.int64)
            if first is not None:
                v, place = region.by_id[first], self.mesh.ranks[rank]
                self._experts[key] = self.layout.own(region, v, place)[0].held
        return self._experts[key]

    def _check(self, region: Region, node: Node, out: int, parts: Sequence[Local]) -> None:
        """Ranks that hold the same must hold equal numbers, and tensors have the size of what they hold."""
        value = region.by_id[out]
        place = f"'{node.op}' at '{node.scope or 'the top'}' ({region.name}, {node.phase}), result %{out} {value.type}"
        same = [a for a, p in value.placements if isinstance(p, Replicate)]
        first: dict[tuple[int, ...], Local] = {}
        for rank, part in zip(self.mesh.ranks, parts, strict=True):
            if part.rows is None and tuple(part.tensor.shape) != tuple(a.length for a in part.axes):
                shape = list(part.tensor.shape)
                raise LayoutMismatchError(f"{place}: is {shape}, holds {[a.length for a in part.axes]}")
            key = tuple(p for a, p in rank.items() if a not in same)
            other = first.setdefault(key, part)
            if other is not part and not _equal(other, part):
                raise LayoutMismatchError(f"{place}: differs between ranks that should hold the same over {same}")

    def rebuilt(self, region: Region, value: int, parts: Sequence[Local]) -> Tensor:
        """Return the whole tensor: parts in their places, partial sums added up."""
        v = region.by_id[value]
        summed = [a for a, p in v.placements if isinstance(p, Partial)]
        sizes = [a.size for a in parts[0].axes]
        total = torch.zeros(sizes, dtype=parts[0].tensor.dtype)
        groups: dict[tuple[int, ...], list[Local]] = {}
        for rank, part in zip(self.mesh.ranks, parts, strict=True):
            groups.setdefault(tuple(rank[a] for a in summed if a in rank), []).append(part)
        for group in groups.values():
            whole = torch.full(sizes, float("nan"), dtype=torch.float64)
            for part in group:
                put_back(whole, part.tensor.double(), part.axes)
            total = total + whole
        if bool(total.isnan().any()) and not any(bool(p.tensor.isnan().any()) for p in parts):
            raise LayoutMismatchError(f"{region.name}: no rank holds some entries of %{value} {v.type}")
        return total


def _equal(a: Local, b: Local) -> bool:
    if a.tensor.shape != b.tensor.shape or any(not x.same(y) for x, y in zip(a.axes, b.axes, strict=True)):
        return False
    if not a.tensor.is_floating_point():
        return torch.equal(a.tensor, b.tensor)
    return torch.allclose(a.tensor, b.tensor, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
