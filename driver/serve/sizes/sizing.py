"""What is asked of a size, and what is found: plans that answer everything in time, and shapes that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....backends.machine.software.engine import Engine
from ....cost.flops import Convention
from ....cost.serving.metrics import ServingMetrics
from ....cost.serving.slo import SLO
from ....cost.serving.traffic.requests import Lengths
from ....ir.errors import UsageError
from ....ir.plan import Plan
from ....ir.records import dataclass
from ..answer import ServeEstimate
from ..load import Load
from ..pools import Pools
from ..serve import serve
from ..serve_pools import serve_pools
from ..server import Server
from ..tables import ServedModel
from .shapes import ReplicaShape

# Graphs of a shape and its plan with one replica; PlanError or NotBuiltError where there is none.
Lower = Callable[[ReplicaShape], tuple[ServedModel, Plan]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be answered.

    Attributes:
        requests_per_s: that come, at random.
        target: latencies they may have, as means.
        lengths: of each of them.
        engine: what serves.
        most_gpus: devices that may be bought.
        convention: how masked attention counts in FLOPs.
    """

    requests_per_s: float
    target: SLO
    lengths: Lengths
    engine: Engine
    most_gpus: int = 10**6
    convention: Convention = Convention.FULL

    def __post_init__(self) -> None:
        """UsageError for no requests."""
        if not 0 < self.requests_per_s < float("inf"):
            raise UsageError(f"target of {self.requests_per_s:g} requests/s; allowed: more than 0")


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What simulated requests had of a plan.

    Attributes:
        ttft_s: TTFT at the percentile of the limit, or its mean.
        tpot_s: TPOT likewise; not a number where answers have one token.
        num_requests: that were answered.
        predicted_ttft_s: the closed form of the same.
        predicted_tpot_s: likewise.
        added: devices that the closed form had not asked for.
    """

    ttft_s: float
    tpot_s: float
    num_requests: int
    predicted_ttft_s: float
    predicted_tpot_s: float
    added: int = 0

    def meets(self, target: SLO) -> bool:
        """Whether both limits are kept."""
        ttft_s, tpot_s = target.bounds
        return self.ttft_s <= ttft_s and not self.tpot_s > tpot_s


@dataclass(frozen=True, slots=True)
class SizedPlan:
    """A plan that answers everything.

    Attributes:
        shapes: of a replica; or of workers of prompts and of those of answers.
        most_per_s: requests that it answers within the target.
        server: replicas that do all of the work, or those that decode.
        pools: disaggregated prefill and decode; None where replicas do both.
        confirmed: what simulated requests had of it, without what is spare; None where none were.
        spare: replicas beyond those that the load takes, of pools so many of each.
    """

    shapes: tuple[ReplicaShape, ...]
    most_per_s: float
    server: Server
    pools: Pools | None = None
    confirmed: Confirmed | None = None
    spare: int = 0

    @property
    def copies(self) -> int:
        """How often the last of its shapes is there."""
        return self.server.num_replicas // self.shapes[-1].dp

    @property
    def name(self) -> str:
        """As people write it: `3 x (tp4)`."""
        last = f"{self.copies} x ({self.shapes[-1]})"
        if self.pools is None:
            return last
        return f"{self.pools.prefill.num_replicas} x ({self.shapes[0]}) prefill + {last} decode"

    @property
    def num_gpus(self) -> int:
        """Devices in all."""
        return self.server.plan.num_gpus if self.pools is None else self.pools.num_gpus

    def at_limits(self, answer: ServeEstimate, target: SLO) -> tuple[float, float]:
        """Return TTFT and TPOT at the limits' percentiles, or means, of simulated requests or else the closed form."""
        if self.confirmed is not None:
            return self.confirmed.ttft_s, self.confirmed.tpot_s
        first, gap = target.seen(answer.found)
        return float(first), float(gap)

    def answer(self, question: Question) -> ServeEstimate:
        """Return the whole answer at the rate that is asked for."""
        load = Load(requests_per_s=question.requests_per_s)
        if self.pools is not None:
            return serve_pools(self.pools, question.lengths, load, question.target)
        return serve(self.server, question.lengths, load, question.target)


@dataclass(frozen=True, slots=True)
class Missed:
    """A shape that does not, and the least latencies that one request alone has on it; None where it does not fit."""

    shape: ReplicaShape
    why: str
    alone: ServingMetrics | None = None


@dataclass(frozen=True, slots=True)
class Sizing:
    """What was found: the choices, fewest devices first, and what misses the target."""

    question: Question
    choices: tuple[SizedPlan, ...]
    missed: tuple[Missed, ...]

    def answers(self, most: int) -> Iterator[ServeEstimate]:
        """Yield the whole answers of the first choices."""
        return (choice.answer(self.question) for choice in self.choices[:most])
