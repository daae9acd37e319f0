"""A lowered graph compiled for pricing: work as tables of expressions, nodes grouped by the symbols they depend on."""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import numpy as np

from ...ir.graph import Graph, Node, Phase, Region, Workload
from ...ir.kernels import joined, kernel_work, source_of
from ...ir.ops import OpCall, OpClass, Trait, Work, call_of, has, op_def, works_of
from ...ir.ops.base import NO_ATTRS, Attrs
from ...ir.ops.collectives import CollectiveAttrs, message_bytes
from ...ir.ops.tensors.normalize import NormAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.placement import AXES, NO_AXES, AxisGroup, MeshAxis
from ...ir.plan import ORDER, rank_order
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr, Num, as_expr, product, symbol, total
from ...ir.sizes.exprtable import ExprTable
from ...ir.sizes.rounding import share
from ...ir.types import DType
from ..kernels.operands import unit_of
from .amounts import SCALAR, Amounts, Array, Index, Owners, RowwiseCalls, amounts_of, exprs_of
from .operand_types import operand_types

Symbols: TypeAlias = tuple[str, ...]
# Each has a model of its own; what is left passes over rows.
_APART = frozenset((OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS, OpClass.HOST))


@dataclass(frozen=True, slots=True)
class PricedEntry:
    """One kernel to price: where its node is, how often its region runs, and what it does.

    `dtype` is what it multiplies or reads first, `second` the type of weights, or of keys and values, where it differs.
    `trains` says of what graph it is. `inside` names the ops of a kernel of several nodes in running order, `behind`
    the mesh axis of the all-reduce whose result such a kernel reads.
    """

    region: str
    key: int
    op: str
    kind: OpClass
    phase: Phase
    scope: str
    count: int
    dtype: DType
    work: Work
    axis: AxisGroup = NO_AXES
    message: Expr | None = None
    across: float = 1.0
    attrs: Attrs = NO_ATTRS
    shape: RowwiseCalls = SCALAR
    second: DType | None = None
    trains: bool = True
    inside: tuple[str, ...] = ()
    behind: AxisGroup = NO_AXES

    @property
    def mixed(self) -> bool:
        """Whether weights, or keys and values, are of a type that other units multiply."""
        return self.second is not None and unit_of(str(self.second)) != unit_of(str(self.dtype))

    @property
    def name(self) -> str:
        """The node's name for people: `block0/%17`."""
        return f"{self.region}/%{self.key}"


@dataclass(frozen=True, slots=True)
class PricingGroup:
    """Entries of one kind of pricing that are priced at the same points, with their amounts as expressions.

    Compute: see `amounts`. Communication: the message bytes, then the `factor_exprs` of the ranks that take part;
    `axis` and `collective` say what runs, `across` the share of what goes to other nodes that crosses.
    """

    symbols: Symbols
    entries: tuple[PricedEntry, ...]
    exprs: tuple[Expr, ...]
    axis: AxisGroup = NO_AXES
    collective: str = ""
    across: float = 1.0
    owners: Owners | None = None

    @property
    def table(self) -> ExprTable:
        """The expressions compiled by themselves."""
        return ExprTable.of(self.exprs)

    def amounts(self, env: Mapping[str, Num], num_points: int) -> Amounts:
        """Evaluate what the entries of a compute group do; each symbol is a number or an array of `num_points`."""
        return self.amounts_in(self.table.evaluate(env, num_points))

    def amounts_in(self, values: Array) -> Amounts:
        """Name the evaluated rows of a compute group."""
        owners = self.owners or Owners.of([e.work for e in self.entries])
        return amounts_of(len(self.entries), owners, values)


@dataclass(frozen=True, slots=True)
class MergedEntries:
    """A group, and its entries that differ in anything that a built-in model looks at.

    Attributes:
        group: all entries.
        distinct: of equal ones the first.
        row: the place of each entry among the distinct ones; None where all are distinct.
    """

    group: PricingGroup
    distinct: PricingGroup
    row: Index | None = None

    @classmethod
    def of(cls, group: PricingGroup) -> MergedEntries:
        """Find equal entries of a compute group: a message is priced with its group."""
        if group.axis:
            return cls(group, group)
        found: dict[Hashable, int] = {}
        row = [found.setdefault(_priced_by(e), len(found)) for e in group.entries]
        if len(found) == len(row):
            return cls(group, group)
        first = dict(zip(reversed(row), reversed(group.entries), strict=True))
        return cls(group, group_of(group.symbols, [first[k] for k in range(len(found))]), np.array(row, dtype=np.intp))


