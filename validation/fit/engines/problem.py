"""Numbers of an engine on one chip as a problem of least squares over served requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

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
from ..problem import Array, Problem


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One quantity of one case that a fit looks at."""

    case: ServedCase
    quantity: CaseQuantity
    measured: float


class EngineProblem(Problem):
    """Samples of one engine on one chip as one part, which depends on all numbers."""

    def __init__(
        self, bench: InferenceBench, plain: Engine, samples: Sequence[EngineSample], paths: Sequence[str]
    ) -> None:
        self.bench, self.plain, self.samples, self.paths = bench, plain, tuple(samples), tuple(paths)
        numbers = [movable(path, ENGINE_MOVABLE) for path in paths]
        start = [_set(plain, path, number) for path, number in zip(paths, numbers, strict=True)]
        super().__init__(numbers, start, [frozenset(range(len(numbers)))])

    def log_errors(self, part: int, numbers: Array) -> Array:
        """Return log(predicted / measured) of every sample."""
        engine = engine_moved(self.plain, dict(zip(self.paths, numbers.tolist(), strict=True)))
        for system in {sample.case.system for sample in self.samples}:
            self.bench.room.put(system, engine)
        self.bench.forget()
        return np.asarray([_log_error(sample, self.bench) for sample in self.samples])


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
