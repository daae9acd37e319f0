"""Algorithms that go level by level: scatter inwards to outwards, and gather back the same way.

Level l of n_l members has S/m_l of the vector by the time that the m_l ranks inside of each have scattered theirs. On a
torus the dimensions are such levels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .lanes import Pattern
from .layout import Array
from .links import LevelTerm, Link, Links, Price, Terms

# Steps and bytes, as a multiple of the vector, of scattering or gathering once over n members.
Method: TypeAlias = Callable[[Link], tuple[Array, Array]]


def _ring(link: Link) -> tuple[Array, Array]:
    """N - 1 steps of S/n."""
    return link.fanout - 1, (link.fanout - 1) / link.fanout


def _direct(link: Link) -> tuple[Array, Array]:
    """All shares at once, one step."""
    return np.where(link.fanout > 1, 1.0, 0.0), (link.fanout - 1) / link.fanout


def _halving(link: Link) -> tuple[Array, Array]:
    """log2 n steps of S/2, S/4, ...; members beyond a power of 2 first give theirs to one of it: alpha + S/B."""
    n = link.fanout
    power = np.exp2(np.floor(np.log2(n)))
    beyond = np.where(n > power, 1.0, 0.0)
    return np.log2(power) + beyond, (power - 1) / power + beyond


def _bruck(link: Link) -> tuple[Array, Array]:
    """ceil(log2 n) steps that double what each has (Bruck et al. 1997)."""
    return link.depth, (link.fanout - 1) / link.fanout


METHODS: dict[str, tuple[Method, Pattern]] = {
    "ring": (_ring, Pattern.RING),
    "both": (_ring, Pattern.BOTH),
    "direct": (_direct, Pattern.PEERS),
    "halving": (_halving, Pattern.SWAP),
    "bruck": (_bruck, Pattern.SWAP),
}


def scattered(method: str, passes: int) -> Price:
    """Scatter, or gather, level by level; two passes make an all-reduce."""
    return lambda volume, links: tuple(_once(method, passes, volume, x) for x in links)


def _once(method: str, passes: int, volume: Array, link: Link) -> LevelTerm:
    count, pattern = METHODS[method]
    steps, moved = count(link)
    return link.term(passes * steps, passes * moved * volume / link.inside, pattern)


def hierarchical_tree(volume: Array, links: Links) -> Terms:
    """All-reduce by a double tree on the outermost part spanned, between ring passes on those below."""
    return tuple(_if_top(x, _tree(x, volume), _once("ring", 2, volume, x)) for x in links)


def _if_top(link: Link, top: LevelTerm, below: LevelTerm) -> LevelTerm:
    latency = np.where(link.is_top, top.latency_s, below.latency_s)
    return LevelTerm(top.level, latency, np.where(link.is_top, top.bandwidth_s, below.bandwidth_s))


def _tree(link: Link, volume: Array) -> LevelTerm:
    return link.term(2 * link.depth, 2 * volume / link.inside, Pattern.SWAP)


def recursive_doubling(volume: Array, links: Links) -> Terms:
    """All-reduce in log2 n steps of the whole vector; beyond a power of 2 two more."""
    return tuple(_doubled(x, volume) for x in links)


def _doubled(link: Link, volume: Array) -> LevelTerm:
    floor = np.floor(np.log2(link.fanout))
    steps = floor + 2 * (link.depth - floor)
    return link.term(steps, steps * volume, Pattern.SWAP)


def binomial_tree(volume: Array, links: Links) -> Terms:
    """Broadcast: ceil(log2 n_l) (alpha_l + S/B_l) a part."""
    return tuple(x.term(x.depth, x.depth * volume, Pattern.SWAP) for x in links)


def in_network(passes: int, whole: bool) -> Price:
    """Switches reduce and copy on the levels that can: alpha_sw and S/B a pass, with `whole` in one pass of S.

    An all-reduce takes 2 alpha_sw + S/B on the outermost part spanned (NVLS, SHARP); the parts below it scatter before
    and gather after, by the switches where those can, else in rings.
    """

    def price(volume: Array, links: Links) -> Terms:
        return tuple(_switched(passes, whole, volume, x) for x in links)

    return price


def _switched(passes: int, whole: bool, volume: Array, link: Link) -> LevelTerm:
    seconds = link.share.level.reduction_latency_s
    if seconds is None:
        return _once("ring", passes, volume, link)
    n = link.fanout
    used = np.where(n > 1, 1.0, 0.0)
    part = np.where(link.is_top & whole, used, passes * (n - 1) / n)
    return LevelTerm(
        link.share.level.name, passes * used * seconds, link.wire_s(Pattern.RING, part * volume / link.inside)
    )
