"""What a search found as JSON: the best rows with what they rest on, the front, and where all candidates went."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...explore.best import BLOCK, ROW, Columns
from ...explore.kinds import places_of
from ...ir.text.json_text import json_text
from .answer import SearchAnswer, num_rows, standings_of
from .backing import backing_record, backings_of
from .ties import ties_record

SCHEMA = "slipstick/search/1"


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


def _records(
    answer: SearchAnswer, rows: Columns, standings: Mapping[str, Mapping[str, object]]
) -> list[Mapping[str, object]]:
    words, hidden = answer.rows.words, {BLOCK, ROW, *answer.rows.hidden}
    goal, kinds = answer.rows.goals[0].name, _kinds_of(answer, rows)
    found: list[Mapping[str, object]] = []
    for at, backing in enumerate(backings_of(answer, rows)):
        told = {
            name: words[name][int(column[at])] if name in words else _number(float(column[at]))
            for name, column in rows.items()
            if name not in hidden
        }
        tried = {} if answer.trials is None else {"values": answer.trials.values[int(rows["trial"][at])]}
        worth = standings.get(str(answer.rows.machine(rows, at))) if standings else None
        standing = {} if worth is None else {"money": worth["standing"]}
        backed = backing_record(backing, float(rows[goal][at]))
        kind = {"kind": kinds[at]} if kinds else {}
        found.append({"plan": answer.rows.label(rows, at), **kind, **tried, **told, **standing, **backed})
    return found


def _kinds_of(answer: SearchAnswer, rows: Columns) -> list[int | None]:
    """Return the place of the kind of each row in the table of kinds, from 1 on; nothing where rows have no kinds."""
    if "vpp" not in rows or answer.kinds is None:
        return []
    return [None if at is None else at + 1 for at in places_of(answer.ranked, rows)]


def _number(value: float) -> float | int | None:
    """A number as JSON has it; nothing where it is not known."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
