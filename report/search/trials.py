"""What an optimiser tried, for the answer of a search: how many points, how they were chosen, and which led nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...explore.best import Columns
from ...explore.trials.optimizer import Axis, CategoricalParameter, Trial
from ...explore.trials.trial_job import TRIAL
from ...ir.records import dataclass
from .plans import PlanRows


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
    def of(
        cls,
        digest: str,
        axes: tuple[Axis, ...],
        sampler: str,
        seed: int,
        trials: Sequence[Trial],
        infeasible: Mapping[str, int],
    ) -> Trials:
        """Gather what was tried."""
        values = tuple({axis.name: axis.text(trial.values[axis.name]) for axis in axes} for trial in trials)
        return cls(digest, axes, sampler, seed, values, dict(sorted(infeasible.items(), key=lambda pair: -pair[1])))

    @property
    def line(self) -> str:
        """What was tried as people read it."""
        axes = ", ".join(map(axis_text, self.axes))
        return f"{len(self.values):,} trials, chosen by {self.sampler} with seed {self.seed}, of {axes}"

    def lines(self) -> Iterator[str]:
        """Yield the same, and how many led nowhere."""
        yield f"  {self.line}"
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


@dataclass(frozen=True, slots=True)
class TrialRows(PlanRows):
    """Rows of trials: a plan on a machine each, with what was chosen for the machine."""

    trials: Trials

    def others(self, rows: Columns, at: int) -> Mapping[str, str]:
        """Return the values of the row's trial, by the ends of their paths, and types where they are varied."""
        based = len(self.job.bases) > 1
        told = {"with": self.job.words["base"][int(rows["base"][at])]} if based else {}
        values = self.trials.values[int(rows[TRIAL][at])]
        return told | dict(zip(_short(list(values)), values.values(), strict=True))


def _short(paths: Sequence[str]) -> list[str]:
    """The last two words of paths, or all where these are not enough to tell them apart.

    >>> _short(["chip.memory.hbm.bandwidth", "network.nvlink.latency", "system"])
    ['hbm.bandwidth', 'nvlink.latency', 'system']
    """
    short = [".".join(path.split(".")[-2:]) for path in paths]
    return [end if short.count(end) == 1 else path for end, path in zip(short, paths, strict=True)]


def axis_text(axis: Axis) -> str:
    """Return an axis as it was typed."""
    if isinstance(axis, CategoricalParameter):
        return f"{axis.name}={','.join(axis.values)}"
    return f"{axis.name}={axis.text(axis.first)}..{axis.text(axis.last)}{':log' if axis.is_log else ''}"


def _axis(axis: Axis) -> object:
    return list(axis.values) if isinstance(axis, CategoricalParameter) else axis_text(axis).partition("=")[2]