def _priced_by(entry: PricedEntry) -> Hashable:
    """All that the built-in models look at: not where a kernel stands, nor in which phase it runs.

    Of a product they see the sizes alone; of what passes over rows the functions that it applies.
    """
    e, w = entry, entry.work
    parts = w.gemms, w.attention, w.experts
    seen = e.kind, e.dtype, e.second, e.trains, e.behind, w.tensor_flops, w.vector_flops, w.num_bytes, *parts
    if e.kind is OpClass.MATMUL and len(w.gemms) == 1:
        return seen
    return (*seen, e.op, e.shape, e.attrs if e.kind in _APART else functions_of(e))


def functions_of(entry: PricedEntry) -> tuple[str, ...]:
    """Return the functions that a kernel applies to elements, or the kind of a norm."""
    if isinstance(entry.attrs, ElementwiseAttrs):
        return entry.attrs.fns
    return (entry.attrs.kind,) if isinstance(entry.attrs, NormAttrs) else ()


@dataclass(frozen=True, slots=True)
class PricingTable:
    """Groups that are priced at the same points, compute before communication; rows of distinct entries one table."""

    symbols: Symbols
    merged: tuple[MergedEntries, ...]
    exprs: ExprTable

    @classmethod
    def of(cls, symbols: Symbols, merged: Sequence[MergedEntries]) -> PricingTable:
        """Put the rows of the distinct entries of groups under one another."""
        return cls(symbols, tuple(merged), ExprTable.of([e for m in merged for e in m.distinct.exprs]))

    @property
    def groups(self) -> tuple[PricingGroup, ...]:
        """The groups with all their entries."""
        return tuple(m.group for m in self.merged)


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A compiled graph: its nodes by the points at which they are priced; `order` lays mesh axes on ranks."""

    graph: Graph
    tables: tuple[PricingTable, ...]
    order: str = ORDER

    @property
    def compute(self) -> tuple[PricingGroup, ...]:
        """The groups of nodes that compute."""
        return tuple(g for table in self.tables for g in table.groups if not g.axis)

    @property
    def communication(self) -> tuple[PricingGroup, ...]:
        """The groups of nodes that communicate."""
        return tuple(g for table in self.tables for g in table.groups if g.axis)

    @property
    def entries(self) -> Iterable[PricedEntry]:
        """Every priced node."""
        return (e for table in self.tables for g in table.groups for e in g.entries)


def compile_graph(graph: Graph, order: str = ORDER) -> CompiledProgram:
    """Compile a lowered graph; free nodes are left out, nothing else is.

    `order` names the mesh axes from neighbouring ranks outwards: `tp-cp-ep-dp-pp`.
    """
    found: dict[Symbols, list[PricedEntry]] = {}
    trains = graph.workload is Workload.TRAIN
    for region in graph.regions:
        for entry, own in _entries(region, graph.counts[region.name], trains):
            axis = entry.axis if entry.message is not None else NO_AXES
            found.setdefault(_symbols(own, axis, entry.behind, graph.axes, order), []).append(entry)
    axes = {e.axis for entries in found.values() for e in entries if e.message is not None}
    ranks = _padded({axis: factor_exprs(axis, graph.axes, order) for axis in axes})
    return CompiledProgram(graph, tuple(_table(s, entries, ranks) for s, entries in _joined(found).items()), order)


# Families of plans share most of their regions: each is looked at once. A large model has a dozen.
@lru_cache(maxsize=512)
def _entries(region: Region, count: int, trains: bool) -> tuple[tuple[PricedEntry, frozenset[str]], ...]:
    """Every kernel of a region that runs so often, with the symbols of its work or of its message."""
    shared = joined(region)
    found: list[tuple[PricedEntry, frozenset[str]]] = []
    for node, work in zip(region.nodes, works_of(region), strict=True):
        if node.kernel is None and not has(node, OpClass.FREE):
            entry = _entry(region, node, work, shared.get(node.key, (node,)), count, trains)
            works = exprs_of([entry.work], [entry.shape])
            own = entry.message.symbols if entry.message is not None else frozenset(s for e in works for s in e.symbols)
            found.append((entry, own))
    return tuple(found)


def _entry(region: Region, node: Node, work: Work, inside: Sequence[Node], count: int, trains: bool) -> PricedEntry:
    """One kernel of a region, of one node with its work or of several."""
    kind = op_def(node.op).kind
    axis, across = (node.attrs.axis, node.attrs.across) if isinstance(node.attrs, CollectiveAttrs) else (NO_AXES, 1.0)
    dtype, second = operand_types(region, node)
    # What a kernel does; a message takes its own bytes, whatever is put into its buffers on the way.
    alone = len(inside) == 1 or has(node, OpClass.COMMUNICATION)
    return PricedEntry(
        region.name,
        node.key,
        node.op,
        kind,
        node.phase,
        node.scope,
        count,
        dtype,
        work if alone else kernel_work(region, inside),
        axis,
        message_bytes(call_of(region, node)) if kind is OpClass.COMMUNICATION else None,
        across,
        node.attrs,
        _shape(call_of(region, node)),
        None if second is dtype else second,
        trains,
        tuple(n.op for n in inside) if len(inside) > 1 else (),
        _reduced_before(region, inside),
    )


def _padded(found: Mapping[AxisGroup, Sequence[tuple[Expr, Expr]]]) -> Mapping[AxisGroup, Sequence[Expr]]:
    """Give all groups of ranks as many contiguous_axis_runs, the last ones of one rank."""
    most = max(map(len, found.values()), default=0)
    return {axis: [*chain(*pairs), *[as_expr(1)] * (2 * (most - len(pairs)))] for axis, pairs in found.items()}


def _joined(found: Mapping[Symbols, Sequence[PricedEntry]]) -> Mapping[Symbols, Sequence[PricedEntry]]:
    """Let entries move in with more that depend on all their symbols and others: few calls instead of many small ones.

    Those are priced at more points than they need, but never more than as many again at each.
    """
    homes = {symbols: list(entries) for symbols, entries in found.items()}
    for symbols in sorted(found, key=lambda s: (len(s), s)):
        larger = [s for s in homes if set(s) > set(symbols) and len(homes[s]) >= len(homes[symbols])]
        if larger:
            homes[max(larger, key=lambda s: (len(homes[s]), s))] += homes.pop(symbols)
    return homes


def _table(symbols: Symbols, entries: Sequence[PricedEntry], ranks: Mapping[AxisGroup, Sequence[Expr]]) -> PricingTable:
    compute: dict[OpClass, list[PricedEntry]] = {}
    batches: dict[tuple[AxisGroup, str, float], list[PricedEntry]] = {}
    for entry in entries:
        if entry.message is None:
            compute.setdefault(entry.kind if entry.kind in _APART else OpClass.ELEMENTWISE, []).append(entry)
        else:
            batches.setdefault((entry.axis, entry.op, entry.across), []).append(entry)
    groups = [group_of(symbols, compute[kind]) for kind in sorted(compute)]
    groups += [_batch(symbols, batches[key], ranks) for key in sorted(batches)]
    return PricingTable.of(symbols, [MergedEntries.of(g) for g in groups])


def _batch(symbols: Symbols, entries: Sequence[PricedEntry], ranks: Mapping[AxisGroup, Sequence[Expr]]) -> PricingGroup:
    first = entries[0]
    messages = [e.message or as_expr(0) for e in entries]
    return PricingGroup(symbols, tuple(entries), (*messages, *ranks[first.axis]), first.axis, first.op, first.across)


def _reduced_before(region: Region, inside: Sequence[Node]) -> AxisGroup:
    """The group of the all-reduce whose result a kernel of several nodes reads, empty where there is none."""
    if len(inside) == 1:
        return NO_AXES
    makers = (region.producer.get(source_of(region, i)) for n in inside for i in n.inputs)
    summed = (m.attrs for m in makers if m is not None and has(m, Trait.SUMS_EVERYWHERE))
    return next((a.axis for a in summed if isinstance(a, CollectiveAttrs)), NO_AXES)


def _shape(call: OpCall) -> RowwiseCalls:
    """What the op runs over, its first operand or its result, as rows of its last dim; an optimizer over elements."""
    if has(call, OpClass.OPTIMIZER):
        return RowwiseCalls(total(p.numel for p in call.inputs[: len(call.inputs) // 2]), as_expr(1))
    # A cache stays where it is: what is appended to it is what passes by.
    types = call.inputs[-1:] if has(call, Trait.APPENDS) else [*call.inputs[:1], *call.outputs[:1]]
    widest = max(types, key=lambda t: t.rank)
    if not widest.dims:
        return SCALAR
    return RowwiseCalls(product(widest.dims[:-1]), as_expr(widest.dims[-1]))


@lru_cache(maxsize=4096)
def _symbols(
    own: frozenset[str], group: AxisGroup, behind: AxisGroup, axes: tuple[MeshAxis, ...], order: str
) -> Symbols:
    """What the time depends on; a collective also on its axes' degrees and on those that lie inside them."""
    if group:
        names = rank_order(order)
        inner = names[: max(map(names.index, group.axes)) + 1]
        return tuple(sorted(own | {a for a in inner if a in axes}))
    return tuple(sorted(own | ({behind} & set(axes))))


