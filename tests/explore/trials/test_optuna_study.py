"""Optuna as an optimiser: the same trials whether a study runs through or was killed, and files that are refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from slipstick.explore.trials.optimizer import Axis, CategoricalParameter, Range, Trial, Values, run_trials
from slipstick.explore.trials.optuna_study import OptunaStudy
from slipstick.ir.errors import UnknownNameError, UsageError

pytestmark = pytest.mark.skipif(find_spec("optuna") is None, reason="needs slipstick[search]")

AXES: tuple[Axis, ...] = (
    Range(name="x", first=1.0, last=10.0),
    Range(name="n", first=1, last=64, is_log=True, is_whole=True),
    CategoricalParameter(name="word", values=("a", "b", "c")),
)
TRIALS = 24


class KilledError(Exception):
    """A process that is no more."""


class Dying:
    """A study whose process dies at one of its calls, before or after what it does."""

    def __init__(self, study: OptunaStudy, last: int, after: bool) -> None:
        self.study, self.left, self.after = study, last, after

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError

    def ask(self) -> Trial:
        self._live()
        found = self.study.ask()
        if self.after and not self.left:
            raise KilledError
        return found

    def tell(self, number: int, values: Values) -> None:
        self._live()
        self.study.tell(number, values)


def worth(trial: Trial, num_goals: int) -> Values:
    """A toy: least at x 3, n 8 and b; of c there is nothing."""
    x, n, word = (float(trial.values[name]) if name != "word" else trial.values[name] for name in ("x", "n", "word"))
    assert isinstance(x, float)
    assert isinstance(n, float)
    if word == "c":
        return None
    return ((x - 3) ** 2 + (word == "a") + abs(n - 8) / 8, n + x)[:num_goals]


def study(sampler: str, num_goals: int = 1, path: Path | None = None, seed: int = 3) -> OptunaStudy:
    return OptunaStudy.open(AXES, (1.0, -1.0)[:num_goals], sampler, seed, path, "a toy")


def trials_of(
    optimizer: OptunaStudy | Dying, num_goals: int = 1, at_once: int = 8, num_trials: int = TRIALS
) -> list[Trial]:
    seen: list[Trial] = []

    def price(asked: Sequence[Trial], num: int) -> list[Values]:
        seen.extend(asked[:num])
        return [worth(trial, num_goals) for trial in asked[:num]]

    run_trials(optimizer, num_trials, at_once, price)
    return seen


@pytest.mark.parametrize(("sampler", "num_goals"), [("tpe", 1), ("tpe", 2), ("nsga2", 2), ("random", 1)])
def test_a_study_that_is_killed_tries_what_one_tries_that_runs_through(
    sampler: str, num_goals: int, tmp_path: Path
) -> None:
    through = trials_of(study(sampler, num_goals), num_goals)
    path = tmp_path / "it.optuna"
    # Calls of a batch are 8 asks and 8 tells: among the asks, between asking and telling, and among the tells.
    for last, after in ((3, True), (8, False), (12, False), (38, True)):
        with pytest.raises(KilledError):
            trials_of(Dying(study(sampler, num_goals, path), last, after), num_goals)
    assert trials_of(study(sampler, num_goals, path), num_goals) == through


def test_generations_are_bred_from_the_same_parents_after_a_break(tmp_path: Path) -> None:
    path = tmp_path / "it.optuna"
    # Generations are of 50, and parents are chosen when the next begins.
    with pytest.raises(KilledError):
        trials_of(Dying(study("nsga2", 2, path), 2 * 48 + 13, False), 2, num_trials=72)
    assert trials_of(study("nsga2", 2, path), 2, num_trials=72) == trials_of(study("nsga2", 2), 2, num_trials=72)


def test_a_study_goes_on_longer_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    path = tmp_path / "it.optuna"
    short = trials_of(study("tpe", path=path), num_trials=20)
    assert trials_of(study("tpe", path=path)) == trials_of(study("tpe"))
    assert trials_of(study("tpe"))[:20] == short


def test_other_seeds_try_something_else() -> None:
    assert trials_of(study("tpe", seed=4)) != trials_of(study("tpe", seed=5))


def test_what_was_learned_is_used_and_what_leads_nowhere_is_left() -> None:
    found = trials_of(study("tpe"), at_once=1, num_trials=45)
    last = found[25:]
    assert sum(trial.values["word"] == "c" for trial in last) < 3
    # Chance alone has a mean of (10 - 1)^2 / 12 + (5.5 - 3)^2 = 13 in x.
    assert sum((float(trial.values["x"]) - 3) ** 2 for trial in last) / len(last) < 4


def test_half_a_line_and_the_lock_of_a_process_that_died_are_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "it.optuna"
    trials_of(study("random", path=path), num_trials=8)
    path.write_bytes(path.read_bytes()[:-40])
    (tmp_path / "it.optuna.lock").symlink_to(path)
    assert trials_of(study("random", path=path)) == trials_of(study("random"))


def test_a_file_of_another_study_is_refused_and_so_is_one_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "it.optuna"
    trials_of(study("random", path=path), num_trials=8)
    with pytest.raises(UsageError, match="keeps another study"):
        study("random", path=path, seed=9)
    path.write_text("nothing\n" + path.read_text())
    with pytest.raises(UsageError, match="damaged"):
        study("random", path=path)


def test_a_trial_that_is_worth_something_else_now_is_told(tmp_path: Path) -> None:
    path = tmp_path / "it.optuna"
    trials_of(study("random", path=path), num_trials=1, at_once=1)
    again = study("random", path=path)
    with pytest.raises(UsageError, match="trial 0 was worth"):
        again.tell(again.ask().number, (123.0,))


def test_names_numbers_and_a_missing_package_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'nsga2'"):
        study("nsga-2")
    with pytest.raises(UsageError, match="0 or more"):
        study("tpe", seed=-1)
    with pytest.raises(UsageError, match="something to choose"):
        OptunaStudy.open((), (1.0,))
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "slipstick.explore.trials.optuna_study.find_spec", lambda name: None if name == "optuna" else real(name)
    )
    with pytest.raises(UsageError, match=r"pip install 'slipstick\[search\]'"):
        study("tpe")
