"""What a search found, as one record: the best rows, the front, and where all candidates went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from ...cost.money import Terms, system_money
from ...driver.estimate import Estimate
from ...driver.serve.answer import ServeEstimate
from ...explore.best import BLOCK, ROW, Best, Columns
from ...explore.goals import Goal, MetricLimit
from ...explore.kinds import Kinds, places_of
from ...explore.machine import MachineChoice
from ...explore.searching import CandidateTally
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..cost.money import standing_record
from .trials import Trials


class SearchedRows(Protocol):
    """What the rows of a search stand for: plans of steps, or servers."""

    @property
    def machines(self) -> Sequence[MachineChoice]:
        """All machines that are searched."""
        ...

    @property
    def goals(self) -> Sequence[Goal]:
        """What was searched for."""
        ...

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """What every row keeps."""
        ...

    @property
    def digest(self) -> str:
        """Of the search."""
        ...

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Of columns whose numbers stand for words, the words."""
        ...

    @property
    def metrics(self) -> Sequence[str]:
        """Columns that are metrics."""
        ...

    @property
    def shown(self) -> Sequence[str]:
        """The metrics that people look at first."""
        ...

    @property
    def hidden(self) -> Sequence[str]:
        """Columns that say nothing outside of the search."""
        ...

    @property
    def of(self) -> str:
        """What the candidates are of, in a few words."""
        ...

    @property
    def terms(self) -> Terms | None:
        """The ownership model of machines; None where money is left out."""
        ...

    def machine(self, rows: Columns, at: int) -> MachineChoice:
        """Return the machine of a row."""
        ...

    def label(self, rows: Columns, at: int) -> str:
        """Return what a row is, as people write it."""
        ...

    def others(self, rows: Columns, at: int) -> Mapping[str, str]:
        """Return what else differs between rows, by heading: the system, types."""
        ...

    def answer(self, rows: Columns, at: int) -> Estimate | ServeEstimate:
        """Return the whole answer of a row."""
        ...

    def warnings(self, rows: Columns, at: int) -> Sequence[str]:
        """Return what the software of a row does not run of its plan."""
        ...


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A search that is over; where an optimiser chose its machines, with the trials it made."""

    model: str
    rows: SearchedRows
    best: Best
    tally: CandidateTally
    trials: Trials | None = None
    kinds: Kinds | None = None

    @property
    def ranked(self) -> Columns:
        """The best row of each kind of plan, best first; of servers and of trials the best rows."""
        top = self.best.top
        if self.kinds is None or not self.kinds.rows or "vpp" not in top:
            return top
        return {name: column[: self.best.most] for name, column in self.kinds.rows.items()}

    @property
    def num_others(self) -> Sequence[int]:
        """Of each row that is ranked, how many more of its kind are among the best rows."""
        ranked, top = self.ranked, self.best.top
        if ranked is top:
            return [0] * num_rows(top)
        own = Counter(places_of(ranked, top))
        heads = {*zip(top[BLOCK].tolist(), top[ROW].tolist(), strict=True)}
        places = zip(ranked[BLOCK].tolist(), ranked[ROW].tolist(), strict=True)
        return [own[at] - (place in heads) for at, place in enumerate(places)]

    def whole_label(self, rows: Columns, at: int) -> str:
        """Return what a row is, with everything that differs between rows."""
        return " ".join(filter(None, (self.rows.label(rows, at), *self.rows.others(rows, at).values())))


def num_rows(rows: Columns) -> int:
    """Return how many rows there are."""
    return len(next(iter(rows.values()))) if rows else 0


def standings_of(answer: SearchAnswer) -> dict[str, Mapping[str, object]]:
    """Return what sums are worth on each machine of the best rows whose sums are not firm, by the name of the machine.

    A machine that cannot be priced has no sums.
    """
    found: dict[str, Mapping[str, object]] = {}
    if answer.rows.terms is None:
        return found
    pages = (answer.best.top, answer.best.front)
    machines = dict.fromkeys(answer.rows.machine(page, at) for page in pages for at in range(num_rows(page)))
    for machine in machines:
        try:
            money = system_money(machine.load(), 1, answer.rows.terms)
        except UsageError:
            continue
        if money.standing != "firm":
            found[str(machine)] = standing_record(money)
    return found
