"""Several sites that train one model over a slow link: local steps, and an outer step of all now and then (DiLoCo).

Each site runs H steps of its own, then all sites average what their weights have moved, and an outer optimizer
(Nesterov momentum) applies it. With P fragments, each is exchanged by itself, one every H/P steps, and may be on its
way while the next steps run.

Source: Douillard et al., DiLoCo, arXiv 2311.08105; Streaming DiLoCo, arXiv 2501.18512; INTELLECT-1, arXiv 2412.01152.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...ir.errors import PlanError, UsageError
from ...ir.records import dataclass

# Bytes of a parameter on its way between sites, and of what the outer optimizer keeps: the weights of the last
# exchange and a momentum, both fp32.
WIRE_BYTES: Mapping[str, float] = MappingProxyType({"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "fp4": 0.5})
OUTER_BYTES = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Sites that train together.

    Attributes:
        num: sites, each with the GPUs of the plan.
        every: steps between two outer steps of the same weights (H).
        bytes_per_s: that a site sends, and receives at the same time.
        latency_s: of a message between two sites.
        dtype: of what is exchanged.
        fragments: parts of the model that are exchanged apart (P).
        overlap: steps that go on while a fragment is on its way.
    """

    num: int
    every: int
    bytes_per_s: float
    latency_s: float = 0.0
    dtype: str = "fp32"
    fragments: int = 1
    overlap: int = 0

    def __post_init__(self) -> None:
        """Refuse what is not positive, and messages that are still on their way when the next begins."""
        if min(self.num, self.every, self.fragments) < 1 or self.overlap < 0:
            raise UsageError("--sites, --sync-every, --sync-fragments: 1 or more; --sync-overlap: 0 or more")
        if not 0 < self.bytes_per_s < float("inf") or not 0 <= self.latency_s < float("inf"):
            raise UsageError("--site-bandwidth: above 0; --site-latency: 0 or more")
        if self.dtype not in WIRE_BYTES:
            raise UsageError(f"--sync-dtype {self.dtype}; allowed: {', '.join(WIRE_BYTES)}")
        if self.every % self.fragments:
            raise PlanError(f"--sync-fragments {self.fragments} does not divide --sync-every {self.every}")
        if self.overlap > self.every // self.fragments:
            raise PlanError(
                f"--sync-overlap {self.overlap}: a fragment is exchanged every {self.every // self.fragments} steps "
                "(--sync-every / --sync-fragments), and the one before is there by then"
            )

    def over(self, step_s: float, num_gpus: int, num_parameters: float) -> SiteExchange:
        """Return what exchanges come to where a site has so many GPUs and a step of its own takes `step_s`.

        A ring over M sites: T = 2 (M - 1)/M S/(P B) + 2 (M - 1) L for each fragment of S/P bytes; what is left of it
        behind the steps that go on meanwhile, E = max(0, T - tau t), stops the site, P times in H steps of t.
        """
        hops = 2.0 * (self.num - 1)
        sent = hops / self.num * num_parameters * WIRE_BYTES[self.dtype]
        fragment_s = sent / self.fragments / self.bytes_per_s + hops * self.latency_s
        exposed_s = max(0.0, fragment_s - self.overlap * step_s)
        waiting_s = step_s + exposed_s * self.fragments / self.every
        return SiteExchange(
            sites=self,
            sent_bytes=sent,
            fragment_s=fragment_s,
            exposed_s=exposed_s,
            step_s=waiting_s,
            utilisation=step_s / waiting_s,
            outer_bytes=OUTER_BYTES * num_parameters / num_gpus,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteExchange:
    """What sites exchange, and what that costs.

    Attributes:
        sites: who exchanges, and how.
        sent_bytes: that each site sends in `every` steps.
        fragment_s: time of the exchange of a fragment.
        exposed_s: part of it in which a site waits.
        step_s: time of a step with its share of the waits.
        utilisation: share of the time in which sites compute.
        outer_bytes: states of the outer optimizer for each GPU, in the memory of its host.
    """

    sites: Sites
    sent_bytes: float
    fragment_s: float
    exposed_s: float
    step_s: float
    utilisation: float
    outer_bytes: float

    @property
    def metrics(self) -> Mapping[str, float]:
        """By the names of metrics."""
        return {
            "site_utilisation": self.utilisation,
            "site_sync_s": self.fragment_s,
            "site_wait_s": self.exposed_s,
            "site_sent_bytes": self.sent_bytes,
            "outer_state_bytes": self.outer_bytes,
        }
