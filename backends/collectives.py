"""A collective over a group of ranks into its time, by the fastest algorithm, for one plan or many at once.

S is the full logical vector in bytes: all-reduce has S on each rank; all-gather ends with S, reduce-scatter
starts from S on each rank; a ring exchange passes blocks of S/n on, n - 1 times; all-to-all sends S from each rank,
S/n of it to each peer; broadcast and send move S. Level l joins n_l groups of m_l ranks each. A rank has its own links
into every level, so a ring or a tree that leaves a group does so over the links of all m_l ranks at once, each with its
share of the vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ..ir.errors import UnknownNameError
from ..ir.ops.collectives import RINGS
from .group_layout import Array, LevelShare, lay_out
from .system import System

if TYPE_CHECKING:
    from ..ir.expr import Num

Collective: TypeAlias = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "ring_gather", "ring_scatter"
]
Shares: TypeAlias = Sequence[LevelShare]
Terms: TypeAlias = "tuple[LevelTerm, ...]"
Price: TypeAlias = "Callable[[Array, Shares], Terms]"


@dataclass(frozen=True, slots=True)
class LevelTerm:
    """What one network level adds to the time of an algorithm."""

    level: str
    latency_s: Num
    bandwidth_s: Num


@dataclass(frozen=True, slots=True)
class Candidate:
    """One algorithm with its time, level by level, innermost first."""

    algorithm: str
    terms: tuple[LevelTerm, ...]

    @property
    def time_s(self) -> Num:
        """The sum of all terms."""
        return sum((term.latency_s + term.bandwidth_s for term in self.terms), start=0.0)


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """The time of a collective, with the algorithms that were compared.

    Attributes:
        kind: the collective.
        time_s: the least time of the candidates plus the overhead; exactly 0 for a group of one.
        overhead_s: what the software adds once per collective, and once per step of a ring exchange.
        candidates: every algorithm tried, each with arrays over the plans.
    """

    kind: Collective
    time_s: Num
    overhead_s: Num
    candidates: tuple[Candidate, ...]

    def chosen(self, plan: int = 0) -> Candidate:
        """Return the fastest algorithm for one plan (a row of the table), its terms as plain numbers."""
        rows = [_row(candidate, plan) for candidate in self.candidates]
        return min(rows, key=lambda row: float(row.time_s))


def collective_time(
    kind: Collective,
    message_bytes: Num,
    group_size: Num,
    stride: Num,
    system: System,
    more: Sequence[tuple[Num, Num]] = (),
    across: float = 1.0,
) -> CollectiveTime:
    """Price a collective; the inputs are numbers or arrays over plans that broadcast against each other.

    Args:
        kind: what is exchanged; `send` goes between neighbours of the group.
        message_bytes: S, as the module says.
        group_size: ranks in the group.
        stride: ranks between neighbours of the group: the product of the degrees laid further inside.
        system: for its network levels and the overhead of its software.
        more: further (size, stride) factors of a group over several mesh axes.
        across: of an all-to-all, the share of what goes to other nodes that really crosses to them.

    Raises:
        UnknownNameError: a kind that is not a collective.
        PlanError: a group that does not fit the network.

    >>> from slipstick.backends.system import load_system
    >>> result = collective_time("all_reduce", 2.0**30, 64, 1, load_system("dgx-h100"))
    >>> f"{result.time_s * 1e3:.2f} ms", result.chosen().algorithm
    ('6.40 ms', 'double_tree')
    """
    algorithms = _ALGORITHMS.get(kind)
    if algorithms is None:
        raise UnknownNameError.of("collective", kind, _ALGORITHMS)
    size, step, volume = np.broadcast_arrays(
        np.asarray(group_size, float), np.asarray(stride, float), np.asarray(message_bytes, float)
    )
    rest = [(np.broadcast_to(np.asarray(n, float), size.shape), np.asarray(s, float)) for n, s in more]
    shares = lay_out(size, step, system.levels, rest)
    if across < 1 and kind == "all_to_all":
        algorithms = (*algorithms, ("node_limited", _node_limited(across, system.node_size)))
    candidates = tuple(_candidate(name, price(volume, shares)) for name, price in algorithms)
    least = np.minimum.reduce([np.asarray(candidate.time_s) for candidate in candidates])
    launches = np.maximum(shares[-1].spanned - 1, 0.0) if kind in RINGS else np.where(shares[-1].spanned <= 1, 0.0, 1.0)
    overhead = launches * system.stack.collective_launch_s
    return CollectiveTime(kind, _plain(least + overhead), _plain(overhead), candidates)


def _ring(passes: int) -> Price:
    """Each pass takes n - 1 steps of S/n: one for reduce-scatter or all-gather, two for all-reduce.

    A step costs the latency of the hop it takes: of the n - 1 hops, (n_l - 1) prod_{j>l} n_j cross level l.
    In all, (n-1)/n S goes through the narrowest level.
    """

    def price(volume: Array, shares: Shares) -> Terms:
        size = shares[-1].spanned
        hops = [passes * (s.fanout - 1) * s.outside for s in shares]
        return _pipelined(hops, passes * (size - 1) / size * volume, shares)

    return price


def _double_tree(volume: Array, shares: Shares) -> Terms:
    """All-reduce over two trees of half the vector each: 2 ceil(log2 n_l) alpha_l, 2 S/B at the narrowest."""
    return _pipelined([2 * _log2(s.fanout) for s in shares], 2 * volume, shares)


def _chain(volume: Array, shares: Shares) -> Terms:
    """Broadcast along a chain in q chunks: n - 1 hops, then q - 1 more chunks over the outermost level.

    The narrowest level moves (n - 2 + q)/q S. The best q is sqrt((n - 2) S / (alpha B)), at least 1.
    """
    links = shares[-1].spanned - 2
    # Without latency the best number of chunks has no bound; a picosecond keeps it finite.
    alpha_s = np.maximum(sum(s.is_top * s.level.latency_s for s in shares), 1e-12)
    narrowest = np.maximum.reduce([_seconds_per_byte(s) for s in shares])
    chunks = np.maximum(1.0, np.sqrt(np.maximum(links, 0.0) * volume * narrowest / alpha_s))
    hops = [(s.fanout - 1) * s.outside + (chunks - 1) * s.is_top for s in shares]
    return _pipelined(hops, (links + chunks) / chunks * volume, shares)


def _hierarchical_ring(passes: int) -> Price:
    """Rings level by level; the vector of a rank is S/m_l by the time level l has it."""
    return lambda volume, shares: tuple(_level_ring(passes, volume, s) for s in shares)


def _hierarchical_tree(volume: Array, shares: Shares) -> Terms:
    """All-reduce by a double tree on the outermost level spanned, between ring passes on the levels below."""
    return tuple(_level_tree(volume, s) for s in shares)


def _pairwise(volume: Array, shares: Shares) -> Terms:
    """All-to-all, one peer after the other: alpha_l + S/(n B_l) for each peer reached over level l."""
    size = shares[-1].spanned
    return tuple(_term(s, s.spanned - s.inside, (s.spanned - s.inside) / size * volume) for s in shares)


def _staged(volume: Array, shares: Shares) -> Terms:
    """All-to-all level by level: (n_l - 1) alpha_l + (n_l - 1)/n_l S/B_l, fewer and larger messages."""
    return tuple(_term(s, s.fanout - 1, (s.fanout - 1) / s.fanout * volume) for s in shares)


def _node_limited(across: float, node_size: int) -> Price:
    """All-to-all level by level in which a row goes to each node once and is copied to its goals there.

    As `staged`, with `across` of the bytes on the levels outside of a node, and all of them inside (DeepSeek-V3, arXiv
    2412.19437, section 3.2).
    """

    def price(volume: Array, shares: Shares) -> Terms:
        sent = [volume if _in_node(s, node_size) else volume * across for s in shares]
        return tuple(_staged(v, (s,))[0] for v, s in zip(sent, shares, strict=True))

    return price


def _in_node(share: LevelShare, node_size: int) -> bool:
    return share.level.size is not None and share.level.size <= node_size


def _binomial_tree(volume: Array, shares: Shares) -> Terms:
    """Broadcast: ceil(log2 n_l) (alpha_l + S/B_l) a level."""
    return tuple(_term(s, _log2(s.fanout), _log2(s.fanout) * volume) for s in shares)


def _direct(volume: Array, shares: Shares) -> Terms:
    """Send: alpha + S/B of the outermost level spanned, where the slowest pair of neighbours lies."""
    return tuple(_term(s, np.where(s.is_top, 1.0, 0.0), s.is_top * volume) for s in shares)


def _level_ring(passes: int, volume: Array, share: LevelShare) -> LevelTerm:
    steps = passes * (share.fanout - 1)
    return _term(share, steps, steps / share.fanout * volume / share.inside)


def _level_tree(volume: Array, share: LevelShare) -> LevelTerm:
    ring, depth = _level_ring(2, volume, share), 2 * _log2(share.fanout)
    tree = _term(share, depth, 2 * volume / share.inside)
    return LevelTerm(
        share.level.name,
        np.where(share.is_top, tree.latency_s, ring.latency_s),
        np.where(share.is_top, tree.bandwidth_s, ring.bandwidth_s),
    )


def _pipelined(hops: Sequence[Array], volume: Array, shares: Shares) -> Terms:
    """All levels work at the same time, so only the narrowest one's bandwidth counts."""
    costs = np.stack([_seconds_per_byte(s) for s in shares])
    narrowest = np.argmax(costs, axis=0)
    return tuple(
        LevelTerm(s.level.name, hop * s.level.latency_s, np.where(narrowest == i, cost * volume, 0.0))
        for i, (s, hop, cost) in enumerate(zip(shares, hops, costs, strict=True))
    )


