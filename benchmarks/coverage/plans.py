"""A traced graph under a few plans: whether it is lowered and estimated, and whether work a GPU grows with replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slipstick import Defaults, Family, Plan, load_system, lower, make_plan
from slipstick.driver.estimate import estimate
from slipstick.frontend.record.failures import first_line
from slipstick.ir.errors import PlanError, SlipstickError
from slipstick.ir.graph import Graph, Workload

from ..markdown import by_reason

SEQ = 1024
_LONGEST = 1 << 15
_REPLICAS = 64
# What compute of a GPU may be with 64 replicas, over that with one.
MOST_GROWTH = 1.10
# What messages take from compute.
_LENT = "compute.lent_sms"


@dataclass(frozen=True, slots=True)
class Degrees:
    """GPUs, how they are distributed, and how much is recomputed."""

    num_gpus: int = 1
    tp: int = 1
    pp: int = 1
    recompute: str = "none"

    def plan(self, graph: Graph, sp: bool | None = None) -> Plan:
        """Return the plan: one sequence a micro-batch, in training two of them a replica."""
        workload, length = graph.workload, _length(graph)
        defaults = Defaults(kernels="eager", policy=Family(workload=workload, recompute=self.recompute), sp=sp)
        return make_plan(
            num_gpus=self.num_gpus, tp=self.tp, pp=self.pp, seq_len=1 if workload is Workload.DECODE else length,
            kv_len=length if workload is Workload.DECODE else 0, family=defaults,
            global_batch=2 * self.num_gpus // (self.tp * self.pp) if workload is Workload.TRAIN else None,
        )  # fmt: skip


def _length(graph: Graph) -> int:
    """Tokens of a plan: of a graph that does not hold for so many, the even number nearest by that it holds for."""
    bounds = [b for b in graph.bounds if b.name in ("seq", "kv")]
    held = (n for n in range(1, _LONGEST + 1) if all(b.holds(n) for b in bounds))
    return min(held, key=lambda n: (n % 2, abs(n - SEQ)), default=SEQ)


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

    @property
    def cell(self) -> str:
        """Under how many plans there is an estimate, `-` where there is no training step."""
        return str(len(PLANS) - len(self.why_not)) if self.growth or self.why_not else "-"

    @property
    def is_steady(self) -> bool:
        """Whether compute of a GPU is the same with many replicas."""
        return 0 < self.growth <= MOST_GROWTH

    @property
    def remarks(self) -> Iterator[str]:
        """Why a plan gave no estimate, and how much compute grows where it does."""
        yield from by_reason(self.why_not)
        if self.growth > MOST_GROWTH:
            yield f"compute of a GPU grows {self.growth:.2f}-fold with {_REPLICAS} replicas"


def planned(graph: Graph) -> Planned:
    """Lower and estimate a graph under each plan; what is no error of ours is said to be internal."""
    why_not: dict[str, str] = {}
    computes: dict[str, float] = {}
    for name, degrees in PLANS.items():
        if degrees.recompute != "none" and graph.workload is not Workload.TRAIN:
            continue
        try:
            computes[name] = _compute_s(graph, degrees)
        except SlipstickError as error:
            why_not[name] = " ".join(str(error).split())
        except Exception as error:
            why_not[name] = f"internal: {first_line(error)}"
    one, many = (computes.get(f"dp {n}", 0.0) for n in (1, _REPLICAS))
    return Planned(why_not, round(many / one, 4) if one and many else 0.0)


def _compute_s(graph: Graph, degrees: Degrees) -> float:
    """Seconds of compute of a GPU; whether all fits into its memory is not asked.

    Ranks of tensor parallelism share out the sequence, too, but where some length in the model is none that they can.
    """
    try:
        return _estimated_s(graph, degrees.plan(graph))
    except PlanError:
        if degrees.tp == 1:
            raise
        return _estimated_s(graph, degrees.plan(graph, sp=False))


def _estimated_s(graph: Graph, plan: Plan) -> float:
    found = estimate(graph, load_system("dgx-h100"), plan, lowered=lower(graph, plan.family))
    return sum(seconds for name, seconds in found.breakdown_s.items() if name.startswith("compute") and name != _LENT)


__all__ = ["MOST_GROWTH", "PLANS", "SEQ", "Planned", "planned"]
