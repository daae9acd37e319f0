"""A tensor-parallel plan for a model that nobody annotated: found by sharding the graph in every way that matters.

Each matrix is split by columns, by rows, or kept whole. Matrices that read the same value are tried together (q, k and
v; gate and up), and a region is cut into branches where a single value is alive, which every plan has whole on each
rank there (the residual stream). Inside a branch the search is exhaustive; then each matrix is tried on its own.
Each region is searched by itself, between whole activations, and a branch like one before is split as that was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product

from ....ir.errors import PlanError
from ....ir.graph import Graph, Node, Phase, Region, Role, Run
from ....ir.ops import OpClass, Trait, call_of, has, work_of
from ....ir.ops.collectives import CollectiveAttrs, message_bytes
from ....ir.ops.tensors.layout import SliceAttrs
from ....ir.placement import DP, TP, MeshAxis, Placement
from ....ir.records import dataclass
from ....ir.sizes.expr import Dim, Expr, as_expr
from ....ir.units import is_digits
from ..facts import GraphFacts
from .plans import MADE_PLANS, Style, TpPlan

AUTO = "auto"
# What is as dear as one byte between ranks: FLOPs and bytes of memory of an H100 in the time of one NVLink byte
# (989 TFLOP/s, 3350 GB/s and 450 GB/s of its data sheet).
FLOPS_A_BYTE, MEMORY_BYTES_A_BYTE = 2200.0, 7.4
# An optimizer step reads and writes about 28 bytes for each 2-byte weight (fp32 master, two moments, gradient); eight
# micro-batches share one. In inference the same amount stands for the memory that a whole weight takes.
OPTIMIZER_BYTES_A_BYTE = 14.0 / 8
TOKENS, SMALLEST_DEGREE = 4096, 2
# A branch with more combinations is searched neighbour by neighbour: what one cuts by columns the next cuts by rows.
MOST_COMBINATIONS, NEIGHBOURS = 81, 2
# Nodes that a search shards, all its trials together: half a minute. What it has not come to then stays whole.
MOST_NODES = 1 << 17

Ports = Mapping[str, Mapping[MeshAxis, Placement]]
Styles = dict[str, Style]
# What shards a graph by a plan; ports that no region of it makes lie as said, and its facts over `dp` are kept.
Lower = Callable[[Graph, TpPlan, Ports | None, GraphFacts | None], Graph]


def is_auto(name: str) -> bool:
    """Whether a plan's name asks for a search: `auto`, or `auto:8` for one that must hold at a degree of 8."""
    return name.partition(":")[0] == AUTO


def degree_of(name: str) -> int:
    """Return the degree at which a plan must be legal; PlanError when it is no number above 1."""
    given = name.partition(":")[2] or str(SMALLEST_DEGREE)
    if not is_digits(given) or int(given) < 1:
        raise PlanError(f"'{name}': behind auto: stands the tensor-parallel degree, a number; allowed: auto, auto:8")
    return max(int(given), SMALLEST_DEGREE)


def find_plan(graph: Graph, degree: int, lower: Lower) -> TpPlan:
    """Return the plan of least cost at a degree; equal costs go to columns before rows before whole."""
    facts = GraphFacts.of(graph, (DP,))
    whole = lower(graph, TpPlan(AUTO, ()), None, facts)
    ports = {v.name: dict(v.placements) for r in whole.regions for v in r.of_role(Role.PORT)}
    types = (v.type.dims for r in graph.regions for v in r.values)
    sizes = frozenset(s for dims in types for d in dims if isinstance(d, Expr) for s in d.symbols)
    search, seen = _Search(graph, facts, ports, degree, lower, sizes), set[str]()
    for name in graph.sequence_once():
        # One region of a graph, and those that read a parameter of it; activations enter and leave it whole.
        names = {v.name for v in graph.region(name).of_role(Role.PARAM)}
        kept = [r for r in graph.regions if r.name == name or any(v.name in names for v in r.of_role(Role.PARAM))]
        runs = tuple(Run((r.name,), graph.counts[r.name]) for r in kept)
        search.graph = replace(graph, regions=tuple(kept), schedule=runs)
        # What must be cut evenly the whole graph says: a dim may go on in a region that is not looked at.
        local = replace(facts.graph, regions=tuple(facts.graph.region(r.name) for r in kept), schedule=runs)
        search.facts = replace(facts, graph=local)
        for branch in _branches(graph.region(name), seen):
            search.branch(branch)
    note = _STOPPED if search.nodes > MOST_NODES else ""
    return TpPlan(AUTO, tuple(search.styles.items()), doc=MADE_PLANS[AUTO], note=note)


_STOPPED = (
    "the search for a tensor-parallel plan stopped in a model of many unlike layers: matrices it did not come to are "
    "whole on each rank"
)


