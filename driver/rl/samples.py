"""Samples as the sequences of training steps: packed to full sequences, or padded, and a forward pass over them."""

from __future__ import annotations

import math

from ...ir.errors import UsageError
from ...ir.plan import Plan
from ...ir.records import dataclass
from ..estimate import Estimate

# Lengths of sequences are rounded up to a multiple, which degrees of the sequence divide.
_MULTIPLE = 64


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a step as training sees them.

    Attributes:
        num: sequences a step.
        mean_tokens: of a sequence.
        longest: tokens of a full sequence: packs are as long, and padded sequences too.
        batch: sequences of one update of the weights.
        epochs: passes over the samples.
        packed: whether sequences of several samples fill a pack; attention stays inside of each.
    """

    num: int
    mean_tokens: float
    longest: int
    batch: int
    epochs: int = 1
    packed: bool = True

    def __post_init__(self) -> None:
        """Refuse batches that are none."""
        if not 1 <= self.batch <= self.num:
            raise UsageError(
                f"an update of {self.batch:,} sequences, of {self.num:,} a step; allowed: 1 to {self.num:,}"
            )

    @property
    def updates(self) -> float:
        """Updates of the weights a step."""
        return self.num * self.epochs / self.batch

    def plan(self, plan: Plan) -> Plan:
        """Return a training plan for one update: its micro-batches are packs, of as many samples as a pack holds.

        `plan` has the degrees, the packs of a micro-batch and the policy. The last micro-batch may be filled up.
        """
        if not self.packed:
            seq, micro = self.longest, plan.micro_batch
        else:
            seq = min(math.ceil(self.mean_tokens / _MULTIPLE) * _MULTIPLE, self.longest)
            micro = max(plan.micro_batch * self.longest // seq, 1)
        micro = min(micro, max(self.batch // plan.dp, 1))
        total = math.ceil(self.batch / (micro * plan.dp)) * micro * plan.dp
        return plan.under(plan.family, {"seq_len": seq, "micro_batch": micro, "global_batch": total})


def forward_s(answer: Estimate, sequences: int) -> float:
    """Return the seconds of a forward pass over sequences under a training plan, without anything kept.

    Micro-batches follow each other through the stages: n of them take n times the slowest stage and once the others.
    """
    plan, stages = answer.plan, answer.table.step.stages
    staging = answer.table.staging
    each = [float(stages[cls].forward_s[0]) for cls in staging.rows[int(staging.which[0])]]
    num = math.ceil(sequences / (plan.micro_batch * plan.dp))
    return num * max(each) + sum(each) - max(each)
