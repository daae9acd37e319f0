"""What came out for one model type: a record that is kept as a line of JSON and printed as a row of a table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from .plans import Planned

WORKLOADS = ("train", "prefill", "decode")
# Each ratio with the workload that it is of.
RATIOS = {"forward": "train", "step": "train", "prefill": "prefill", "decode": "decode"}
# A ratio of FLOPs this near to one agrees.
AGREES = 0.01


@dataclass(frozen=True, slots=True)
class Result:
    """One model type, by name.

    Attributes:
        model_type: as transformers calls it.
        class_name: of its causal language model.
        layers: kinds of layers of the small config that was traced.
        num_parameters: distinct parameters of the module; of the graph where the module could not be counted.
        unused: parameters of the module that take no part in a training step, and are not in the graph.
        parameters_agree: whether the graph has all the others, exactly; None where that could not be counted.
        why_not: why a workload could not be traced; no entry for one that was.
        ratios: FLOPs of our graph over those that torch counted, for `forward`, `step` (forward and backward),
            `prefill` and `decode`; recurrences are left out on both sides.
        recurrences: the same of recurrences alone, where torch counted any products in them.
        oracle: what is to be said of the count: real tensors, or why there is none.
        plans: what came of the training step under the plans.
    """

    model_type: str
    class_name: str = ""
    layers: str = ""
    num_parameters: int = 0
    unused: int = 0
    parameters_agree: bool | None = None
    why_not: dict[str, str] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    recurrences: dict[str, float] = field(default_factory=dict)
    oracle: str = ""
    plans: Planned = field(default_factory=Planned)

    def is_traced(self, workload: str) -> bool:
        """Whether there is a graph of a workload."""
        return workload not in self.why_not

    @property
    def agrees(self) -> bool:
        """Whether all that was traced was counted, and counted alike, parameters exactly."""
        asked = [name for name, workload in RATIOS.items() if workload == "train" and self.is_traced(workload)]
        within = all(abs(ratio - 1.0) <= AGREES for ratio in self.ratios.values())
        return bool(self.parameters_agree) and within and bool(asked) and all(name in self.ratios for name in asked)

    def to_json(self) -> str:
        """Return a line of JSON."""
        return json.dumps(asdict(self))


def from_json(line: str) -> Result:
    """Read what `to_json` wrote."""
    told = json.loads(line)
    return Result(**{**told, "plans": Planned(**told["plans"])})
