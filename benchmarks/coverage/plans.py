"""A traced graph under a few plans: whether it is lowered and estimated, and whether work a GPU grows with replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slipstick import Defaults, Family, Plan, estimate, load_system, lower, make_plan
from slipstick.frontend.failures import first_line
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Workload

SEQ = 1024
_REPLICAS = 64
# What compute of a GPU may be with 64 replicas, over that with one.
MOST_GROWTH = 1.10
# What messages take from compute.
_LENT = "compute.lent_sms"


@dataclass(frozen=True, slots=True)
class Degrees:
    """GPUs, how they are dealt out, and how much is recomputed."""

    num_gpus: int = 1
    tp: int = 1
    pp: int = 1
    recompute: str = "none"

    def plan(self, workload: Workload) -> Plan:
        """Return the plan: one sequence a micro-batch, in training two of them a replica."""
        defaults = Defaults(kernels="eager", policy=Family(workload=workload, recompute=self.recompute))
        return make_plan(
            num_gpus=self.num_gpus, tp=self.tp, pp=self.pp, seq_len=1 if workload is Workload.DECODE else SEQ,
            kv_len=SEQ if workload is Workload.DECODE else 0, family=defaults,
            global_batch=2 * self.num_gpus // (self.tp * self.pp) if workload is Workload.TRAIN else None,
        )  # fmt: skip


# What every graph is put under, by name; recomputation is of training alone.
PLANS: Mapping[str, Degrees] = MappingProxyType(
    {
        "dp 1": Degrees(),
        f"dp {_REPLICAS}": Degrees(_REPLICAS),
        "tp 2": Degrees(2, tp=2),
        "pp 2": Degrees(2, pp=2),
        "recompute full": Degrees(recompute="full"),
    }
)


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of a graph under the plans.

    Attributes:
        why_not: why a plan gave no estimate, by the plan's name.
        growth: compute of a GPU with 64 replicas over that with one; 0 where one of the two is missing.
    """

    why_not: dict[str, str] = field(default_factory=dict)
    growth: float = 0.0


def planned(graph: Graph) -> Planned:
    """Lower and estimate a graph under each plan; what is no error of ours is said to be internal."""
    why_not: dict[str, str] = {}
    computes: dict[str, float] = {}
    for name, degrees in PLANS.items():
        if degrees.recompute != "none" and graph.workload is not Workload.TRAIN:
            continue
        try:
            computes[name] = _compute_s(graph, degrees.plan(graph.workload))
        except SlipstickError as error:
            why_not[name] = " ".join(str(error).split())
        except Exception as error:
            why_not[name] = f"internal: {first_line(error)}"
    one, many = (computes.get(f"dp {n}", 0.0) for n in (1, _REPLICAS))
    return Planned(why_not, round(many / one, 4) if one and many else 0.0)


def _compute_s(graph: Graph, plan: Plan) -> float:
    """Seconds of compute of a GPU; whether all fits into its memory is not asked."""
    found = estimate(graph, load_system("dgx-h100"), plan, lowered=lower(graph, plan.family))
    return sum(seconds for name, seconds in found.breakdown_s.items() if name.startswith("compute") and name != _LENT)


__all__ = ["MOST_GROWTH", "PLANS", "SEQ", "Planned", "planned"]
