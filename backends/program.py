"""A lowered graph compiled for pricing: work as tables of expressions, nodes grouped by the symbols they depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..ir.expr import Expr, Num, as_expr, product, total
from ..ir.exprtable import ExprTable
from ..ir.graph import Graph, Node, Phase, Region
from ..ir.ops import OpCall, OpClass, Work, call_of, op_def, work_of
from ..ir.ops.base import NO_ATTRS, Attrs
from ..ir.ops.collectives import CollectiveAttrs, message_bytes
from ..ir.plan import ORDER, rank_order
from ..ir.types import DType
from .amounts import SCALAR, Amounts, Owners, Shape, amounts_of, exprs_of


@dataclass(frozen=True, slots=True)
class Entry:
    """One node to price: where it is, how often its region runs, and what it does."""

    region: str
    key: int
    op: str
    kind: OpClass
    phase: Phase
    scope: str
    count: int
    dtype: DType
    work: Work
    axis: str = ""
    message: Expr | None = None
    across: float = 1.0
    attrs: Attrs = NO_ATTRS
    shape: Shape = SCALAR

    @property
    def name(self) -> str:
        """The node's name for people: `block0/%17`."""
        return f"{self.region}/%{self.key}"


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of one kind of pricing that depend on the same symbols, with their amounts as one table.

    Compute: see `amounts`. Communication: rows are the message bytes; `axis` and `collective` say what runs,
    `across` the share of what goes to other nodes that crosses.
    """

    symbols: tuple[str, ...]
    entries: tuple[Entry, ...]
    table: ExprTable
    axis: str = ""
    collective: str = ""
    across: float = 1.0
    owners: Owners | None = None

    def amounts(self, env: Mapping[str, Num], num_points: int) -> Amounts:
        """Evaluate what the entries of a compute group do; each symbol is a number or an array of `num_points`."""
        owners = self.owners or Owners.of([e.work for e in self.entries])
        return amounts_of(len(self.entries), owners, self.table.evaluate(env, num_points))


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled graph: compute groups and communication groups; `order` says how mesh axes are laid on ranks."""

    graph: Graph
    compute: tuple[Group, ...]
    communication: tuple[Group, ...]
    order: str = ORDER

    @property
    def entries(self) -> Iterable[Entry]:
        """Every priced node."""
        return (e for g in (*self.compute, *self.communication) for e in g.entries)


def compile_graph(graph: Graph, order: str = ORDER) -> Program:
    """Compile a lowered graph; free nodes are left out, nothing else is.

    `order` names the mesh axes from neighbouring ranks outwards: `tp-cp-ep-dp-pp`.
    """
    compute: dict[tuple[tuple[str, ...], OpClass], list[Entry]] = {}
    talks: dict[tuple[tuple[str, ...], str, str, float], list[Entry]] = {}
    for region in graph.regions:
        for node in region.nodes:
            entry = _entry(graph, region, node)
            if entry.kind is OpClass.FREE:
                continue
            if entry.message is None:
                compute.setdefault((_symbols(entry, graph.axes, order), entry.kind), []).append(entry)
            else:
                key = (_symbols(entry, graph.axes, order), entry.axis, entry.op, entry.across)
                talks.setdefault(key, []).append(entry)
    return Program(
        graph,
        tuple(group_of(symbols, es) for (symbols, _), es in compute.items()),
        tuple(
            Group(symbols, tuple(es), ExprTable.of([e.message or as_expr(0) for e in es]), axis, op, across)
            for (symbols, axis, op, across), es in talks.items()
        ),
        order,
    )


def _entry(graph: Graph, region: Region, node: Node) -> Entry:
    kind = op_def(node.op).kind
    axis, across = (node.attrs.axis, node.attrs.across) if isinstance(node.attrs, CollectiveAttrs) else ("", 1.0)
    source = node.inputs[0] if node.inputs else node.outputs[0]
    return Entry(
        region.name, node.key, node.op, kind, node.phase, node.scope, graph.counts[region.name],
        region.by_id[source].type.dtype, work_of(region, node), axis,
        message_bytes(call_of(region, node)) if kind is OpClass.COMMUNICATION else None,
        across, node.attrs, _shape(call_of(region, node)),
    )  # fmt: skip


def _shape(call: OpCall) -> Shape:
    """What the op runs over, its first operand or its result, as rows of its last dim; an optimizer over elements."""
    if op_def(call.op).kind is OpClass.OPTIMIZER:
        return Shape(total(p.numel for p in call.inputs[: len(call.inputs) // 2]), as_expr(1))
    types = [*call.inputs[:1], *call.outputs[:1]]
    widest = max(types, key=lambda t: t.rank)
    if not widest.dims:
        return SCALAR
    return Shape(product(widest.dims[:-1]), as_expr(widest.dims[-1]))


def _symbols(entry: Entry, axes: tuple[str, ...], order: str) -> tuple[str, ...]:
    """What the time depends on; a collective also on its axis' degree and on those that lie inside it."""
    if entry.message is not None:
        names = rank_order(order)
        inner = names[: max(names.index(a.split("/")[0]) for a in entry.axis.split("+")) + 1]
        present = entry.message.symbols | {a for a in inner if a in axes}
        return tuple(sorted(present))
    found = {s for e in exprs_of([entry.work], [entry.shape]) for s in e.symbols}
    return tuple(sorted(found))


def group_of(symbols: tuple[str, ...], entries: Iterable[Entry]) -> Group:
    """Return a compute group of these entries."""
    kept = tuple(entries)
    works = [e.work for e in kept]
    exprs = exprs_of(works, [e.shape for e in kept])
    return Group(symbols, kept, ExprTable.of(exprs), owners=Owners.of(works))


def group_factors(axis: str, env: Mapping[str, Num], order: str = ORDER) -> list[tuple[Num, Num]]:
    """Return (size, stride in ranks) of each stretch of side-by-side axes in a group; axes not in `env` have degree 1.

    Axes lie on the ranks in the given order, innermost first.

    >>> group_factors("ep+dp", {"tp": 8, "ep": 4, "dp": 2})
    [(8, 8)]
    >>> group_factors("cp+dp", {"tp": 8, "cp": 2, "ep": 4, "dp": 2})
    [(2, 8), (2, 64)]
    >>> group_factors("dp", {"tp": 8, "dp": 2, "pp": 4}, "tp-pp-cp-ep-dp")
    [(2, 32)]

    `tp/8` are the neighbours over `tp` that share one of 8 things; there is one a rank while ranks are no more.

    >>> group_factors("tp/8", {"tp": 16}), group_factors("tp/8", {"tp": 4})
    ([(2.0, 1)], [(1.0, 1)])
    """
    base, _, count = axis.partition("/")
    if count:
        ((ranks, step),) = group_factors(base, env, order)
        return [(ranks * -(-int(count) // ranks) / int(count), step)]
    factors: list[tuple[Num, Num]] = []
    stride: Num = 1
    joined = False
    for name in rank_order(order):
        degree = env.get(name, 1)
        if name in axis.split("+"):
            factors = (
                [*factors[:-1], (factors[-1][0] * degree, factors[-1][1])] if joined else [*factors, (degree, stride)]
            )
            joined = True
        elif name in env:
            joined = False
        stride = stride * degree
    return factors
