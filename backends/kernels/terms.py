"""The answer of a kernel model: seconds, and the terms they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Times of kernels; all arrays broadcast to the shape of `time_s`.

    `terms` are seconds by name in reading order, what `--explain` shows. How they make up the time is the model's own:
    some add, some hide behind others.
    """

    time_s: Array
    terms: Mapping[str, Array]

    def bound(self, *index: int) -> str:
        """Name the greatest term."""
        at = {name: float(np.broadcast_to(t, self.time_s.shape)[index]) for name, t in self.terms.items()}
        return max(at, key=lambda name: at[name])