def group_of(symbols: Symbols, entries: Iterable[PricedEntry]) -> PricingGroup:
    """Return a compute group of these entries."""
    kept = tuple(entries)
    works = [e.work for e in kept]
    return PricingGroup(symbols, kept, tuple(exprs_of(works, [e.shape for e in kept])), owners=Owners.of(works))


def contiguous_axis_runs(
    axes: Sequence[MeshAxis], order: str = ORDER, present: Container[str] = AXES
) -> list[tuple[list[MeshAxis], list[MeshAxis]]]:
    """Return the axes of each stretch of side-by-side axes in a group, and those that lie inside of it.

    Axes lie on the ranks in the given order, innermost first; one that is not present has degree 1.

    >>> contiguous_axis_runs(AxisGroup("cp+dp").axes, present=("tp", "cp", "ep", "dp"))
    [(['cp'], ['tp']), (['dp'], ['tp', 'cp', 'ep'])]
    """
    found: list[tuple[list[MeshAxis], list[MeshAxis]]] = []
    inside: list[MeshAxis] = []
    joined = False
    for name in rank_order(order):
        if name in axes:
            found = [*found[:-1], ([*found[-1][0], name], found[-1][1])] if joined else [*found, ([name], inside)]
            joined = True
        elif name in present:
            joined = False
        inside = [*inside, name] if name in present else inside
    return found


