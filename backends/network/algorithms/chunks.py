"""Algorithms in chunks: the parts of the network work at the same time, each on another chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..topology.layout import Array
from ..topology.links import LevelTerm, Links, NetworkLink, Price, Terms, levels_of
from .algorithm import Algorithm, Holder, passes
from .levelwise import BOTH, DIRECT, RING, Method, scattered

# Numbers of chunks that a pipeline over levels is tried with.
CHUNKS = (2, 4, 8, 16, 32, 64, 128)


def chunked(price: Price) -> Price:
    """Run the parts of an algorithm one behind the other over q chunks: sum_l T_l(S/q) + (q-1) max_l T_l(S/q)."""

    def best(volume: Array, links: Links) -> Terms:
        # Small q leaves parts of the network idle, large q pays latency q times: the best one depends on S, so all
        # are tried.
        tried = [_in_chunks(price(volume / q, links), q) for q in CHUNKS]
        totals = np.stack([sum((t.latency_s + t.bandwidth_s for t in terms), start=np.zeros(())) for terms in tried])
        at = np.argmin(totals, axis=0)
        return tuple(_pick([terms[i] for terms in tried], at) for i in range(len(links)))

    return best


def _in_chunks(terms: Terms, chunks: int) -> Terms:
    times = np.stack([np.asarray(t.latency_s + t.bandwidth_s) for t in terms])
    # Once the pipeline is full, one chunk leaves it every time that the slowest part is done with one.
    slowest = np.argmax(times, axis=0)
    repeats = [np.where(slowest == i, chunks, 1) for i in range(len(terms))]
    return tuple(LevelTerm(t.level, t.latency_s * r, t.bandwidth_s * r) for t, r in zip(terms, repeats, strict=True))


def rotated(num: int, method: Method) -> Price:
    """All dimensions of a torus, mesh or HyperX at once: of D chunks each starts in another one.

    The bucket algorithm on several ports of Jain and Sabharwal (ICS 2010) and Sack and Gropp (TOPC 2015).

    In every turn chunk j is in dimension i + j, and the turn takes as long as the slowest chunk. For D equal dimensions
    of k: D (k - 1) steps and (N-1)/N S/D bytes at the bandwidth of one.
    """

    def price(volume: Array, links: Links) -> Terms:
        return tuple(term for parts in levels_of(links) for term in _turns(num, method, volume, parts))

    return price


def _turns(num: int, method: Method, volume: Array, parts: Sequence[NetworkLink]) -> Terms:
    if len(parts) == 1:
        return (_chunk(num, method, volume, parts, 0, 0),)
    # Groups of a dragonfly are no dimensions: what goes to all of one at once goes through the same port.
    method = method if parts[0].share.level.dims else BOTH
    return tuple(_turn(num, method, volume, parts, i) for i in range(len(parts)))


def _turn(num: int, method: Method, volume: Array, parts: Sequence[NetworkLink], index: int) -> LevelTerm:
    dims = len(parts)
    chunks = [_chunk(num, method, volume, parts, first, index) for first in range(dims)]
    times = np.stack([np.asarray(t.latency_s + t.bandwidth_s) for t in chunks])
    return _pick(chunks, np.argmax(times, axis=0))


def _chunk(num: int, method: Method, volume: Array, parts: Sequence[NetworkLink], first: int, index: int) -> LevelTerm:
    """The part of one chunk in one turn: what it scattered before, over the parts it passed, is no longer with it."""
    dims = len(parts)
    here = parts[(first + index) % dims]
    # Each dimension that a chunk has been through divided it by the ranks along that dimension.
    passed = parts[0].inside
    for turn in range(index):
        passed = passed * parts[(first + turn) % dims].fanout
    steps, moved = method.work(here)
    return here.term(num * steps, num * moved * volume / dims / passed, method.pattern)


def _pick(terms: Sequence[LevelTerm], at: NDArray[np.intp]) -> LevelTerm:
    latency = np.stack([np.asarray(t.latency_s) for t in terms])
    bandwidth = np.stack([np.asarray(t.bandwidth_s) for t in terms])
    row = np.asarray(at)[None]
    return LevelTerm(terms[0].level, np.take_along_axis(latency, row, 0)[0], np.take_along_axis(bandwidth, row, 0)[0])


ALGORITHMS = (
    Algorithm("concurrent_dimensions", Holder.PAPER, passes(lambda num: rotated(num, BOTH))),
    Algorithm("concurrent_direct", Holder.PAPER, passes(lambda num: rotated(num, DIRECT))),
    Algorithm("pipelined_hierarchical", Holder.PAPER, passes(lambda num: chunked(scattered(RING, num)))),
)