def _seconds_per_byte(share: LevelShare) -> Array:
    return np.where(share.fanout > 1, 1 / (share.inside * share.bytes_per_s), 0.0)


def _term(share: LevelShare, steps: Array, num_bytes: Array) -> LevelTerm:
    return LevelTerm(share.level.name, steps * share.level.latency_s, num_bytes / share.bytes_per_s)


def _log2(fanout: Array) -> Array:
    depth: Array = np.ceil(np.log2(fanout))
    return depth


def _candidate(algorithm: str, terms: Terms) -> Candidate:
    plain = (LevelTerm(t.level, _plain(t.latency_s), _plain(t.bandwidth_s)) for t in terms)
    return Candidate(algorithm, tuple(plain))


def _plain(value: Num) -> Num:
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else array


def _row(candidate: Candidate, plan: int) -> Candidate:
    terms = (LevelTerm(t.level, _entry(t.latency_s, plan), _entry(t.bandwidth_s, plan)) for t in candidate.terms)
    return Candidate(candidate.algorithm, tuple(terms))


def _entry(value: Num, plan: int) -> float:
    array = np.asarray(value)
    return float(array.flat[plan if array.ndim else 0])


_ALGORITHMS: Mapping[str, tuple[tuple[str, Price], ...]] = {
    "all_reduce": (
        ("ring", _ring(2)),
        ("double_tree", _double_tree),
        ("hierarchical_ring", _hierarchical_ring(2)),
        ("hierarchical_tree", _hierarchical_tree),
    ),
    "all_gather": (("ring", _ring(1)), ("hierarchical_ring", _hierarchical_ring(1))),
    "reduce_scatter": (("ring", _ring(1)), ("hierarchical_ring", _hierarchical_ring(1))),
    "all_to_all": (("pairwise", _pairwise), ("staged", _staged)),
    "broadcast": (("chain", _chain), ("binomial_tree", _binomial_tree)),
    "send": (("direct", _direct),),
    "ring_gather": (("neighbours", _ring(1)),),
    "ring_scatter": (("neighbours", _ring(1)),),
}
