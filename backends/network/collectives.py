"""A collective over a group of ranks into its time, by the fastest algorithm, for one plan or many at once.

S is the full logical vector in bytes: all-reduce has S on each rank; all-gather ends with S, reduce-scatter
starts from S on each rank; a ring exchange passes blocks of S/n on, n - 1 times; all-to-all sends S from each rank,
S/n of it to each peer; broadcast and send move S. Part l of the network joins n_l groups of m_l ranks each. A rank has
its own links into every part, so a ring or a tree that leaves a group does so over the links of all m_l ranks at once,
each with its share of the vector.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UnknownNameError
from ...ir.ops.collectives import RINGS
from ...ir.records import dataclass
from ..kernels.collective import CollectiveConstants, CustomAllReduceConstants, share_of
from ..kernels.constants import kind_of
from ..machine.software.stack import NetworkState
from ..machine.system import System
from .algorithms.algorithm import Collective
from .algorithms.custom import innermost_only, one_shot, two_shot
from .algorithms.exchange import node_limited
from .algorithms.measured import with_measured
from .algorithms.menu import ALGORITHMS, allows
from .topology.layout import Array, LevelShare, lay_out
from .topology.links import LevelTerm, Links, NetworkLink, Price, Terms
from .topology.parts import parts_of

if TYPE_CHECKING:
    from ...ir.sizes.expr import Num

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

    def part(self, groups: slice) -> Candidate:
        """Return the algorithm for some of the groups."""
        terms = (LevelTerm(t.level, _of(t.latency_s, groups), _of(t.bandwidth_s, groups)) for t in self.terms)
        legal = self.legal if isinstance(self.legal, bool) else self.legal[groups]
        return Candidate(self.algorithm, tuple(terms), _of(self.overhead_s, groups), legal)

    @property
    def time_s(self) -> Num:
        """The sum of all terms, without the overhead."""
        first, *others = (term.latency_s + term.bandwidth_s for term in self.terms)
        return sum(others, start=first)

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
        tried: every algorithm, each with arrays over the groups that were priced together.
        groups: which of these are meant; None for all.
    """

    kind: Collective
    time_s: Num
    overhead_s: Num
    tried: tuple[Candidate, ...]
    groups: slice | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every algorithm tried, each with arrays over the plans."""
        return self.tried if self.groups is None else tuple(one.part(self.groups) for one in self.tried)

    def part(self, kind: Collective, groups: slice) -> CollectiveTime:
        """Return the answer for some of the groups, all of one kind; only their seconds are cut out yet."""
        return CollectiveTime(kind, _of(self.time_s, groups), _of(self.overhead_s, groups), self.tried, groups)

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

    >>> from slipstick.backends.machine.load import load_system
    >>> result = collective_time("all_reduce", 2.0**30, 64, 1, load_system("dgx-h100"))
    >>> f"{result.time_s * 1e3:.0f} ms", [row.algorithm for row in result.compared()]
    ('6 ms', ['ring', 'double_tree', 'hierarchical_ring', 'hierarchical_tree', 'in_network_tree'])
    """
    size, step, volume = np.broadcast_arrays(
        np.asarray(group_size, float), np.asarray(stride, float), np.asarray(message_bytes, float)
    )
    rest = [(np.broadcast_to(np.asarray(n, float), size.shape), np.asarray(s, float)) for n, s in more]
    return CollectiveModel.of(kind, system, across).time(volume, size, step, lay_out(size, step, system.levels, rest))


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """An algorithm, and whether each part of the network lets a group whose outermost part it is use it."""

    algorithm: str
    price: Price
    allowed: tuple[bool, ...]

    def legal(self, links: Links) -> NDArray[np.bool_] | bool:
        """Where the outermost part that the group spans allows it; a group of one may use any."""
        if all(self.allowed):
            return True
        found = links[-1].share.spanned <= 1
        for link, may in zip(links, self.allowed, strict=True):
            if may:
                found = found | link.is_top
        return found


