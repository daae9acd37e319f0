"""Copies to and from the host: a stream a direction, of which only what no work hides is part of the step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...ir.ops.host import DOWN, UP

Array = NDArray[np.float64]


def of_a_phase(parts: Mapping[str, Array], busy: Array) -> tuple[Array, Array]:
    """Return seconds of copies in one phase of a micro-batch, and what of them is exposed.

    Both directions run at once, behind computation and the messages that it does not hide:
    exposed = max(0, max(down, up) - busy).
    """
    down, up = (parts.get(op, np.zeros_like(busy)) for op in (DOWN, UP))
    return down + up, np.maximum(np.maximum(down, up) - busy, 0.0)


def of_the_update(
    sums: Mapping[tuple[str, str], Array], last: Mapping[str, Array], backward: Array
) -> tuple[Array, Array]:
    """Return seconds of copies of the update, and what of them is exposed.

    Gradients go down behind the backward phase of the last micro-batch, weights come up behind the update of others;
    exposed is what does not fit there, and at least the copies of the first region, whose gradients come last.
    """
    zero = np.zeros_like(backward)
    down, up = (sums.get(("optimizer", op), zero) for op in (DOWN, UP))
    update = sums.get(("optimizer", "optimizer"), zero)
    exposed = _exposed(down, backward, last[DOWN]) + _exposed(up, update, last[UP])
    return down + up, exposed


def _exposed(spent: Array, window: Array, last: Array) -> Array:
    return np.asarray(np.minimum(spent, np.maximum(spent - window, last)))
