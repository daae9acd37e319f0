"""Everything that traces of a run say beside a prediction: ops, layers, collectives, waiting, ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.records import dataclass
from ..traces.gaps import CollectiveRow, Idle, collectives, idle
from ..traces.trace import RankTrace
from .match import Matched, match
from .planned import PlannedStep
from .ranks import RankRow, rank_rows
from .sizes import keys_of, message_key
from .tables import MatchTables, tables_of


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Collectives that are alike, in seconds of a step; `predicted_s` is None where the prediction has none of them."""

    kind: str
    num_bytes: float
    ranks: int
    group: str
    calls: float
    predicted_s: float | None
    measured_s: float
    exposed_s: float


@dataclass(frozen=True, slots=True)
class MatchedRun:
    """A measured run beside a prediction, by node; the first trace is matched, the others are ranks beside it."""

    matched: Matched
    tables: MatchTables
    collectives: Sequence[CollectiveTimes]
    idle: Idle
    ranks: Sequence[RankRow]


def matched_run(
    traces: Sequence[RankTrace], planned: PlannedStep, stage: int = 0, num_steps: int | None = None
) -> MatchedRun:
    """Match the first of several ranks' traces to its pipeline stage, and set the ranks side by side."""
    found = match(traces[0], planned, stage, num_steps)
    chosen = traces[0].counted(num_steps)
    return MatchedRun(
        found,
        tables_of(found),
        [_times(found, row) for row in collectives(traces[0], chosen)],
        idle(traces[0], chosen),
        rank_rows(traces, found.steps, num_steps),
    )


def _times(found: Matched, row: CollectiveRow) -> CollectiveTimes:
    """Set what was predicted of the same kind and bytes beside a collective."""
    where, message = found.positions, row.message
    alike = np.array([message_key(message) in keys_of(n) for n in where.planned.nodes], dtype=np.bool_)
    mine = alike[where.node]
    scale = 1e-6 / found.steps
    return CollectiveTimes(
        message.kind,
        message.num_bytes,
        message.ranks,
        message.group,
        row.calls / found.steps,
        float(where.time_s[mine].sum()) if mine.any() else None,
        row.time_us * scale,
        row.exposed_us * scale,
    )
