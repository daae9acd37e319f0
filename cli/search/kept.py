"""The ledger of a search: begun under the next free name, or gone on with; none where nothing is to be kept."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import SlipstickError, UsageError
from .axes import Asked
from .file import space_of
from .flags import Wanted

if TYPE_CHECKING:
    from ...explore.plans.job import PlanJob
    from ...explore.runs.ledger import Ledger
    from ...explore.runs.runs import Runs
    from ...explore.servers.job import ServingJob
    from ...explore.trials.trial_job import TrialJob


@dataclass(slots=True)
class Kept:
    """What a search asks for with what its run says, and the ledger once there is a job."""

    asked: Asked
    wanted: Wanted
    opened: list[Ledger] = field(default_factory=list)

    def close(self) -> None:
        """Close what is open."""
        while self.opened:
            self.opened.pop().close()

    def forget(self) -> None:
        """Remove a run that was begun in vain: nothing is in it."""
        begun = [ledger.path.stem for ledger in self.opened if self.wanted.resume is None and not ledger.num_done()]
        self.close()
        for name in begun:
            _runs(self.wanted).remove(name)

    def ledger(self, job: PlanJob | ServingJob | TrialJob) -> Ledger | None:
        """Begin the ledger, or go on with it; UsageError where it is of another search or version."""
        from ...explore.runs.run import Run
        from ...explore.runs.tool import tool_version

        if self.wanted.resume is not None:
            path = _runs(self.wanted).path(self.wanted.resume)
            found = _resumed(path, job, tool_version())
        elif self.wanted.ledger:
            typed = shlex.join(["slipstick", *sys.argv[1:]])
            run = Run.of(job, tool_version(), self.asked.model, typed, [str(goal) for goal in job.goals], job.words)
            found = _runs(self.wanted).create(run)
            click.echo(f"run {found.path.stem}", err=True)
        else:
            return None
        self.opened.append(found)
        return found


@contextmanager
def kept(asked: Asked, wanted: Wanted) -> Iterator[Kept]:
    """Yield what a search asks for, over what its run does where one is gone on with; close its ledger in the end."""
    if wanted.resume is not None and not wanted.ledger:
        raise UsageError("--resume goes on with a ledger: leave --no-ledger out")
    run = Kept(asked if wanted.resume is None else asked.over(_stored(wanted, wanted.resume)), wanted)
    try:
        yield run
    except SlipstickError:
        run.forget()
        raise
    finally:
        run.close()


def _resumed(path: Path, job: PlanJob | ServingJob | TrialJob, version: str) -> Ledger:
    from ...explore.runs.ledger import Ledger
    from ...explore.trials.trial_job import TrialJob
    from ...explore.trials.trying import resumed

    return resumed(path, job, version) if isinstance(job, TrialJob) else Ledger.resume(path, job, version)


def _stored(wanted: Wanted, name: str) -> Asked:
    from ...explore.runs.ledger import Ledger

    path = _runs(wanted).path(name)
    with Ledger.open(path) as ledger:
        return space_of(ledger.run.text, f"run {name}")


def _runs(wanted: Wanted) -> Runs:
    from ...explore.runs.runs import Runs

    return Runs.at(wanted.runs)
