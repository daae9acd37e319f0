"""Sampling of machines: words and keys of an optimiser in one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..arguments.options import options_of
from ..arguments.search import SamplingArgs

# Names of samplers, as `explore/trials/optuna_study.py` has them.
SAMPLER_NAMES = options_of(SamplingArgs)["sampler"].choices
# Machines that a search chooses at once by default.
AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What was said of trials; None for what was not.

    Attributes:
        trials: how many machines are tried.
        sampler: how they are chosen.
        seed: of the choice.
        trials_at_once: how many are chosen before the first of them is known.
    """

    trials: int | None = None
    sampler: str | None = None
    seed: int | None = None
    trials_at_once: int | None = None

    def over(self, below: Sampling) -> Sampling:
        """Return both, this one on top."""
        return Sampling(**{**below.given(), **self.given()})  # type: ignore[arg-type]

    def given(self) -> dict[str, int | str]:
        """Return what was said, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def of(cls, tree: Mapping[str, object], name: str) -> Sampling:
        """Read the keys of a file that are of trials; UsageError for values that they do not have."""
        numbers = {key: _number(tree[key], key, name) for key in NUMBERS if tree.get(key) is not None}
        sampler = tree.get("sampler")
        if sampler is not None and sampler not in SAMPLER_NAMES:
            raise UsageError(f"{name}: sampler: '{sampler}' is none: {', '.join(SAMPLER_NAMES)}")
        return cls(
            trials=numbers.get("trials"),
            sampler=None if sampler is None else str(sampler),
            seed=numbers.get("seed"),
            trials_at_once=numbers.get("trials_at_once"),
        )


NUMBERS: Mapping[str, int] = {"trials": 1, "seed": 0, "trials_at_once": 1}
KEYS = tuple(f.name for f in fields(Sampling))


def is_sampled(sampling: Sampling, ranges: Sequence[str], steps: str) -> bool:
    """Whether an optimiser chooses points; UsageError where ranges, trials and how they are chosen do not agree.

    `ranges` are those on the command line, as typed; `steps` is how a list of the same numbers is written.
    """
    if sampling.trials is not None:
        return True
    if ranges:
        raise UsageError(
            f"{ranges[0]}: a range has no end of values: say how many points are tried, as in --trials 200, or write "
            f"steps, as in {steps}"
        )
    given = [f"--{name.replace('_', '-')}" for name in sampling.given()]
    if given:
        raise UsageError(f"{given[0]} is of an optimiser: say how many points it tries, as in --trials 200")
    return False


def schema() -> dict[str, object]:
    """Return the keys of a file, as JSON Schema has them."""
    numbers = {key: {"type": "integer", "minimum": least} for key, least in NUMBERS.items()}
    return {**numbers, "sampler": {"enum": list(SAMPLER_NAMES)}}


def _number(value: object, key: str, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < NUMBERS[key]:
        raise UsageError(f"{name}: {key}: '{value}' is not allowed: a whole number, {NUMBERS[key]} or more")
    return value
