"""Cases judged in several processes: rows of one model go together, and come back in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from ...frontend import GraphCache
from ...ir.errors import InternalError, SlipstickError
from .cases import TrainingCase
from .judge import Bench, Prepared, Refused, priced
from .machine_shop import MachineShop

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a case came to: the seconds of its step and the bytes of its fullest device, or why there are none."""

    step_s: float = float("nan")
    peak_mem_bytes: float = float("nan")
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """Cases of one model, each with its place in the table, and what is needed to judge them anywhere."""

    cases: Mapping[int, TrainingCase]
    cache: GraphCache | None
    calibration: str | None

    @property
    def name(self) -> str:
        """The model, as its first row calls it."""
        return next(iter(self.cases.values())).row.text("model")


def answers(
    cases: Mapping[int, TrainingCase],
    cache: GraphCache | None,
    calibration: str | None,
    jobs: int,
    report: Report | None = None,
) -> dict[int, Answer]:
    """Return the answer of each case by its place; the same whatever the number of processes."""
    loads = [Load(part, cache, calibration) for part in _by_model(cases)]
    if jobs <= 1 or len(loads) <= 1:
        parts: Iterator[Mapping[int, Answer]] = (_told(load, report) for load in loads)
    else:
        parts = _parallel(loads, min(jobs, len(loads)), report)
    return {place: answer for part in parts for place, answer in part.items()}


def answer(load: Load, report: Report | None = None) -> dict[int, Answer]:
    """Judge the cases of one model."""
    bench = Bench(load.cache, report, MachineShop(load.calibration))
    places = {id(case): place for place, case in load.cases.items()}
    found: dict[int, Answer] = {}
    for table in bench.prepare(list(load.cases.values())):
        found |= {places[id(case)]: one for case, one in _answered(table)}
    return found


def _told(load: Load, report: Report | None) -> dict[int, Answer]:
    if report is not None:
        report(f"judging {len(load.cases)} rows of {load.name}")
    return answer(load)


def _parallel(loads: Sequence[Load], jobs: int, report: Report | None) -> Iterator[Mapping[int, Answer]]:
    """The largest loads first, so that none of them is left alone at the end; spawned, as torch needs it."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(answer, load): load for load in sorted(loads, key=lambda one: -len(one.cases))}
        for number, done in enumerate(as_completed(running), start=1):
            if report is not None:
                load = running[done]
                report(f"{number} of {len(loads)} models: {len(load.cases)} rows of {load.name}")
            yield done.result()


def _answered(table: Prepared | Refused) -> Iterator[tuple[TrainingCase, Answer]]:
    if isinstance(table, Refused):
        yield table.case, Answer(reason=table.reason)
        return
    try:
        found = priced(table).metrics
    except InternalError:
        raise
    except SlipstickError as error:
        yield from ((case, Answer(reason=str(error).splitlines()[0])) for case in table.cases)
        return
    for number, case in enumerate(table.cases):
        yield case, Answer(float(found["step_time_s"][number]), float(found["peak_mem_bytes"][number]))


def _by_model(cases: Mapping[int, TrainingCase]) -> list[dict[int, TrainingCase]]:
    found: dict[tuple[str, str], dict[int, TrainingCase]] = {}
    for place, case in cases.items():
        found.setdefault((case.config, str(case.dtype)), {})[place] = case
    return list(found.values())
