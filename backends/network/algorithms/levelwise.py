"""Algorithms that go level by level: scatter inwards to outwards, and gather back the same way.

Level l of n_l members has S/m_l of the vector by the time that the m_l ranks inside of each have scattered theirs. On a
torus the dimensions are such levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from ..topology.lanes import Pattern
from ..topology.layout import Array
from ..topology.links import LevelTerm, Links, NetworkLink, Price, Terms
from .algorithm import Algorithm, Collective, Holder, passes

# Most ranks that NCCL gathers or scatters through switches.
_ARITY = 32
IN_NETWORK = "in_network"
IN_NETWORK_TREE = "in_network_tree"


def _ring(link: NetworkLink) -> tuple[Array, Array]:
    """N - 1 steps of S/n."""
    return link.fanout - 1, (link.fanout - 1) / link.fanout


def _direct(link: NetworkLink) -> tuple[Array, Array]:
    """All shares at once, one step."""
    return np.where(link.fanout > 1, 1.0, 0.0), (link.fanout - 1) / link.fanout


def _halving(link: NetworkLink) -> tuple[Array, Array]:
    """log2 n steps of S/2, S/4, ...; members beyond a power of 2 first give theirs to one of it: alpha + S/B."""
    n = link.fanout
    power = np.exp2(np.floor(np.log2(n)))
    beyond = np.where(n > power, 1.0, 0.0)
    return np.log2(power) + beyond, (power - 1) / power + beyond


def _bruck(link: NetworkLink) -> tuple[Array, Array]:
    """ceil(log2 n) steps that double what each has (Bruck et al. 1997)."""
    return link.depth, (link.fanout - 1) / link.fanout


class Method(NamedTuple):
    """Scattering or gathering once over n members: steps and bytes, as a multiple of the vector, and who talks."""

    work: Callable[[NetworkLink], tuple[Array, Array]]
    pattern: Pattern


RING, BOTH = Method(_ring, Pattern.RING), Method(_ring, Pattern.BOTH)
DIRECT = Method(_direct, Pattern.PEERS)


def scattered(method: Method, num: int) -> Price:
    """Scatter, or gather, level by level; two passes make an all-reduce."""
    return lambda volume, links: tuple(_once(method, num, volume, x) for x in links)


def _once(method: Method, num: int, volume: Array, link: NetworkLink) -> LevelTerm:
    steps, moved = method.work(link)
    return link.term(num * steps, num * moved * volume / link.inside, method.pattern)


def hierarchical_tree(volume: Array, links: Links) -> Terms:
    """All-reduce by a double tree on the outermost part spanned, between ring passes on those below."""
    return tuple(_if_top(x, _tree(x, volume), _once(RING, 2, volume, x)) for x in links)


def _if_top(link: NetworkLink, top: LevelTerm, below: LevelTerm) -> LevelTerm:
    latency = np.where(link.is_top, top.latency_s, below.latency_s)
    return LevelTerm(top.level, latency, np.where(link.is_top, top.bandwidth_s, below.bandwidth_s))


def _tree(link: NetworkLink, volume: Array) -> LevelTerm:
    return link.term(2 * link.depth, 2 * volume / link.inside, Pattern.SWAP)


def recursive_doubling(volume: Array, links: Links) -> Terms:
    """All-reduce in log2 n steps of the whole vector; beyond a power of 2 two more."""
    return tuple(_doubled(x, volume) for x in links)


def _doubled(link: NetworkLink, volume: Array) -> LevelTerm:
    floor = np.floor(np.log2(link.fanout))
    steps = floor + 2 * (link.depth - floor)
    return link.term(steps, steps * volume, Pattern.SWAP)


def binomial_tree(volume: Array, links: Links) -> Terms:
    """Broadcast: ceil(log2 n_l) (alpha_l + S/B_l) a part."""
    return tuple(x.term(x.depth, x.depth * volume, Pattern.SWAP) for x in links)


def in_network(num: int, whole: bool) -> Price:
    """Switches reduce and copy on the levels that can: alpha_sw and S/B a pass, with `whole` in one pass of S.

    An all-reduce takes 2 alpha_sw + S/B on the outermost part spanned (NVLS, SHARP); the parts below it scatter before
    and gather after, by the switches where those can, else in rings. A library drives its all-gather and reduce-scatter
    through switches for up to 32 ranks (NCCL 2.29: NCCL_MAX_NVLS_ARITY); more go in rings.
    """

    def price(volume: Array, links: Links) -> Terms:
        return tuple(_switched(num, whole, volume, x) for x in links)

    return price


def _switched(num: int, whole: bool, volume: Array, link: NetworkLink) -> LevelTerm:
    ring = _once(RING, num, volume, link)
    if link.share.level.reduction_latency_s is None:
        return ring
    # At the top one pass both reduces and copies; below it each rank has only its share, and scatters or gathers
    # that.
    n = link.fanout
    part = np.where(link.is_top & whole, np.where(n > 1, 1.0, 0.0), num * (n - 1) / n)
    switched = link.switched(num, part * volume / link.inside)
    if whole or link.constants is None:
        return switched
    # Beyond the arity of its switches the library falls back to rings, whatever those would have cost.
    many = n > _ARITY
    latency = np.where(many, ring.latency_s, switched.latency_s)
    return LevelTerm(ring.level, latency, np.where(many, ring.bandwidth_s, switched.bandwidth_s))


def in_network_tree(volume: Array, links: Links) -> Terms:
    """All-reduce by switches inside of the innermost part, and a double tree over what is outside (NVLS tree of NCCL).

    2 alpha_sw inside and 2 ceil(log2 n_l) alpha_l outside; S/B inside and 2 S/(m B) outside run at the same time, so
    that the narrowest counts (NCCL 2.29, `src/graph/tuning.cc`: the lesser of the two bandwidths).
    """
    # Switches of a node take all of S in one pass, and m ranks of a node share what goes out of it: S/m each.
    inner, *outer = links
    first = inner.switched(2, np.where(inner.is_spanned, 1.0, 0.0) * volume)
    trees = [_tree(x, np.where(x.is_spanned, 1.0, 0.0) * volume) for x in outer]
    narrowest = np.stack([np.asarray(t.bandwidth_s) for t in (first, *trees)]).argmax(axis=0)
    return tuple(
        LevelTerm(t.level, t.latency_s, np.where(narrowest == i, t.bandwidth_s, 0.0))
        for i, t in enumerate((first, *trees))
    )


_IN_NETWORK: Mapping[Collective, Price] = {
    **passes(lambda num: in_network(num, whole=num == 2)),
    "broadcast": in_network(1, whole=True),
}
ALGORITHMS = (
    Algorithm("hierarchical_ring", Holder.LIBRARY, passes(partial(scattered, RING))),
    Algorithm("hierarchical_tree", Holder.LIBRARY, {"all_reduce": hierarchical_tree}),
    Algorithm("binomial_tree", Holder.LIBRARY, {"broadcast": binomial_tree}),
    Algorithm("hierarchical_two_way_ring", Holder.PAPER, passes(partial(scattered, BOTH))),
    Algorithm("halving_doubling", Holder.PAPER, passes(partial(scattered, Method(_halving, Pattern.SWAP)))),
    Algorithm("recursive_doubling", Holder.PAPER, {"all_reduce": recursive_doubling}),
    Algorithm("direct", Holder.PAPER, passes(partial(scattered, DIRECT))),
    Algorithm("bruck", Holder.PAPER, {"all_gather": scattered(Method(_bruck, Pattern.SWAP), 1)}),
    Algorithm(IN_NETWORK, Holder.SWITCH, _IN_NETWORK),
    Algorithm(IN_NETWORK_TREE, Holder.SWITCH, {"all_reduce": in_network_tree}),
)
