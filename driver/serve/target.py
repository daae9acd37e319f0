"""What is asked of a server's latencies, and whether it is met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.slo import SLO
from ...ir.errors import UsageError
from ...ir.units import format_time


@dataclass(frozen=True, slots=True)
class Target:
    """Mean latencies that requests may have at most; None where anything goes.

    Attributes:
        ttft_s: to the first token.
        tpot_s: of each token behind it.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no request can meet."""
        for name, value in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s)):
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"{name} {value:g} s; allowed: more than 0 s")

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return self.ttft_s is not None or self.tpot_s is not None

    def __str__(self) -> str:
        """As people write it: `TTFT <= 500 ms, TPOT <= 30 ms`."""
        asked = (("TTFT", self.ttft_s), ("TPOT", self.tpot_s))
        return ", ".join(f"{name} <= {format_time(s)}" for name, s in asked if s is not None)

    @property
    def slo(self) -> SLO:
        """The same with numbers for what anything goes."""
        return SLO(
            ttft_s=np.inf if self.ttft_s is None else self.ttft_s, tpot_s=np.inf if self.tpot_s is None else self.tpot_s
        )

    def meets(self, found: ServingMetrics) -> NDArray[np.bool_]:
        """Return where latencies are within what is asked; an answer of one token has no TPOT."""
        return np.asarray(self.slo.met_by(found))


ANYTHING = Target()


def latencies_text(found: ServingMetrics) -> str:
    """Return `TTFT 80 ms and TPOT 12 ms`."""
    first, gap = format_time(float(found.ttft_s)), float(found.tpot_s)
    return f"TTFT {first}" if np.isnan(gap) else f"TTFT {first} and TPOT {format_time(gap)}"
