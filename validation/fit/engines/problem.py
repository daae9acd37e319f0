"""Numbers of an engine on one chip as a problem of least squares over served requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ....backends.machine.software.engine import OF_STACK, Engine
from ....backends.machine.software.engine_limits import ENGINE_MOVABLE, engine_moved
from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import Movable, movable
from ....ir.errors import InternalError, SlipstickError, SystemFileError
from ....ir.records import dataclass
from ...inference.bench import InferenceBench
from ...inference.cases import ServedCase
from ...inference.forms import CaseQuantity
from ...inference.predict import predicted
from ..fitting import FARTHEST
from ..stacks.problem import NEAR, STEP

Array = NDArray[np.float64]
# A start below this part of its range says nothing of how large the number is; a quarter of the range does.
_SMALL = 0.01


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One quantity of one case that a fit looks at."""

    case: ServedCase
    quantity: CaseQuantity
    measured: float


@dataclass(frozen=True, slots=True)
class EngineProblem:
    """Samples of one engine on one chip, the numbers that move, and where they begin and end."""

    bench: InferenceBench
    plain: Engine
    samples: tuple[EngineSample, ...]
    paths: tuple[str, ...]

    @property
    def numbers(self) -> tuple[Movable, ...]:
        """What moves."""
        return tuple(movable(path, ENGINE_MOVABLE) for path in self.paths)

    @property
    def low(self) -> Array:
        """The least that the numbers may be."""
        return np.asarray([number.low for number in self.numbers])

    @property
    def high(self) -> Array:
        """The most."""
        return np.asarray([number.high for number in self.numbers])

    @property
    def start(self) -> Array:
        """Where they begin: as people set them."""
        found = [_set(self.plain, path, number) for path, number in zip(self.paths, self.numbers, strict=True)]
        return np.asarray(np.clip(found, self.low, self.high))

    @property
    def scale(self) -> Array:
        """What a number is compared with: where it begins, or a part of its range."""
        wide = self.high - self.low
        return np.where(self.start >= _SMALL * wide, self.start, wide / 4.0)

    def values(self, numbers: Array) -> Mapping[str, float]:
        """Return numbers by their paths."""
        return dict(zip(self.paths, numbers.tolist(), strict=True))

    def residuals(self, numbers: Array) -> Array:
        """Return log(predicted / measured) of every sample; far ones are all alike."""
        self._put(engine_moved(self.plain, self.values(numbers)))
        found = [_log_error(sample, self.bench) for sample in self.samples]
        return np.asarray(np.clip(np.nan_to_num(np.asarray(found), nan=FARTHEST), -FARTHEST, FARTHEST))

    def slopes(self, numbers: Array) -> Array:
        """Return derivatives by differences."""
        here = self.residuals(numbers)
        steps = np.where(numbers + STEP * self.scale <= self.high, 1.0, -1.0) * STEP * self.scale
        columns = [
            self.residuals(numbers + step * beside) - here
            for step, beside in list(zip(steps.tolist(), np.eye(len(steps)), strict=True))
        ]
        return np.asarray(np.stack(columns, axis=1) / steps)

    def written(self, numbers: Array) -> Array:
        """Round numbers as files have them; those near an end of their range are at it."""
        near = NEAR * (self.high - self.low)
        ends = np.where(numbers <= self.low + near, self.low, numbers)
        ends = np.where(ends >= self.high - near, self.high, ends)
        scales = [number.scale for number in self.numbers]
        return np.asarray([float(f"{x / scale:.4g}") * scale for x, scale in zip(ends, scales, strict=True)])

    def _put(self, engine: Engine) -> None:
        for system in {sample.case.system for sample in self.samples}:
            self.bench.room.put(system, engine)
        self.bench.forget()


def samples_of(
    cases: Sequence[ServedCase], bench: InferenceBench
) -> tuple[tuple[EngineSample, ...], Mapping[str, int]]:
    """Return what cases give a fit to look at, and why others give nothing, counted.

    Quantities of which only a range is predicted are in no fit.
    """
    found: list[EngineSample] = []
    why: dict[str, int] = {}
    for case in cases:
        try:
            answers = predicted(case, bench)
        except (InternalError, SystemFileError):
            raise
        except SlipstickError as error:
            reason = str(error).splitlines()[0]
            why[reason] = why.get(reason, 0) + 1
            continue
        told = (m for m in case.measured if answers[m.quantity].low is None)
        found += [EngineSample(case, one.quantity, one.value) for one in told]
    return tuple(found), why


def _log_error(sample: EngineSample, bench: InferenceBench) -> float:
    """A number under which a case cannot run is as bad as any."""
    try:
        value = predicted(sample.case, bench)[sample.quantity].value
    except (InternalError, SystemFileError):
        raise
    except SlipstickError:
        return FARTHEST
    return float(np.log(value / sample.measured))


def _set(engine: Engine, path: str, number: Movable) -> float:
    """The number that an engine has; of its stack what it says itself, else as that stack has it by default."""
    if not path.startswith(OF_STACK):
        return float(getattr(getattr(engine, number.section), number.field))
    return number.of(engine.on(StackConstants("plain", 0.0, 0.0, 0.0)))
