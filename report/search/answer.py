"""What a search found, as one record: the best rows, the front, and where all candidates went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from ...cost.money import Terms, system_money
from ...driver.estimate import Estimate
from ...driver.serve.answer import ServeEstimate
from ...explore.best import BLOCK, ROW, Best, Columns
from ...explore.goals import Goal, MetricLimit
from ...explore.kinds import Kinds
from ...explore.machine import MachineChoice
from ...explore.searching import CandidateTally
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ..cost.money import standing_record
from .ties import ties_record
from .trials import Trials

SCHEMA = "slipstick/search/1"


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

    def whole_label(self, rows: Columns, at: int) -> str:
        """Return what a row is, with everything that differs between rows."""
        return " ".join(filter(None, (self.rows.label(rows, at), *self.rows.others(rows, at).values())))


def search_json(answer: SearchAnswer, tool_version: str) -> str:
    """Return the answer as JSON: what was searched, where candidates went, the best rows and the front."""
    tally, rows = answer.tally, answer.rows
    standings = standings_of(answer)
    document = {
        "schema": SCHEMA,
        "tool_version": tool_version,
        "model": answer.model,
        "systems": [{"name": str(one), "stack": one.stack, "assumed": list(one.assumed)} for one in rows.machines],
        "digest": rows.digest if answer.trials is None else answer.trials.digest,
        "objectives": [str(goal) for goal in rows.goals],
        "constraints": [str(limit) for limit in rows.limits],
        "num_candidates": tally.num_candidates,
        "num_legal": tally.num_legal,
        "num_kept": tally.num_kept,
        "pruned": dict(sorted(tally.pruned.items())),
        "crashed": tally.crashed,
        **({} if answer.trials is None else {"trials": answer.trials.document()}),
        **({} if answer.rows.terms is None else {"money": standings}),
        "warnings": list(answer.rows.warnings(answer.best.top, 0)) if num_rows(answer.best.top) else [],
        **ties_record(answer),
        "best": _records(answer, answer.best.top, standings),
        "front": _records(answer, answer.best.front, standings),
    }
    return json_text(document, indent=1)


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


def _records(
    answer: SearchAnswer, rows: Columns, standings: Mapping[str, Mapping[str, object]]
) -> list[Mapping[str, object]]:
    words, hidden = answer.rows.words, {BLOCK, ROW, *answer.rows.hidden}
    found: list[Mapping[str, object]] = []
    for at in range(num_rows(rows)):
        told = {
            name: words[name][int(column[at])] if name in words else _number(float(column[at]))
            for name, column in rows.items()
            if name not in hidden
        }
        tried = {} if answer.trials is None else {"values": answer.trials.values[int(rows["trial"][at])]}
        worth = standings.get(str(answer.rows.machine(rows, at))) if standings else None
        standing = {} if worth is None else {"money": worth["standing"]}
        found.append({"plan": answer.rows.label(rows, at), **tried, **told, **standing})
    return found


def _number(value: float) -> float | int | None:
    """A number as JSON has it; nothing where it is not known."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
