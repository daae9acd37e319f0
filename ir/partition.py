"""A row of blocks cut into consecutive parts: evenly, with the dearest as cheap as can be, or filled one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import PlanError

Array = NDArray[np.float64]


def even_parts(num_blocks: int, num_parts: int) -> tuple[int, ...]:
    """Return part sizes that differ by one at most; the larger ones stand in the middle.

    The first and the last part also carry the embedding and the head, so they get no extra block while others can.

    >>> even_parts(126, 16)
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    """
    size, rest = divmod(num_blocks, num_parts)
    start = (num_parts - rest) // 2
    return tuple(size + (start <= k < start + rest) for k in range(num_parts))


def balanced_parts(costs: Sequence[float], num_parts: int, first: float = 0.0, last: float = 0.0) -> tuple[int, ...]:
    """Return part sizes with the least dearest part; among those, the ones with the least sum of squares.

    Args:
        costs: cost of each block, in order, none negative.
        num_parts: parts, at least one block each unless the part carries `first` or `last`.
        first: what the first part costs on top (embedding).
        last: what the last part costs on top (head and loss).

    Raises:
        PlanError: more parts than blocks can fill.

    >>> balanced_parts([1.0] * 8, 3, last=2.0)
    (3, 3, 2)
    """
    if num_parts > len(costs) + (last > 0.0) or num_parts < 1:
        raise PlanError(f"{len(costs)} blocks cannot fill {num_parts} stages; legal: 1 to {len(costs)}")
    spans = [_span_costs(costs, k, num_parts, first, last) for k in range(num_parts)]
    ceiling = _least(spans, np.maximum)[0]
    squares = [np.where(s <= ceiling * (1.0 + 1e-12), s * s, np.inf) for s in spans]
    return _sizes(_least(squares, np.add)[1], len(costs))


def filled_parts(costs: Sequence[float], num_parts: int, last: float = 0.0) -> tuple[int, ...]:
    """Return part sizes where each part takes blocks until the running cost reaches the part's share of the whole.

    So the first parts get the larger sizes, and the last ones may stay empty. `last` is what comes behind the blocks
    (head and loss).

    >>> filled_parts([1.0] * 16, 8, last=4.0)
    (3, 2, 3, 2, 3, 2, 1, 0)
    """
    share = (sum(costs) + last) / num_parts
    sizes, reached = [0] * num_parts, 0.0
    part = 0
    for cost in costs:
        sizes[part] += 1
        reached += cost
        part += part < num_parts - 1 and reached >= share * (part + 1) * (1.0 - 1e-12)
    return tuple(sizes)


def _span_costs(costs: Sequence[float], part: int, num_parts: int, first: float, last: float) -> Array:
    """Cost of a part that takes blocks i to j-1, as a matrix (i, j); infinite where it may not."""
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(costs, dtype=np.float64))])
    extra = (first if part == 0 else 0.0) + (last if part == num_parts - 1 else 0.0)
    span = sums[None, :] - sums[:, None] + extra
    order = np.arange(len(sums))
    fewest = 0 if part == num_parts - 1 and last > 0.0 else 1
    span[order[None, :] - order[:, None] < fewest] = np.inf
    return np.asarray(span)


def _least(spans: Sequence[Array], join: np.ufunc) -> tuple[float, list[NDArray[np.intp]]]:
    """Return the least joined cost of all blocks, and for each part and end the best start."""
    reached = np.full(len(spans[0]), np.inf)
    reached[0] = 0.0
    starts = []
    for span in spans:
        ways = join(reached[:, None], span)
        starts.append(np.argmin(ways, axis=0))
        reached = ways.min(axis=0)
    return float(reached[-1]), starts


def _sizes(starts: Sequence[NDArray[np.intp]], num_blocks: int) -> tuple[int, ...]:
    found: list[int] = []
    end = num_blocks
    for start in reversed(starts):
        found.append(end - int(start[end]))
        end = int(start[end])
    return tuple(reversed(found))