def group_factors(group: AxisGroup, env: Mapping[str, Num], order: str = ORDER) -> list[tuple[Num, Num]]:
    """Return (size, stride in ranks) of each stretch of side-by-side axes in a group; axes not in `env` have degree 1.

    Axes lie on the ranks in the given order, innermost first.

    >>> group_factors(AxisGroup("ep+dp"), {"tp": 8, "ep": 4, "dp": 2})
    [(8, 8)]
    >>> group_factors(AxisGroup("cp+dp"), {"tp": 8, "cp": 2, "ep": 4, "dp": 2})
    [(2, 8), (2, 64)]
    >>> group_factors(AxisGroup("dp"), {"tp": 8, "dp": 2, "pp": 4}, "tp-pp-cp-ep-dp")
    [(2, 32)]

    `tp/8` are the neighbours over `tp` that share one of 8 things; there is one a rank while ranks are no more.

    >>> [group_factors(AxisGroup("tp/8"), {"tp": degree}) for degree in (16, 4)]
    [[(2.0, 1)], [(1.0, 1)]]
    """
    runs = contiguous_axis_runs(group.axes, order, env)
    pairs = [(_degree(of, env), _degree(inside, env)) for of, inside in runs]
    if not (pieces := group.pieces):
        return pairs
    return [(ranks * -(-pieces // ranks) / pieces, stride) for ranks, stride in pairs]


def factor_exprs(group: AxisGroup, axes: Sequence[MeshAxis], order: str = ORDER) -> list[tuple[Expr, Expr]]:
    """Return what `group_factors` does as expressions of the degrees of `axes`, of `tp/8` eight times the size.

    >>> [factor_exprs(group, AxisGroup("tp+ep+dp").axes) for group in (AxisGroup("ep+dp"), AxisGroup("tp/8"))]
    [[(dp*ep, tp)], [(ceil_8_tp*tp, 1)]]
    """
    degrees = {name: symbol(name) for name in axes}
    pairs = [
        (product(degrees[n] for n in of if n in axes), product(degrees[n] for n in inside))
        for of, inside in contiguous_axis_runs(group.axes, order, axes)
    ]
    if not group.pieces:
        return pairs
    return [(size * share(group.pieces, group.axes[0]), stride) for size, stride in pairs]


def _degree(names: Sequence[str], env: Mapping[str, Num]) -> Num:
    return math.prod(env.get(name, 1) for name in names)
