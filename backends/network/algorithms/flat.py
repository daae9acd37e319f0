"""Algorithms that treat a group as one row of ranks: rings, trees, chains. All parts of the network work at once."""

from __future__ import annotations

import numpy as np

from ..topology.lanes import Pattern
from ..topology.layout import Array
from ..topology.links import LevelTerm, Links, NetworkLink, Price, Terms, pipelined
from .algorithm import Algorithm, Holder, passes


def ring(passes: int, pattern: Pattern = Pattern.RING) -> Price:
    """Each pass takes n - 1 steps of S/n: one for reduce-scatter or all-gather, two for all-reduce.

    A step costs the latency of the hop it takes: of the n - 1 hops, (n_l - 1) prod_{j>l} n_j cross part l.
    In all, (n-1)/n S goes through the narrowest part.
    """

    def price(volume: Array, links: Links) -> Terms:
        size = links[-1].share.spanned
        # Neighbours in a ring lie along the innermost part, but for the hops from one group of them to the next.
        hops = [passes * (x.fanout - 1) * x.share.outside for x in links]
        return pipelined(hops, passes * (size - 1) / size * volume, links, pattern)

    return price


def neighbours(volume: Array, links: Links) -> Terms:
    """Blocks of S/n passed on n - 1 times, each step a message of its own: n - 1 times S/n at the narrowest part."""
    size = links[-1].share.spanned
    hops = [(x.fanout - 1) * x.share.outside for x in links]
    block = pipelined(hops, volume / size, links, Pattern.SEND)
    return tuple(LevelTerm(t.level, t.latency_s, t.bandwidth_s * (size - 1)) for t in block)


def double_tree(volume: Array, links: Links) -> Terms:
    """All-reduce over two trees of half the vector each: 2 ceil(log2 n_l) alpha_l, 2 S/B at the narrowest.

    Ranks of a tree are not neighbours but pairs at doubling distance, which counts where they have wires of their own.
    Trees of NCCL are chains inside of a node, whose ranks are the innermost part: 2 (n_1 - 1) alpha_1 there
    (`src/graph/tuning.cc`: 2 ((ranks of a node - 1) alpha + log2(nodes) alpha')).
    """
    return pipelined([2 * _tree_steps(x, x is links[0]) for x in links], 2 * volume, links, Pattern.SWAP)


def _tree_steps(link: NetworkLink, innermost: bool) -> Array:
    return link.fanout - 1 if innermost and link.constants is not None else link.depth


def chain(volume: Array, links: Links) -> Terms:
    """Broadcast along a chain in q chunks: n - 1 hops, then q - 1 more chunks over the outermost part.

    The narrowest part moves (n - 2 + q)/q S. The best q is sqrt((n - 2) S / (alpha B)), at least 1.
    """
    further = links[-1].share.spanned - 2
    # Without latency the best number of chunks has no bound; a picosecond keeps it finite.
    alpha_s = np.maximum(sum(x.is_top * x.step_s(Pattern.RING) for x in links), 1e-12)
    whole_s = np.maximum.reduce([np.where(x.is_spanned, x.wire_s(Pattern.RING, volume / x.inside), 0.0) for x in links])
    # d/dq of (n - 2 + q) alpha + (n - 2 + q)/q S/B is zero there.
    chunks = np.maximum(1.0, np.sqrt(np.maximum(further, 0.0) * whole_s / alpha_s))
    hops = [(x.fanout - 1) * x.share.outside + (chunks - 1) * x.is_top for x in links]
    return pipelined(hops, (further + chunks) / chunks * volume, links, Pattern.RING)


def scatter_gather(volume: Array, links: Links) -> Terms:
    """Broadcast by scattering, then gathering in a ring: (log2 n_l + n - 1) alpha, 2 (n-1)/n S/B (van de Geijn)."""
    size = links[-1].share.spanned
    hops = [x.depth + (x.fanout - 1) * x.share.outside for x in links]
    return pipelined(hops, 2 * (size - 1) / size * volume, links, Pattern.RING)


def send(volume: Array, links: Links) -> Terms:
    """Send: alpha + S/B of the outermost part spanned, where the slowest pair of neighbours lies."""
    return tuple(x.term(np.where(x.is_top, 1.0, 0.0), x.is_top * volume, Pattern.SEND) for x in links)


ALGORITHMS = (
    Algorithm("ring", Holder.LIBRARY, passes(ring)),
    Algorithm("double_tree", Holder.LIBRARY, {"all_reduce": double_tree}),
    Algorithm("chain", Holder.LIBRARY, {"broadcast": chain}),
    Algorithm("neighbours", Holder.LIBRARY, {"ring_gather": neighbours, "ring_scatter": neighbours}),
    Algorithm("two_way_ring", Holder.PAPER, passes(lambda num: ring(num, Pattern.BOTH))),
    Algorithm("scatter_gather", Holder.PAPER, {"broadcast": scatter_gather}),
    Algorithm("direct", Holder.PAPER, {"send": send}),
)