@dataclass(frozen=True, slots=True)
class Layer:
    """The parameters of one product, and the ways to split them: a style for each."""

    names: tuple[str, ...]
    options: tuple[tuple[Style, ...], ...]


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that are split alike."""

    layers: tuple[Layer, ...]

    @property
    def choices(self) -> list[Styles]:
        """What the parameters can be, together."""
        ways = zip(*(layer.options for layer in self.layers), strict=True)
        return [
            {n: s for layer, way in zip(self.layers, taken, strict=True) for n, s in zip(layer.names, way, strict=True)}
            for taken in ways
        ]


@dataclass(frozen=True, slots=True)
class Branch:
    """The groups between two places where one value is alive; branches of equal `looks` are split alike."""

    groups: tuple[LayerGroup, ...]
    looks: tuple[object, ...]

    @property
    def names(self) -> list[str]:
        """The parameters, in the order of the branch."""
        return [n for group in self.groups for layer in group.layers for n in layer.names]


@dataclass
class _Search:
    """The best styles so far; what is not named is whole."""

    graph: Graph
    facts: GraphFacts
    ports: Ports
    degree: int
    lower: Lower
    sizes: frozenset[str]
    styles: Styles = field(default_factory=dict)
    known: dict[tuple[object, ...], float] = field(default_factory=dict)
    costs: dict[tuple[tuple[str, ...], frozenset[tuple[str, Style]]], float] = field(default_factory=dict)
    branches: dict[tuple[object, ...], list[Style | None]] = field(default_factory=dict)
    nodes: int = 0

    def branch(self, branch: Branch) -> None:
        """Search a branch, or split it as one that looks the same; shared parameters are looked at everywhere."""
        alone = len(self.graph.regions) == 1
        if alone and branch.looks in self.branches:
            styles = zip(branch.names, self.branches[branch.looks], strict=True)
            self.styles |= {name: style for name, style in styles if style is not None}
            return
        for few in _together(branch.groups):
            self.try_groups(few)
        for layer in (layer for group in branch.groups for layer in group.layers):
            self.try_groups([LayerGroup((layer,))])
        if alone:
            self.branches[branch.looks] = [self.styles.get(name) for name in branch.names]

    def try_groups(self, groups: Sequence[LayerGroup]) -> None:
        """Keep the best of all combinations of what these groups can be."""
        if self.nodes > MOST_NODES:
            return
        best, kept = self.cost(self.styles), self.styles
        for choice in product(*(g.choices for g in groups)):
            styles = dict(self.styles)
            for part in choice:
                styles |= part
            cost = self.cost(styles) if styles != self.styles else best
            if cost < best * (1 - 1e-9):
                best, kept = cost, styles
        self.styles = kept

    def cost(self, styles: Styles) -> float:
        """What a micro-batch and an optimizer step cost one rank, in bytes between ranks; infinite when not legal."""
        self.nodes += sum(len(r.nodes) for r in self.graph.regions)
        names = {v.name for r in self.graph.regions for v in r.of_role(Role.PARAM)}
        key = (tuple(r.name for r in self.graph.regions), frozenset((n, s) for n, s in styles.items() if n in names))
        if key not in self.costs:
            self.costs[key] = self._cost(styles)
        return self.costs[key]

    def _cost(self, styles: Styles) -> float:
        lowered = self.lower(self.graph, TpPlan(AUTO, tuple(styles.items())), self.ports, self.facts)
        length = float(min(self.graph.max_positions or TOKENS, TOKENS))
        env = {**dict.fromkeys(self.sizes, length), "mbs": 1.0, DP: 1.0, TP: float(self.degree)}
        if any(_number(c.dim, env) % self.degree for c in lowered.constraints if c.axes == (TP,)):
            return math.inf
        return sum(self._region_cost(r, env) * lowered.counts[r.name] for r in lowered.regions)

    def _region_cost(self, region: Region, env: Mapping[str, float]) -> float:
        weights = sum(_number(v.type.num_bytes, env) for v in region.of_role(Role.PARAM))
        nodes = (n for n in region.nodes if n.phase in (Phase.FORWARD, Phase.BACKWARD))
        return sum(self._node_cost(region, n, env) for n in nodes) + weights * (
            OPTIMIZER_BYTES_A_BYTE / MEMORY_BYTES_A_BYTE
        )

    def _node_cost(self, region: Region, node: Node, env: Mapping[str, float]) -> float:
        """The same op on the same types costs the same under every plan, so it is worked out once."""
        key = (node.op, node.attrs, region.types(node.inputs), region.types(node.outputs))
        if key not in self.known:
            self.known[key] = self._worked_out(region, node, env)
        return self.known[key]

    def _worked_out(self, region: Region, node: Node, env: Mapping[str, float]) -> float:
        if isinstance(node.attrs, CollectiveAttrs):
            passes = 2 if has(node, Trait.SUMS_EVERYWHERE) else 1
            share = (self.degree - 1) / self.degree if node.attrs.axes == (TP,) else 0.0
            return passes * share * _number(message_bytes(call_of(region, node)), env)
        work = work_of(region, node)
        moved = _number(work.read_bytes, env) + _number(work.write_bytes, env)
        return _number(work.tensor_flops, env) / FLOPS_A_BYTE + moved / MEMORY_BYTES_A_BYTE


def _number(dim: Dim, env: Mapping[str, float]) -> float:
    return float(as_expr(dim).evaluate(env))


def _together(groups: Sequence[LayerGroup]) -> Iterator[Sequence[LayerGroup]]:
    """A branch, or where it has too many combinations, each group with the next."""
    if math.prod(len(g.choices) for g in groups) <= MOST_COMBINATIONS:
        yield groups
    else:
        yield from (groups[k : k + NEIGHBOURS] for k in range(len(groups) - NEIGHBOURS + 1))


def _branches(region: Region, seen: set[str]) -> Iterator[Branch]:
    """The branches of a region with something to split, in the order in which they run; a shared matrix counts once."""
    for nodes in _cut(region):
        groups = tuple(_groups(region, nodes, seen))
        if groups:
            ways = tuple(layer.options for group in groups for layer in group.layers)
            calls = tuple((n.op, n.attrs, region.types(n.inputs), region.types(n.outputs)) for n in nodes)
            yield Branch(groups, (calls, ways))


def _cut(region: Region) -> Iterator[list[Node]]:
    """Cut the forward phase wherever only one activation is still needed; tables that no weight shaped do not count."""
    nodes = [n for n in region.nodes if n.phase is Phase.FORWARD]
    last = {_root(region, i): k for k, n in enumerate(nodes) for i in n.inputs}
    shaped = {v.id for v in region.of_role(Role.PARAM, Role.PORT)}
    alive = {v.id for v in region.of_role(Role.PORT) if v.id in last}
    stretch: list[Node] = []
    for k, node in enumerate(nodes):
        stretch.append(node)
        if shaped & {_root(region, i) for i in node.inputs}:
            made = {_root(region, o) for o in node.outputs}
            shaped, alive = shaped | made, alive | made
        alive = {v for v in alive if last.get(v, -1) > k}
        if len(alive) <= 1:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _root(region: Region, value: int) -> int:
    """What a view looks at: views are the same value here."""
    return region.by_id[value].storage


def _groups(region: Region, nodes: Sequence[Node], seen: set[str]) -> Iterator[LayerGroup]:
    """Layers of the same op and options that read the same value."""
    together: dict[object, list[Layer]] = {}
    for node in nodes:
        names = tuple(region.by_id[i].name for i in node.inputs if region.by_id[i].role is Role.PARAM)
        styles = _options(region, node)
        read = next((_root(region, i) for i in node.inputs if region.by_id[i].role is not Role.PARAM), None)
        # A product of two weights reads no activation: it is no layer.
        if not names or not styles or seen.issuperset(names) or read is None:
            continue
        together.setdefault((node.op, styles, read), []).append(Layer(names, _each(node, styles, len(names))))
        seen.update(names)
    yield from (LayerGroup(tuple(layers)) for layers in together.values())


def _options(region: Region, node: Node) -> tuple[Style, ...]:
    if has(node, Trait.READS_TABLE):
        return (Style.EMBEDDING, Style.REPLICATE)
    if has(node, Trait.HOLDS_EXPERTS, backward=False):
        return (Style.PACKED_COLWISE, Style.REPLICATE)
    if not has(node, OpClass.MATMUL):
        return ()
    if _is_cut_apart(region, node.key):
        return (Style.PACKED_COLWISE, Style.ROWWISE, Style.REPLICATE)
    # A result that is seen as [.., parts, heads, dim]: q, k and v may lie side by side in it, or head by head.
    rank = region.by_id[node.key].type.rank
    views = (n for n in region.users.get(node.key, ()) if has(n, Trait.RESHAPES) and n.phase is Phase.FORWARD)
    packed = (Style.PACKED_COLWISE,) if any(region.by_id[n.key].type.rank >= rank + 2 for n in views) else ()
    return (Style.COLWISE, *packed, Style.ROWWISE, Style.REPLICATE)


def _each(node: Node, styles: tuple[Style, ...], num: int) -> tuple[tuple[Style, ...], ...]:
    """A style for each parameter of a node: of an expert bank (up, down, biases) the second is split by rows."""
    if has(node, Trait.HOLDS_EXPERTS, backward=False):
        columns = Style.PACKED_COLWISE
        return ((columns, Style.ROWWISE, columns, Style.ROWWISE)[:num], (Style.REPLICATE,) * num)
    return tuple((style,) * num for style in styles)


def _is_cut_apart(region: Region, value: int) -> bool:
    """Whether a result is several tensors side by side in its last dim, which the model slices out of it."""
    v = region.by_id[value]
    users = [n for n in region.users.get(value, ()) if n.phase is Phase.FORWARD]
    alike = [n for n in users if region.by_id[n.key].storage == v.storage]
    cut = any(isinstance(n.attrs, SliceAttrs) and n.attrs.dim == v.type.rank - 1 for n in users)
    same = (n for n in alike if region.by_id[n.key].type.dims[-1] == v.type.dims[-1])
    return cut or any(_is_cut_apart(region, n.key) for n in same)
