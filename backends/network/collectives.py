"""A collective over a group of ranks into its time, by the fastest algorithm, for one plan or many at once.

S is the full logical vector in bytes: all-reduce has S on each rank; all-gather ends with S, reduce-scatter
starts from S on each rank; a ring exchange passes blocks of S/n on, n - 1 times; all-to-all sends S from each rank,
S/n of it to each peer; broadcast and send move S. Part l of the network joins n_l groups of m_l ranks each. A rank has
its own links into every part, so a ring or a tree that leaves a group does so over the links of all m_l ranks at once,
each with its share of the vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UnknownNameError
from ...ir.ops.collectives import RINGS
from ..constants import kind_of
from ..system import System
from .custom import innermost_only, one_shot, two_shot
from .exchange import node_limited
from .layout import Array, LevelShare, lay_out
from .links import LevelTerm, Link, Links, Price, Terms
from .measured import with_measured
from .menu import ALGORITHMS, Collective, allows

if TYPE_CHECKING:
    from ...ir.expr import Num

# All-reduce in one kernel, with constants and an overhead of its own.
CUSTOM = ("one_shot", "two_shot")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One algorithm with its time, level by level, innermost first.

    Attributes:
        algorithm: its name.
        terms: what each level adds.
        overhead_s: what the software adds once per collective, and once per step of a ring exchange.
        legal: whether the plan's network has a way for it, and its levels let it be used.
    """

    algorithm: str
    terms: tuple[LevelTerm, ...]
    overhead_s: Num = 0.0
    legal: NDArray[np.bool_] | bool = True

    @property
    def time_s(self) -> Num:
        """The sum of all terms, without the overhead."""
        return sum((term.latency_s + term.bandwidth_s for term in self.terms), start=0.0)

    @property
    def total_s(self) -> Num:
        """With the overhead, and without end where it may not be used."""
        total = np.asarray(self.time_s) + self.overhead_s
        return total if self.legal is True else np.where(self.legal, total, np.inf)


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """The time of a collective, with the algorithms that were compared.

    Attributes:
        kind: the collective.
        time_s: the least time of the candidates with the overhead; exactly 0 for a group of one.
        overhead_s: the overhead of the fastest.
        candidates: every algorithm tried, each with arrays over the plans.
    """

    kind: Collective
    time_s: Num
    overhead_s: Num
    candidates: tuple[Candidate, ...]

    def compared(self, plan: int = 0) -> list[Candidate]:
        """Return the algorithms that one plan (a row of the table) may use, their terms as plain numbers."""
        rows = (_row(candidate, plan) for candidate in self.candidates)
        return [row for row in rows if row.legal and np.isfinite(float(row.time_s))]

    def chosen(self, plan: int = 0) -> Candidate:
        """Return the fastest algorithm for one plan."""
        return min(self.compared(plan), key=lambda row: float(row.total_s))


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
        system: for its network levels, the constants of collectives and the overhead of its software.
        more: further (size, stride) factors of a group over several mesh axes.
        across: of an all-to-all, the share of what goes to other nodes that really crosses to them.

    Raises:
        UnknownNameError: a kind that is not a collective, a protocol without constants.
        PlanError: a group that does not fit the network.

    >>> from slipstick.backends.system import load_system
    >>> result = collective_time("all_reduce", 2.0**30, 64, 1, load_system("dgx-h100"))
    >>> f"{result.time_s * 1e3:.0f} ms", [row.algorithm for row in result.compared()]
    ('6 ms', ['ring', 'double_tree', 'hierarchical_ring', 'hierarchical_tree'])
    """
    if kind not in ALGORITHMS:
        raise UnknownNameError.of("collective", kind, ALGORITHMS)
    size, step, volume = np.broadcast_arrays(
        np.asarray(group_size, float), np.asarray(stride, float), np.asarray(message_bytes, float)
    )
    rest = [(np.broadcast_to(np.asarray(n, float), size.shape), np.asarray(s, float)) for n, s in more]
    links = _links(kind, lay_out(size, step, system.levels, rest), system)
    candidates = tuple(_candidates(kind, volume, links, system, across))
    least, overhead = _fastest(candidates)
    state = system.stack.network
    if state.all_reduces:
        least = with_measured(kind, least, volume, size, step, state.all_reduces)
    return CollectiveTime(kind, _plain(least), _plain(overhead), candidates)


def _fastest(candidates: Sequence[Candidate]) -> tuple[Array, Array]:
    """Return the least time, and the overhead that is in it."""
    least, overhead = np.asarray(candidates[0].total_s), np.asarray(candidates[0].overhead_s)
    for candidate in candidates[1:]:
        total = np.asarray(candidate.total_s)
        if candidate.overhead_s is not candidates[0].overhead_s:
            overhead = np.where(total < least, candidate.overhead_s, overhead)
        least = np.minimum(least, total)
    return least, overhead


def _links(kind: Collective, shares: Sequence[LevelShare], system: System) -> Links:
    table = system.kernels.collective
    names = [share.level.protocol for share in shares]
    return [Link(s, kind, kind_of(table, name) if name else None) for s, name in zip(shares, names, strict=True)]


def _candidates(kind: Collective, volume: Array, links: Links, system: System, across: float) -> Iterator[Candidate]:
    overhead = _plain(_overhead(kind, links, system))
    for name, price in ALGORITHMS[kind].items():
        legal = _legal(kind, name, links)
        if np.any(legal):
            yield _candidate(name, price(volume, links), overhead, legal)
    if across < 1 and kind == "all_to_all":
        terms = node_limited(across, system.node_size)(volume, links)
        yield _candidate("node_limited", terms, overhead)
    if kind == "all_reduce" and system.stack.custom_all_reduce:
        yield from _custom(volume, links, system)


def _custom(volume: Array, links: Links, system: System) -> Iterator[Candidate]:
    constants = kind_of(system.kernels.custom_all_reduce, "default")
    prices: Mapping[str, Price] = dict(zip(CUSTOM, (one_shot(constants), two_shot(constants)), strict=True))
    overhead = _plain(np.where(links[-1].share.spanned > 1, constants.overhead_s, 0.0))
    for name, price in prices.items():
        yield _candidate(name, price(volume, links), overhead, innermost_only(links))


def _legal(kind: Collective, name: str, links: Links) -> NDArray[np.bool_] | bool:
    """Where the outermost level that the group spans allows an algorithm; a group of one may use any."""
    innermost = links[0].share.level
    allowed = [allows(x.share.level, kind, name, x.share.level is innermost) for x in links]
    if all(allowed) or not any(allowed):
        return allowed[0]
    found = links[-1].share.spanned <= 1
    for link, may in zip(links, allowed, strict=True):
        if may:
            found = found | link.is_top
    return found


def _overhead(kind: Collective, links: Links, system: System) -> Array:
    """The greatest overhead of the protocols that a group's levels go by; the software's own where none does."""
    size = links[-1].share.spanned
    launches = np.maximum(size - 1, 0.0) if kind in RINGS else np.where(size <= 1, 0.0, 1.0)
    found = np.zeros(size.shape)
    for link in links:
        if link.constants is not None:
            found = np.maximum(found, np.where(link.fanout > 1, link.constants.overhead_s, 0.0))
    plain = np.all([(x.fanout <= 1) | (x.constants is None) for x in links], axis=0)
    launched = launches * np.where(plain, system.stack.collective_launch_s, found)
    return launched + _delays(kind, size, links, system.stack.network.step_latency_s)


def _delays(kind: Collective, size: Array, links: Links, step_latency_s: float) -> Array:
    """What a network in a bad state adds to each of n - 1 steps, where a group spans more than two nodes."""
    if step_latency_s == 0.0 or kind == "send":
        return np.zeros(size.shape)
    nodes = size / links[0].share.spanned
    return np.where(nodes > 2.0, (size - 1.0) * step_latency_s, 0.0)


def _candidate(algorithm: str, terms: Terms, overhead_s: Num, legal: NDArray[np.bool_] | bool = True) -> Candidate:
    by_level: dict[str, LevelTerm] = {}
    for t in terms:
        before = by_level.get(t.level, LevelTerm(t.level, 0.0, 0.0))
        by_level[t.level] = LevelTerm(t.level, before.latency_s + t.latency_s, before.bandwidth_s + t.bandwidth_s)
    plain = (LevelTerm(t.level, _plain(t.latency_s), _plain(t.bandwidth_s)) for t in by_level.values())
    return Candidate(algorithm, tuple(plain), overhead_s, legal)


def _plain(value: Num) -> Num:
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else array


def _row(candidate: Candidate, plan: int) -> Candidate:
    terms = (LevelTerm(t.level, _entry(t.latency_s, plan), _entry(t.bandwidth_s, plan)) for t in candidate.terms)
    legal = bool(_entry(candidate.legal, plan))
    return Candidate(candidate.algorithm, tuple(terms), _entry(candidate.overhead_s, plan), legal)


def _entry(value: Num | NDArray[np.bool_], plan: int) -> float:
    array = np.asarray(value)
    return float(array.flat[plan if array.ndim else 0])
