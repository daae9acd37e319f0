"""The best plan on a design: the search of plans, given the file of its machine."""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path

from ...ir.errors import InfeasibleError
from ...ir.records import dataclass
from ..plans.job import PlanJob
from ..plans.lowerings import Lowerings
from ..searching import search
from ..trials.trying import Resident
from .setting import DesignJob


@dataclass(slots=True)
class PlanFinder:
    """Searches the plans of a job on machine after machine; what is lowered for one is kept for the next.

    Attributes:
        job: the space of plans; its one machine says software and overrides, the name of the file aside.
        folder: where the files of machines go.
        num_candidates: plans that were looked at.
    """

    job: PlanJob
    folder: Path
    num_candidates: int = 0
    _lowerings: Lowerings = field(init=False)
    _num_files: int = 0

    def __post_init__(self) -> None:
        """Begin with nothing lowered."""
        self._lowerings = Lowerings(self.job.graph)

    def __call__(self, text: str) -> DesignJob:
        """Return the best plan on the machine of a file; InfeasibleError where none fits its memory."""
        self._num_files += 1
        path = self.folder / f"design{self._num_files}.yaml"
        path.write_text(text, encoding="utf-8")
        job = replace(self.job, machines=(replace(self.job.machines[0], name=str(path)),))
        found = search(job, Resident(self._lowerings), top=1)
        self.num_candidates += found.tally.num_candidates
        if not found.tally.num_kept:
            why = ", ".join(f"{number:,} {reason}" for reason, number in found.tally.pruned.items())
            raise InfeasibleError(f"none of {found.tally.num_candidates:,} plans runs on a design: {why}")
        plan = job.plan_of(found.best.top, 0)
        return DesignJob(self._lowerings.of(plan.family), plan, convention=job.convention)
