"""What of the nominal work is really done: pairs that a mask leaves, experts that get a row; on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


def touched_share(rows: Array, num_experts: Array) -> Array:
    """Return the expected part of the experts that at least one of `rows` evenly routed rows goes to.

    1 - (1 - 1/E)^rows: all of them in training, few in decode.

    >>> float(touched_share(np.array(1.0), np.array(8.0)))
    0.125
    """
    return np.asarray(1.0 - (1.0 - 1.0 / np.maximum(num_experts, 1.0)) ** rows)


def executed_share(
    q_len: Array, kv_len: Array, causal: bool | Flags, window: int | Array, balanced: bool | Flags = False
) -> Array:
    """Return the part of q_len x kv_len that a kernel that skips masked blocks computes.

    Queries are the last `q_len` positions of the `kv_len` keys. A query at position p sees min(p + 1, window) keys.
    Pairs are summed in closed form: without window sum_{i=1..q} (kv - q + i); with one, positions below the window
    see their prefix, the others `window` keys. Without `causal` a query sees `window` keys to either side as far as
    there are any: 1 + min(p, window) + min(kv - 1 - p, window). With `balanced` the queries are an even share of all
    positions. Where keys are fewer than queries (compressed attention) each stands for q / kv positions, and so many
    queries see as many keys as one would.

    >>> float(executed_share(np.array(4.0), np.array(4.0), True, 0))  # 10 of 16
    0.625
    >>> float(executed_share(np.array(1.0), np.array(1000.0), True, 100))
    0.1
    >>> float(executed_share(np.array(4.0), np.array(4.0), False, 1))  # 2 + 3 + 3 + 2 of 16
    0.625
    >>> float(executed_share(np.array(64.0), np.array(4.0), True, 0))  # 16 queries each see 1, 2, 3 and 4 keys
    0.625
    """
    if not np.any(causal) and not np.any(window):
        return np.ones_like(q_len * kv_len)
    q = np.where(balanced, kv_len, np.minimum(q_len, kv_len))
    first = kv_len - q
    if not np.any(window):
        return np.where(causal, (q * first + q * (q + 1.0) / 2.0) / (q * kv_len), 1.0)
    limit = np.where(np.asarray(window) > 0, np.asarray(window, dtype=np.float64), np.inf)
    grow = np.clip(np.minimum(limit, kv_len) - first, 0.0, q)
    growing = grow * first + grow * (grow + 1.0) / 2.0
    full = (q - grow) * np.where(np.isfinite(limit), limit, 0.0)
    return np.where(causal, growing + full, _pairs_both_ways(q, kv_len, limit)) / (q * kv_len)


def _pairs_both_ways(q: Array, kv_len: Array, window: Array) -> Array:
    """Return the pairs of the last `q` of `kv_len` positions with the keys at most `window` away on either side.

    sum_p 1 + min(p, w) + min(kv - 1 - p, w), where the first `n` whole numbers cut off at `w` add up to
    m (m - 1) / 2 + (n - m) w with m = min(n, w).
    """
    w = np.minimum(window, kv_len)

    def cut_off(n: Array) -> Array:
        few = np.minimum(n, w)
        return np.asarray(few * (few - 1.0) / 2.0 + (n - few) * w)

    return np.asarray(q + cut_off(kv_len) - cut_off(kv_len - q) + cut_off(q))