@dataclass(frozen=True, slots=True)
class CollectiveModel:
    """What a system has for one collective, whatever its size: algorithms, and constants of the parts of the network.

    Attributes:
        kind: the collective.
        choices: the algorithms that any part allows.
        constants: what the library makes of each part.
        launch_s: overhead of the software where no library says its own.
        custom: constants of all-reduce in one kernel, where the software has it.
        state: what was measured of the network.
    """

    kind: Collective
    choices: tuple[AlgorithmChoice, ...]
    constants: tuple[CollectiveConstants | None, ...]
    launch_s: float
    custom: CustomAllReduceConstants | None
    state: NetworkState

    @classmethod
    def of(cls, kind: Collective, system: System, across: float = 1.0) -> CollectiveModel:
        """Look up all that does not depend on the plan; UnknownNameError as `collective_time`."""
        if kind not in ALGORITHMS:
            raise UnknownNameError.of("collective", kind, ALGORITHMS)
        levels = [part.level for part in parts_of(system.levels)]
        table = system.kernels.collective
        choices = [
            AlgorithmChoice(name, one.prices[kind], tuple(allows(v, kind, name, levels[0]) for v in levels))
            for name, one in ALGORITHMS[kind].items()
        ]
        choices = [c for c in choices if any(c.allowed)]
        # A routing that is limited to few nodes sends a row once to each and copies it there, which only a kernel
        # made for it does.
        if across < 1 and kind == "all_to_all":
            limited = node_limited(across, system.node_size)
            choices.append(AlgorithmChoice("node_limited", limited, (True,) * len(levels)))
        # Engines have an all-reduce of one kernel for small messages within a node, beside that of the library.
        serves = kind == "all_reduce" and system.stack.custom_all_reduce
        custom = kind_of(system.kernels.custom_all_reduce, "default") if serves else None
        constants = tuple(kind_of(table, v.protocol) if v.protocol else None for v in levels)
        return cls(kind, tuple(choices), constants, system.stack.collective_launch_s, custom, system.stack.network)

    @property
    def alike(self) -> Hashable:
        """What collectives have in common that can be priced as one: algorithms, constants, ring exchange or not."""
        ways = tuple((c.price, c.allowed) for c in self.choices)
        return ways, share_of(self.kind), self.kind in RINGS, self.custom is not None

    def time(self, volume: Array, size: Array, stride: Array, shares: Sequence[LevelShare]) -> CollectiveTime:
        """Price messages of groups with their first factor, laid on the network."""
        links = [NetworkLink.of(s, self.kind, c) for s, c in zip(shares, self.constants, strict=True)]
        candidates = tuple(self._candidates(volume, links))
        least, overhead = _fastest(candidates)
        if self.state.all_reduces:
            least = with_measured(self.kind, least, volume, size, stride, self.state.all_reduces)
        return CollectiveTime(self.kind, _plain(least), _plain(overhead), candidates)

    def _candidates(self, volume: Array, links: Links) -> Iterator[Candidate]:
        overhead = _plain(self._overhead(links))
        for choice in self.choices:
            legal = choice.legal(links)
            if legal is True or np.any(legal):
                yield _candidate(choice.algorithm, choice.price(volume, links), overhead, legal)
        if self.custom is not None:
            prices: Mapping[str, Price] = dict(zip(CUSTOM, (one_shot(self.custom), two_shot(self.custom)), strict=True))
            overhead = _plain(np.where(links[-1].share.spanned > 1, self.custom.overhead_s, 0.0))
            for name, price in prices.items():
                yield _candidate(name, price(volume, links), overhead, innermost_only(links))

    def _overhead(self, links: Links) -> Array:
        """The greatest overhead of the protocols that a group's levels go by; the software's own where none does."""
        size = links[-1].share.spanned
        known = [(x.is_spanned, x.constants.overhead_s) for x in links if x.constants is not None]
        if len(known) < len(links):
            plain = size > 1
            for spanned, _ in known:
                plain = plain & ~spanned
            known.append((plain, self.launch_s))
        found = np.where(*known[0], 0.0)
        for spanned, overhead_s in known[1:]:
            found = np.maximum(found, np.where(spanned, overhead_s, 0.0))
        # Blocks of a ring exchange are messages of their own: each is launched.
        launched = found * (size - 1) if self.kind in RINGS else found
        return launched if self.state.step_latency_s == 0.0 or self.kind == "send" else launched + self._delays(links)

    def _delays(self, links: Links) -> Array:
        """What a network in a bad state adds to each of n - 1 steps, where a group spans more than two nodes."""
        size = links[-1].share.spanned
        return np.where(size / links[0].share.spanned > 2.0, (size - 1.0) * self.state.step_latency_s, 0.0)


def _fastest(candidates: Sequence[Candidate]) -> tuple[Array, Array]:
    """Return the least time, and the overhead that is in it."""
    least, overhead = np.asarray(candidates[0].total_s), np.asarray(candidates[0].overhead_s)
    for candidate in candidates[1:]:
        total = np.asarray(candidate.total_s)
        if candidate.overhead_s is not candidates[0].overhead_s:
            overhead = np.where(total < least, candidate.overhead_s, overhead)
        least = np.minimum(least, total)
    return least, overhead


def _candidate(algorithm: str, terms: Terms, overhead_s: Num, legal: NDArray[np.bool_] | bool = True) -> Candidate:
    by_level: dict[str, LevelTerm] = {}
    for t in terms:
        before = by_level.get(t.level)
        more = (t.latency_s, t.bandwidth_s)
        both = more if before is None else (before.latency_s + more[0], before.bandwidth_s + more[1])
        by_level[t.level] = LevelTerm(t.level, _plain(both[0]), _plain(both[1]))
    return Candidate(algorithm, tuple(by_level.values()), overhead_s, legal)


def _plain(value: Num) -> Num:
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else array


def _of(value: Num, groups: slice) -> Num:
    return value[groups] if isinstance(value, np.ndarray) else value


def _row(candidate: Candidate, plan: int) -> Candidate:
    terms = (LevelTerm(t.level, _entry(t.latency_s, plan), _entry(t.bandwidth_s, plan)) for t in candidate.terms)
    legal = bool(_entry(candidate.legal, plan))
    return Candidate(candidate.algorithm, tuple(terms), _entry(candidate.overhead_s, plan), legal)


def _entry(value: Num | NDArray[np.bool_], plan: int) -> float:
    array = np.asarray(value)
    return float(array.flat[plan if array.ndim else 0])
