"""Optuna as an optimiser: each trial has a sampler of its own, so that a study that was broken off goes on the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from .optimizer import Axis, CategoricalParameter, Range, Trial, Value, Values
from .optuna_file import Keeper

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution, CategoricalChoiceType
    from optuna.samplers import BaseSampler
    from optuna.storages import InMemoryStorage
    from optuna.trial import FrozenTrial

# Zero of a trial where something is feasible, one where nothing is: samplers look where it was zero.
_FEASIBLE = "constraints:feasible"


def _tpe(seed: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed)


def _nsga2(seed: int) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed)


def _random(seed: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


SAMPLERS: Mapping[str, Callable[[int], BaseSampler]] = MappingProxyType(
    {"tpe": _tpe, "nsga2": _nsga2, "random": _random}
)


@dataclass(slots=True)
class OptunaStudy:
    """A study of Optuna in memory, of which every step is kept in a file where one is given.

    Trials are drawn by a sampler made for each of them from the seed and their number, and see all that was told before
    they were asked for; nothing else decides. So a study that was killed and goes on asks for the same trials as one
    that was not.

    Attributes:
        axes: what is chosen.
        sampler: how, by name.
        seed: what makes two studies differ.
        study: Optuna's own.
        storage: in which it is.
        keeper: the file; None for none.
        next: number of the trial that is asked for next.
    """

    axes: tuple[Axis, ...]
    sampler: str
    seed: int
    study: Study
    storage: InMemoryStorage
    keeper: Keeper | None = None
    next: int = field(default=0)

    @classmethod
    def open(
        cls,
        axes: Sequence[Axis],
        signs: Sequence[float],
        sampler: str = "tpe",
        seed: int = 0,
        path: Path | None = None,
        about: str = "",
    ) -> OptunaStudy:
        """Begin a study, or resume the one of a file.

        Args:
            axes: what is chosen.
            signs: of each goal 1 where less is better, -1 where more is.
            sampler: `tpe` (tree of Parzen estimators), `nsga2` (a genetic algorithm) or `random`.
            seed: what makes two studies differ; 0 or more.
            path: a journal of Optuna, which is made where it is not there; None keeps nothing.
            about: what is optimised; a file that is about something else is refused.

        Raises:
            UnknownNameError: a sampler that there is not.
            UsageError: no axis, a seed below zero, Optuna is not installed, or the file is another study's or damaged.
            StorageError: the file cannot be written.
        """
        _check(axes, signs, sampler, seed)
        from optuna import Study
        from optuna.storages import InMemoryStorage

        text = repr((tuple(axes), tuple(signs), sampler, seed, about))
        keeper = None if path is None else Keeper.open(path, tuple(signs), text)
        storage = InMemoryStorage()
        storage_id = _new(storage, signs)
        for trial in () if keeper is None else keeper.trials():
            storage.create_new_trial(storage_id, trial)
        study = Study(study_name=storage.get_study_name_from_id(storage_id), storage=storage)
        return cls(tuple(axes), sampler, seed, study, storage, keeper)

    def ask(self) -> Trial:
        """Return the next trial; see `Optimizer`."""
        number = self.next
        self.next += 1
        trials = self._trials()
        if number < len(trials):
            return self._trial(trials[number])
        # Leave nothing to samplers but trials: what they note for later is not there when a study goes on.
        for name in self.storage.get_study_system_attrs(self.study._study_id):
            self.storage.set_study_system_attr(self.study._study_id, name, None)
        self.study.sampler = SAMPLERS[self.sampler](_seed(self.seed, number))
        self.study.ask({axis.name: _distribution(axis) for axis in self.axes})
        asked = self._trials()[number]
        if self.keeper is not None:
            self.keeper.ask(asked)
        return self._trial(asked)

    def tell(self, number: int, values: Values) -> None:
        """Say what a trial was worth; see `Optimizer`."""
        from optuna.trial import TrialState

        trial = self._trials()[number]
        told = tuple(np.inf * sign for sign in self._signs()) if values is None else values
        if trial.state is not TrialState.RUNNING:
            return self._check_told(trial, told)
        violation = float(values is None)
        if self.keeper is not None:
            self.keeper.tell(number, {_FEASIBLE: violation}, told)
        self.storage.set_trial_system_attr(trial._trial_id, _FEASIBLE, violation)
        self.storage.set_trial_state_values(trial._trial_id, TrialState.COMPLETE, told)
        return None

    def _check_told(self, trial: FrozenTrial, told: tuple[float, ...]) -> None:
        if tuple(trial.values) != told:
            raise UsageError(
                f"trial {trial.number} was worth {_shown(trial.values)} when the study was kept, and is {_shown(told)} "
                "now: another version, model or price book; begin a new study"
            )

    def _signs(self) -> list[float]:
        from optuna.study import StudyDirection

        return [1.0 if one is StudyDirection.MINIMIZE else -1.0 for one in self.study.directions]

    def _trials(self) -> list[FrozenTrial]:
        return self.storage.get_all_trials(self.study._study_id, deepcopy=False)

    def _trial(self, trial: FrozenTrial) -> Trial:
        return Trial(trial.number, {axis.name: _value(axis, trial.params[axis.name]) for axis in self.axes})


def _check(axes: Sequence[Axis], signs: Sequence[float], sampler: str, seed: int) -> None:
    if sampler not in SAMPLERS:
        raise UnknownNameError.of("sampler", sampler, SAMPLERS)
    if not axes or not signs:
        raise UsageError("an optimiser needs something to choose and something that it is for")
    if not 0 <= seed < 2**63:
        raise UsageError(f"a seed of {seed}: 0 or more, and below 2**63")
    if find_spec("optuna") is None:
        raise UsageError("an optimiser needs slipstick[search]: pip install 'slipstick[search]'")


def _new(storage: InMemoryStorage, signs: Sequence[float]) -> int:
    from .optuna_file import directions, silent

    with silent():
        return storage.create_new_study(directions(signs), "slipstick")


def _seed(seed: int, number: int) -> int:
    """A seed for one trial; neighbours have nothing in common.

    >>> _seed(0, 0) != _seed(0, 1) != _seed(1, 0)
    True
    """
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _distribution(axis: Axis) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, CategoricalParameter):
        return CategoricalDistribution(axis.values)
    if axis.is_whole:
        return IntDistribution(int(axis.first), int(axis.last), log=axis.is_log)
    return FloatDistribution(axis.first, axis.last, log=axis.is_log)


def _value(axis: Axis, raw: CategoricalChoiceType) -> Value:
    if isinstance(axis, Range) and isinstance(raw, (int, float)):
        return axis.value(raw)
    return str(raw)


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.9g}" for value in values)
