"""A sweep whose designs an optimiser chooses: which axes it has, and what it found."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..request import Request
from ..search.sampling import Sampling, is_sampled
from .axes import AT_ONCE, Axes

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...explore.designs.sampled import Sampled, SampledDesigns
    from ...explore.designs.setting import DesignJob, DesignSetting
    from ...explore.designs.space import DesignSpace
    from ...explore.goals import Goal
    from ...explore.trials.optimizer import Axis, Range
    from ...explore.trials.optuna_study import OptunaStudy
    from ...report.results.tables import SweepResult

# Numbers of designs, by the flag's parameter: the base unit of each.
_NUMBERS = {
    "die_area": "mm2",
    "power": "W",
    "power_density": "W/mm2",
    "chiplets": "1",
    "stacks": "1",
    "d2d_bandwidth": "B/s",
}
_COUNTS = ("chiplets", "stacks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A space to choose from, and how.

    Attributes:
        sampled: the space.
        sampling: how many designs, and by what.
        study: file that keeps the trials; None for none.
        asked: everything that the answer depends on, in words.
    """

    sampled: Sampled
    sampling: Sampling
    study: Path | None
    asked: str

    @property
    def num_trials(self) -> int:
        """Designs that are tried."""
        return self.sampling.trials or 1

    @property
    def how(self) -> tuple[str, int]:
        """Sampler and seed."""
        return self.sampling.sampler or "tpe", self.sampling.seed or 0

    def digest(self, goals: tuple[Goal, ...]) -> str:
        """What tells this study from any other; how many trials it has does not."""
        from ...explore.runs.tool import tool_version
        from ...report.designs.designs import goals_text

        at_once = self.sampling.trials_at_once or AT_ONCE
        text = repr(
            (self.asked, self.sampled.space, self.sampled.axes, goals_text(goals), self.how, at_once, tool_version())
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def open(self, goals: tuple[Goal, ...]) -> OptunaStudy:
        """Begin the study, or resume the one of its file."""
        from ...explore.trials.optuna_study import OptunaStudy

        signs = [goal.sign for goal in goals]
        return OptunaStudy.open(self.sampled.axes, signs, *self.how, self.study, self.digest(goals))


def has_trials(axes: Axes, sampling: Sampling, study: Path | None) -> bool:
    """Whether an optimiser chooses designs; UsageError where ranges, trials and how they are chosen do not agree."""
    from ...explore.ranges import is_range

    texts = {name: getattr(axes, name) for name in _NUMBERS}
    given = [f"--{name.replace('_', '-')} {text}" for name, text in texts.items() if text and is_range(text)]
    if is_sampled(sampling, given, "400:800:100mm2"):
        return True
    if study is not None:
        raise UsageError("--study is of an optimiser: say how many points it tries, as in --trials 200")
    return False


def sampled_of(axes: Axes) -> Sampled:
    """Return the space to choose from; UsageError for a range that is none, or where there is nothing to choose."""
    from ...explore.designs.sampled import FIELDS, Sampled
    from ...explore.trials.optimizer import CategoricalParameter

    ranges = dict(_ranges(axes))
    space = _at_ends(axes, ranges, first=True)
    _at_ends(axes, ranges, first=False)
    found: list[Axis] = []
    for flag, field in FIELDS.items():
        name = flag.replace("-", "_")
        values = getattr(space, field) if getattr(axes, name) else ()
        if name in ranges:
            found.append(replace(ranges[name], name=flag))
        elif len(values) > 1:
            found.append(
                CategoricalParameter(name=flag, values=tuple(_word(value, _NUMBERS.get(name, "1")) for value in values))
            )
    if not found:
        raise UsageError(
            "--trials says how many designs are tried, and there is one: give a range, as in --die-area 200..800mm2, "
            "or several values"
        )
    return Sampled(space, tuple(found))


def _at_ends(axes: Axes, ranges: Mapping[str, Range], first: bool) -> DesignSpace:
    """The space with one end of each range."""
    ends = {name: one.text(one.first if first else one.last) for name, one in ranges.items()}
    return replace(axes, **ends).space()


def _word(value: str | float, dimension: str) -> str:
    """A value of a list as people type it."""
    if isinstance(value, str):
        return value or "none"
    return f"{repr(value).removesuffix('.0')}{'' if dimension == '1' else dimension}"


def _ranges(axes: Axes) -> list[tuple[str, Range]]:
    from ...explore.ranges import is_range, range_of

    found: list[tuple[str, Range]] = []
    for name, dimension in _NUMBERS.items():
        text, flag = getattr(axes, name), f"--{name.replace('_', '-')}"
        if not text or not is_range(text):
            continue
        one = range_of(flag, text, dimension)
        if name in _COUNTS and not one.is_whole:
            raise UsageError(f"{flag}={text}: whole numbers, as in 1..8")
        found.append((name, one))
    return found


def try_designs(
    chosen: Chosen, setting: DesignSetting, job: DesignJob | None, goals: tuple[Goal, ...], request: Request
) -> SampledDesigns:
    """Have an optimiser choose designs, and gather them."""
    from ...explore.designs.designs import check_some
    from ...explore.designs.sampled import sample

    study, at_once = chosen.open(goals), chosen.sampling.trials_at_once or AT_ONCE
    started = time.perf_counter()
    with request.progress(chosen.num_trials) as bar:
        made = sample(
            chosen.sampled, setting, job, goals, study, chosen.num_trials, at_once, lambda num: bar.advance(num, "")
        )
    none = sum(made.infeasible.values())
    told = f", {none:,} of them without a design that runs" if none else ""
    request.report(f"{len(made.trials):,} trials{told}, in {time.perf_counter() - started:.2f} s")
    check_some(chosen.sampled.point(made.trials[0]), setting, made.found)
    return made


def advice_on(job: DesignJob | None, system: Callable[[int], System]) -> Callable[[int], str] | None:
    """Return what says with which flags the plan would fit on a design, by its place; None where nothing runs."""
    if job is None:
        return None
    from ...driver.estimate import estimate
    from ...report.advice import find_advice, next_steps

    return lambda at: next_steps(
        find_advice(estimate(job.lowered.source, system(at), job.plan, job.convention, job.lowered))
    )


def choose(
    chosen: Chosen, setting: DesignSetting, job: DesignJob | None, goals: tuple[Goal, ...], request: Request
) -> SweepResult:
    """Have an optimiser choose designs."""
    from ...explore.designs.sampled import TRIAL, system_of, system_text
    from ...report.designs.designs import Ranking
    from ...report.results.tables import SweepResult
    from ...report.search.trials import Trials

    made = try_designs(chosen, setting, job, goals, request)

    def system(at: int) -> System:
        number = [int(one) for designs in made.found for one in designs.columns[TRIAL]][at]
        return system_of(chosen.sampled, made.trials[number], setting)

    ranking = Ranking.of(made.found, goals, advice_on(job, system))
    trials = Trials.of(chosen.digest(goals), chosen.sampled.axes, *chosen.how, made.trials, made.infeasible)
    number = int(ranking.columns[TRIAL][ranking.order[0]])
    return SweepResult(
        ranking=ranking, system=lambda: system_text(chosen.sampled, made.trials[number], setting), trials=trials
    )
