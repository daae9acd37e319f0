"""What no algorithm beats: the least steps, the least bytes through a rank and through the middle of a network."""

from __future__ import annotations

import numpy as np

from slipstick.backends.network.topology.layout import Array

# Parts of the vector that a rank must send or take in for the collectives that move S/n to or from each other rank.
_SPREAD = frozenset(("all_gather", "reduce_scatter", "all_to_all", "ring_gather", "ring_scatter"))


def latency_bound(kind: str, group_size: Array, latency_s: float, at_once: int = 1) -> Array:
    """Return the least time for empty messages: ceil(log2 n) alpha; to one other rank alpha.

    What a rank has reaches at most twice as many with every step, or k + 1 times with `at_once` messages of k: an
    algorithm that posts one to each other rank at once is bound by a single step. A group of one takes no time.

    >>> latency_bound("all_reduce", np.array([1.0, 2.0, 8.0, 9.0]), 1e-6).tolist()
    [0.0, 1e-06, 3e-06, 4e-06]
    """
    n = np.maximum(group_size, 1.0)
    # Rounded off first, so that 8 is exactly three doublings.
    doublings = np.round(np.log(n) / np.log(at_once + 1), 9)
    steps = np.where(n > 1, 1.0, 0.0) if kind == "send" else np.ceil(doublings)
    return steps * latency_s


def bandwidth_bound(
    kind: str, group_size: Array, num_bytes: Array, bytes_per_s: float, reducing: bool = False
) -> Array:
    """Return the least time of S bytes when a rank sends and takes in `bytes_per_s`, over all its links together.

    All-reduce 2 (n-1)/n S/B, or S/B where switches reduce; all-gather, reduce-scatter and all-to-all (n-1)/n S/B;
    broadcast and send S/B.

    >>> bandwidth_bound("all_reduce", np.array([1.0, 4.0]), np.array(1e9), 1e9).tolist()
    [0.0, 1.5]
    """
    n = np.maximum(group_size, 1.0)
    spread = (n - 1) / n
    if kind == "all_reduce":
        parts = np.where(n > 1, np.minimum(2 * spread, 1.0 if reducing else 2.0), 0.0)
    else:
        parts = spread if kind in _SPREAD else np.where(n > 1, 1.0, 0.0)
    return parts * num_bytes / bytes_per_s


def bisection_bound(group_size: Array, num_bytes: Array, bisection_bytes_per_s: float) -> Array:
    """Return the least time of an all-to-all: half of the ranks send half of what they have through the middle.

    n/2 x S/2 over the bandwidth one way between two halves; for odd n, (n^2 - 1)/4 x S/n.

    >>> bisection_bound(np.array(8.0), np.array(1e9), 50e9).item()
    0.04
    """
    n = np.maximum(group_size, 1.0)
    crossing = np.floor(n / 2) * np.ceil(n / 2) / n
    return crossing * num_bytes / bisection_bytes_per_s
