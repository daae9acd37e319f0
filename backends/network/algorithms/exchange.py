"""All-to-all: each rank sends S in all, S/n of it to each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..topology.lanes import Pattern
from ..topology.layout import Array, LevelShare
from ..topology.links import LevelTerm, Links, NetworkLink, Price, Terms, levels_of
from .algorithm import Algorithm, Holder


def pairwise(volume: Array, links: Links) -> Terms:
    """One peer after the other: alpha_l + S/(n B_l) for each peer reached over level l.

    In a torus messages turn from one dimension into the next, which carry them at the same time.
    """
    return tuple(term for parts in levels_of(links) for term in _to_each(volume, parts, links, False))


def direct(volume: Array, links: Links) -> Terms:
    """All messages posted at once: alpha_l for each level, o for each peer, S/(n B_l) for each peer over level l."""
    return tuple(term for parts in levels_of(links) for term in _to_each(volume, parts, links, True))


def _to_each(volume: Array, parts: Sequence[NetworkLink], links: Links, at_once: bool) -> Terms:
    size, reach = links[-1].share.spanned, parts[-1].share.spanned
    # Of the peers that this level reaches, those in another place along one of its parts.
    peers = [(x.fanout - 1) / x.fanout * reach for x in parts]
    wires = [x.wire_s(Pattern.PAIRS, p / size * volume) for x, p in zip(parts, _carried(peers, parts), strict=True)]
    # Parts of one level carry at the same time: the busiest of them says how long the bytes take, and is shown with
    # them.
    busiest = np.argmax(np.stack(wires), axis=0)
    return tuple(
        LevelTerm(x.share.level.name, _latency(x, p, at_once), np.where(busiest == i, wire, 0.0))
        for i, (x, p, wire) in enumerate(zip(parts, peers, wires, strict=True))
    )


def _carried(peers: Sequence[Array], parts: Sequence[NetworkLink]) -> Sequence[Array]:
    """Peers whose bytes a part carries: in a dragonfly a host's own link has those of other groups, too."""
    if parts[0].share.level.dragonfly is None:
        return peers
    return [parts[-1].share.spanned - parts[0].inside, *peers[1:]]


def _latency(link: NetworkLink, peers: Array, at_once: bool) -> Array:
    if not at_once:
        return peers * link.step_s(Pattern.PAIRS)
    # Messages posted at once share one latency; posting each still costs the sender a moment.
    issue_s = link.constants.issue_s if link.constants else 0.0
    return np.where(peers > 0, link.step_s(Pattern.PAIRS), 0.0) + peers * issue_s


def staged(volume: Array, links: Links) -> Terms:
    """Level by level: (n_l - 1) alpha_l + (n_l - 1)/n_l S/B_l, fewer and larger messages."""
    return tuple(x.term(x.fanout - 1, (x.fanout - 1) / x.fanout * volume, Pattern.PEERS) for x in links)


def bruck(volume: Array, links: Links) -> Terms:
    """Level by level, ceil(log2 n_l) rounds that each pass on half of all: alpha_l + S/(2 B_l) (Bruck et al. 1997)."""
    return tuple(x.term(x.depth, x.depth * volume / 2, Pattern.SWAP) for x in links)


def node_limited(across: float, node_size: int) -> Price:
    """Level by level, a row going to each node once and being copied to its goals there.

    As `staged`, with `across` of the bytes on the levels outside of a node, and all of them inside (DeepSeek-V3, arXiv
    2412.19437, section 3.2).
    """

    def price(volume: Array, links: Links) -> Terms:
        sent = [volume if _in_node(x.share, node_size) else volume * across for x in links]
        return tuple(staged(v, (x,))[0] for v, x in zip(sent, links, strict=True))

    return price


def _in_node(share: LevelShare, node_size: int) -> bool:
    return share.level.size is not None and share.level.size <= node_size


ALGORITHMS = (
    Algorithm("pairwise", Holder.LIBRARY, {"all_to_all": pairwise}),
    Algorithm("staged", Holder.LIBRARY, {"all_to_all": staged}),
    Algorithm("direct", Holder.PAPER, {"all_to_all": direct}),
    Algorithm("bruck", Holder.PAPER, {"all_to_all": bruck}),
)
