"""What an optimiser tried, for the answer of a search: how many points, how they were chosen, and which led nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..explore.search.optimizer import Axis, Choice, Trial
from ..explore.search.trial_job import TrialJob


@dataclass(frozen=True, slots=True)
class Trials:
    """The trials of a study that is over.

    Attributes:
        digest: of the study.
        axes: what was chosen.
        sampler: how.
        seed: of the choice.
        values: of every trial by axis, as people type them.
        infeasible: trials where no plan was left, by the reason, the most frequent first.
    """

    digest: str
    axes: tuple[Axis, ...]
    sampler: str
    seed: int
    values: tuple[Mapping[str, str], ...]
    infeasible: Mapping[str, int]

    @classmethod
    def of(cls, job: TrialJob, trials: Sequence[Trial], infeasible: Mapping[str, int]) -> Trials:
        """Gather what was tried."""
        values = tuple({axis.name: axis.text(trial.values[axis.name]) for axis in job.axes} for trial in trials)
        by_number = dict(sorted(infeasible.items(), key=lambda pair: -pair[1]))
        return cls(job.digest, job.axes, job.sampler, job.seed, values, by_number)

    def lines(self) -> Iterator[str]:
        """Yield what was tried as people read it."""
        axes = ", ".join(map(axis_text, self.axes))
        yield f"  {len(self.values):,} trials, chosen by {self.sampler} with seed {self.seed}, of {axes}"
        if self.infeasible:
            yield f"  {sum(self.infeasible.values()):,} of them without a plan:"
            yield from (f"  {num:>12,}  {why}" for why, num in self.infeasible.items())

    def document(self) -> Mapping[str, object]:
        """Return the same for JSON."""
        return {
            "sampler": self.sampler,
            "seed": self.seed,
            "axes": {axis.name: _axis(axis) for axis in self.axes},
            "num_trials": len(self.values),
            "num_infeasible": sum(self.infeasible.values()),
            "infeasible": dict(self.infeasible),
        }


def axis_text(axis: Axis) -> str:
    """Return an axis as it was typed."""
    if isinstance(axis, Choice):
        return f"{axis.name}={','.join(axis.values)}"
    return f"{axis.name}={axis.text(axis.first)}..{axis.text(axis.last)}{':log' if axis.is_log else ''}"


def _axis(axis: Axis) -> object:
    return list(axis.values) if isinstance(axis, Choice) else axis_text(axis).partition("=")[2]
