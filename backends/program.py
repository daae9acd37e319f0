"""A lowered graph compiled for pricing: work as tables of expressions, nodes grouped by the symbols they depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..ir.expr import Expr, Num, as_expr
from ..ir.exprtable import ExprTable
from ..ir.graph import Graph, Node, Phase, Region
from ..ir.ops import OpClass, Work, call_of, op_def, work_of
from ..ir.ops.collectives import CollectiveAttrs, message_bytes
from ..ir.plan import ORDER, rank_order
from ..ir.types import DType


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

    @property
    def name(self) -> str:
        """The node's name for people: `block0/%17`."""
        return f"{self.region}/%{self.key}"


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of one kind of pricing that depend on the same symbols, with their amounts as one table.

    Compute: rows are tensor FLOPs, vector FLOPs and bytes of every entry, then query and key length of the attention
    entries. Communication: rows are the message bytes; `axis` and `collective` say what runs,
    `across` the share of what goes to other nodes that crosses.
    """

    symbols: tuple[str, ...]
    entries: tuple[Entry, ...]
    table: ExprTable
    axis: str = ""
    collective: str = ""
    across: float = 1.0


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
    compute: dict[tuple[str, ...], list[Entry]] = {}
    talks: dict[tuple[tuple[str, ...], str, str, float], list[Entry]] = {}
    for region in graph.regions:
        for node in region.nodes:
            entry = _entry(graph, region, node)
            if entry.kind is OpClass.FREE:
                continue
            if entry.message is None:
                compute.setdefault(_symbols(entry, graph.axes, order), []).append(entry)
            else:
                key = (_symbols(entry, graph.axes, order), entry.axis, entry.op, entry.across)
                talks.setdefault(key, []).append(entry)
    return Program(
        graph,
        tuple(group_of(symbols, es) for symbols, es in compute.items()),
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
        across,
    )  # fmt: skip


def _symbols(entry: Entry, axes: tuple[str, ...], order: str) -> tuple[str, ...]:
    """What the time depends on; a collective also on its axis' degree and on those that lie inside it."""
    if entry.message is not None:
        names = rank_order(order)
        inner = names[: max(names.index(a.split("/")[0]) for a in entry.axis.split("+")) + 1]
        present = entry.message.symbols | {a for a in inner if a in axes}
        return tuple(sorted(present))
    found = {s for e in _amounts(entry) for s in e.symbols}
    return tuple(sorted(found))


def _amounts(entry: Entry) -> tuple[Expr, ...]:
    w = entry.work
    lengths = (w.attention.q_len, w.attention.kv_len) if w.attention else ()
    dealt = (w.experts.rows, w.experts.num_experts) if w.experts else ()
    return (w.tensor_flops, w.vector_flops, w.num_bytes, *lengths, *dealt)


def _work_table(entries: Iterable[Entry]) -> ExprTable:
    """Rows: tensor FLOPs, vector FLOPs, bytes of all; query, key lengths; expert bytes, rows, experts."""
    es = list(entries)
    works = [e.work for e in es]
    shapes = [w.attention for w in works if w.attention is not None]
    rows = [w.tensor_flops for w in works] + [w.vector_flops for w in works] + [w.num_bytes for w in works]
    lengths = [s.q_len for s in shapes] + [s.kv_len for s in shapes]
    banks = [w.experts for w in works if w.experts is not None]
    dealt = [b.weight_bytes for b in banks] + [b.rows for b in banks] + [b.num_experts for b in banks]
    return ExprTable.of(rows + lengths + dealt)


def group_of(symbols: tuple[str, ...], entries: Iterable[Entry]) -> Group:
    """Return a compute group of these entries."""
    kept = tuple(entries)
    return Group(symbols, kept, _work_table(kept))


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
