"""Memory policies priced in full: each is words of a plan, lowered and estimated as any other plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np

from ...backends.machine.system import System
from ...driver.estimate import Estimates, evaluate, stage_memory
from ...ir.errors import PlanError, UnknownNameError
from ...ir.graph import Graph
from ...ir.plan import Family, Plan, PlanTable
from ...ir.plan.divisibility import check_divisibility
from ...ir.plan.word import changed
from ...ir.records import dataclass
from ...ir.sizes.fixed_sizes import check_sizes
from ...ir.sizes.points import Points
from ..plans.lowerings import Lowerings

# Fields of a family that a memory policy sets, with what they are where nothing is recomputed or offloaded.
_NOTHING: Mapping[str, object] = {
    "recompute": "none",
    "recompute_modules": (),
    "recompute_layers": 0,
    "recompute_every": 1,
    "recompute_by_chunk": "",
    "recompute_save": (),
    "recompute_save_rest": (),
    "offload_modules": (),
}


@dataclass(frozen=True, slots=True)
class PricedPolicy:
    """A memory policy, with the step that it makes.

    Attributes:
        label: what people call it.
        plan: the plan under it.
        step_time_s: of the step.
        peak_mem_bytes: of the fullest device.
        host_mem_bytes: that the fullest device has in host memory.
        table: the estimate, a table of one plan.
    """

    label: str
    plan: Plan
    step_time_s: float
    peak_mem_bytes: float
    host_mem_bytes: float
    table: Estimates = field(repr=False)

    @property
    def family(self) -> Family:
        """The words of the policy, and all others of the plan."""
        return self.plan.family

    @property
    def breakdown_s(self) -> Mapping[str, float]:
        """The parts of the step."""
        return {name: float(column[0]) for name, column in self.table.step.breakdown.items()}


class Pricer:
    """Prices memory policies of one plan on one system, each once; what they have in common is lowered once."""

    __slots__ = ("_lowerings", "_plan", "_priced", "system")

    def __init__(self, graph: Graph, system: System, plan: Plan) -> None:
        """Keep the model, the machine and the plan, whose own policy is left out."""
        self._lowerings = Lowerings(graph)
        self._priced: dict[Family, PricedPolicy | None] = {}
        self.system = system
        self._plan = plan
        check_sizes(graph, plan)

    @property
    def pp(self) -> int:
        """Pipeline stages of the plan."""
        return self._plan.pp

    def family(self, words: Mapping[str, object]) -> Family:
        """Return the plan's family under a policy; states that the plan offloads stay offloaded."""
        away = tuple(name for name in self._plan.offload if name != "activations")
        own = (*away, "activations") if words.get("offload_modules") or words.get("offload") else away
        follows = self.system.stack.decides.words(str(words.get("recompute", "none")), self._plan.zero, self.pp > 1)
        stops = {"early_stop": follows["early_stop"]}
        return changed(self._plan.family, {**_NOTHING, **stops, **words, "offload": own})

    def price(self, label: str, words: Mapping[str, object]) -> PricedPolicy | None:
        """Price a policy; None for one that changes nothing, or names what no layer has.

        PlanError where the plan itself is not legal.
        """
        family = self.family(words)
        if family not in self._priced:
            try:
                table = self._table(family)
                metrics = {name: float(column[0]) for name, column in table.metrics.items()}
                self._priced[family] = PricedPolicy(
                    label,
                    self._plan.under(family),
                    metrics["step_time_s"],
                    metrics["peak_mem_bytes"],
                    metrics.get("host_mem_bytes", 0.0),
                    table,
                )
            except (PlanError, UnknownNameError):
                if not words:
                    raise
                self._priced[family] = None
        return self._priced[family]

    def unfused(self) -> Estimates:
        """Return the plan that keeps everything, its pointwise kernels one by one."""
        return self._table(changed(self.family({}), {"fused": False}))

    def fits_host(self, policy: PricedPolicy) -> bool:
        """Whether what a device's share of its host's memory holds what the policy moves there."""
        return bool(policy.host_mem_bytes <= self.system.host_share_bytes(self._plan.num_gpus))

    def stage_bytes(self, policy: PricedPolicy) -> Sequence[float]:
        """Return the bytes of each pipeline stage, from the first on."""
        classes = policy.table.staging.rows[int(policy.table.staging.which[0])]
        sizes = {cls: float(sum(stage_memory(policy.table, cls).values())[0]) for cls in set(classes)}  # type: ignore[index]
        return [sizes[cls] for cls in classes]

    def _table(self, family: Family) -> Estimates:
        plan, lowered = self._plan.under(family), self._lowerings.of(family)
        plans = PlanTable.of([plan])
        if not lowered.constraints.hold(plans, Points(plans)).all():
            check_divisibility(lowered.graph, plan)
        return evaluate(lowered, self.system, plans)


def fewest(least: int, most: int, fits: Callable[[int], bool]) -> int | None:
    """Return the smallest number that fits, where all above it do too; None where the largest does not.

    >>> fewest(1, 10, lambda n: n >= 7), fewest(1, 10, lambda n: False)
    (7, None)
    """
    if not fits(most):
        return None
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if fits(middle) else (middle + 1, most)
    return least


def faster(a: PricedPolicy, b: PricedPolicy | None) -> bool:
    """Whether a policy is better than another one: a shorter step, or the same with less memory."""
    if b is None:
        return True
    same = bool(np.isclose(a.step_time_s, b.step_time_s, rtol=1e-9))
    return a.peak_mem_bytes < b.peak_mem_bytes if same else a.step_time_s < b.step_time_s
