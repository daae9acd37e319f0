"""Steps of servers by how many sequences run on how many replicas: each is priced once, whatever rows have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...cost.money import Money
from ...cost.ownership.activity import Activity, activity
from ...cost.ownership.energy import StepEnergy, step_energy
from ...driver.estimate import Estimates, Lowered, evaluate
from ...driver.serve.server import Server
from ...driver.serve.tables import of_phase, of_sizes
from ...ir.plan import PlanTable
from ...ir.records import dataclass
from ..block import Array

# More rows of one decode step than any engine has.
_ROWS = 2.0**24
_NONE = np.zeros(0)


class KnownSteps:
    """Steps of one phase of a server, priced as rows ask for them; rows of a table are worked out one by one."""

    def __init__(self, server: Server, lowered: Lowered, seq: float, context: float) -> None:
        self.server, self._lowered, self._seq, self._context = server, lowered, seq, context
        self._place: dict[float, int] = {}
        self._uncounted: list[Estimates] = []
        self._columns: dict[str, Array] = {"step_time_s": _NONE, "read_bytes": _NONE}
        self._joules: dict[str, Array] = {}

    def of(self, dp: Sequence[Array], batch: Sequence[Array]) -> Iterator[PhaseSteps]:
        """Yield the steps of so many sequences on each of so many replicas, row by row, a table behind the other."""
        sequences = [np.maximum(np.rint(one), 1.0) for one in batch]
        wanted = [replicas * _ROWS + each for replicas, each in zip(dp, sequences, strict=True)]
        codes, of_row = np.unique(np.concatenate(wanted), return_inverse=True)
        new = np.array([code for code in codes.tolist() if code not in self._place])
        if len(new):
            self._price(new)
        place = np.array([self._place[code] for code in codes.tolist()])[of_row.reshape(-1)]
        for each in sequences:
            yield PhaseSteps(self, place[: len(each)], each)
            place = place[len(each) :]

    def column(self, name: str) -> Array:
        """Return seconds or bytes read of all steps that were priced so far."""
        return self._columns[name]

    def joules(self, money: Money) -> dict[str, Array]:
        """Return what all steps that were priced so far take, by what takes it."""
        for table in self._uncounted:
            done = activity(table.timing, table.plans, money.system, money.prices).parts_j
            self._joules = {name: np.concatenate([self._joules.get(name, _NONE), part]) for name, part in done.items()}
        self._uncounted.clear()
        return self._joules

    def _price(self, codes: Array) -> None:
        replicas, each = np.divmod(codes, _ROWS)
        plan, ones, server = self.server.plan, np.ones(len(codes)), self.server
        like = PlanTable.of([of_phase(plan, self._lowered.source.workload)]).repeated(len(codes))
        placed = replace(like, num_gpus=replicas * (plan.num_gpus // plan.dp), dp=replicas)
        table = of_sizes(placed, self._lowered, each, ones * max(1, round(self._seq)), ones * round(self._context))
        found, read = evaluate(self._lowered, server.system, table, server.convention), self._lowered.must_move
        new = {
            "step_time_s": found.metrics["step_time_s"],
            "read_bytes": np.zeros(len(codes)) if read is None else read.evaluate(table),
        }
        self._columns = {name: np.concatenate([self._columns[name], column]) for name, column in new.items()}
        self._place |= zip(codes.tolist(), range(len(self._place), len(self._place) + len(codes)), strict=True)
        self._uncounted.append(found)


@dataclass(frozen=True, slots=True, eq=False)
class PhaseSteps:
    """Which of the known steps each row has.

    Attributes:
        known: of one phase of a server.
        rows: their places among the known, row by row.
        sequences: of a replica, row by row.
    """

    known: KnownSteps
    rows: NDArray[np.intp]
    sequences: Array

    @property
    def step_time_s(self) -> Array:
        """Row by row."""
        return np.asarray(self.known.column("step_time_s")[self.rows])

    @property
    def read_bytes(self) -> Array:
        """That a device reads in a step, row by row."""
        return np.asarray(self.known.column("read_bytes")[self.rows])


def energy_of(steps: Sequence[PhaseSteps], money: Money) -> StepEnergy:
    """Return the joules of steps on systems that were priced, row by row, a table behind the other."""
    joules = [(one.known.joules(money), one.rows) for one in steps]
    parts = {name: np.concatenate([known[name][rows] for known, rows in joules]) for name in joules[0][0]}
    step_time_s = np.concatenate([one.step_time_s for one in steps])
    return step_energy(money.cost, money.system, money.prices, step_time_s, Activity(parts))


# Steps of all servers of a search so far, by server, phase, new tokens and context; keys are of what it keeps alive.
StepBook: TypeAlias = dict[tuple[int, int, float, float], KnownSteps]
# Steps of one phase of a server, on so many replicas with so many sequences each, row by row.
AskedSteps: TypeAlias = tuple[KnownSteps, Array, Array]


def known_steps(book: StepBook, server: Server, lowered: Lowered, seq: float, context: float) -> KnownSteps:
    """Return the steps of a server in one phase, `seq` new tokens of each sequence behind `context` others."""
    key = (id(server), id(lowered), seq, context)
    if key not in book:
        book[key] = KnownSteps(server, lowered, seq, context)
    return book[key]


def price_steps(asked: Sequence[AskedSteps]) -> Sequence[PhaseSteps]:
    """Return the steps that are asked for, table by table; those of one server and phase are priced at once."""
    of_same: dict[KnownSteps, list[int]] = {}
    for place, (known, _, _) in enumerate(asked):
        of_same.setdefault(known, []).append(place)
    found: dict[int, PhaseSteps] = {}
    for known, places in of_same.items():
        tables = known.of([asked[at][1] for at in places], [asked[at][2] for at in places])
        found |= zip(places, tables, strict=True)
    return [found[place] for place in range(len(asked))]
