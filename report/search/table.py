"""What a search found as people read it, counts and the best kinds as a table, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ...driver.metrics import METRICS, format_metric
from ...explore.best import BLOCK, ROW, Columns
from ...explore.kinds import places_of
from ...ir.text.json_text import json_text
from ..columns import in_columns
from ..ranking import evidence_word
from .answer import SearchAnswer, num_rows, standings_of
from .ties import Backing, backing_record, backings_of, ties_record, ties_text

SCHEMA = "slipstick/search/1"


def search_text(answer: SearchAnswer, width: int | None = None) -> str:
    """Return the answer as text: what was searched and pruned, then the best rows."""
    table = best_table(answer, answer.ranked, width)
    notes = (f"note: {line}" for line in answer.rows.warnings(answer.best.top, 0))
    return "\n".join([*_counts(answer), "", table, *ties_text(answer, width), *_money(answer), *notes])


def best_table(answer: SearchAnswer, rows: Columns, width: int | None = None) -> str:
    """Return rows as a table: place, plan, what else differs, goals and the usual metrics."""
    metrics = list(dict.fromkeys([goal.name for goal in answer.rows.goals] + list(answer.rows.shown)))
    others = list(answer.rows.others(rows, 0))
    goal = metrics[0]
    more = [f"+{num}" if num else "" for num in answer.num_others]
    has_more = any(more)
    labels = [METRICS[name].label for name in metrics]
    heading = ["", "plan", *(["more"] if has_more else []), *others, labels[0], "90 %", *labels[1:], "evidence"]
    body = [
        [
            f"{at + 1}{'=' if one.is_tie else ''}",
            answer.rows.label(rows, at),
            *([more[at]] if has_more else []),
            *answer.rows.others(rows, at).values(),
            format_metric(goal, float(rows[goal][at])),
            _interval(one, goal, float(rows[goal][at])),
            *(format_metric(name, float(rows[name][at])) for name in metrics[1:]),
            evidence_word(one.evidence),
        ]
        for at, one in enumerate(backings_of(answer, rows))
    ]
    table = in_columns([heading, *body], width)
    told = f"+N: more of the kind among the best {num_rows(answer.best.top)}, other in vpp or micro-batches alone"
    return f"{table}\n{told}" if has_more else table


def _interval(one: Backing, goal: str, value: float) -> str:
    """Return where nine of ten measurements of a goal are expected."""
    if one.band is None or not value > 0:
        return "-"
    ends = one.band.around(value)
    return f"{format_metric(goal, ends.least)} to {format_metric(goal, ends.most)}"


def _money(answer: SearchAnswer) -> Iterator[str]:
    """What sums are worth, where they are not firm, machine by machine."""
    for machine, record in standings_of(answer).items():
        other = record["standing"] == "not of this machine"
        yield f"{machine}: {'no sum is of this machine' if other else 'every sum is at least so much'}"
        for word, key in (("not priced", "unpriced"), ("not of this machine", "outdated")):
            lines = record[key]
            assert isinstance(lines, list)
            yield from (f"  {word}: {line}" for line in lines)


def _counts(answer: SearchAnswer) -> Iterator[str]:
    tally = answer.tally
    of = f"of {answer.rows.of}" if answer.trials is None else f"on {len(answer.trials.values):,} machines"
    yield f"{answer.model}: {tally.num_candidates:,} candidates {of}"
    yield from () if answer.trials is None else answer.trials.lines()
    rest = "; left out:" if tally.pruned else ""
    yield f"  {tally.num_legal:,} legal by divisibility, {tally.num_kept:,} evaluated and kept{rest}"
    yield from (f"  {num:>12,}  {reason}" for reason, num in tally.pruned.most_common())
    if tally.crashed:
        yield f"  {len(tally.crashed):>12,}  failed, the first: {tally.crashed[0]}"


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
    has_kinds, goal = "vpp" in rows and answer.kinds is not None, answer.rows.goals[0].name
    kinds = places_of(answer.ranked, rows) if has_kinds else []
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
        place = kinds[at] if kinds else None
        kind = {} if place is None else {"kind": place + 1}
        found.append({"plan": answer.rows.label(rows, at), **kind, **tried, **told, **standing, **backed})
    return found


def _number(value: float) -> float | int | None:
    """A number as JSON has it; nothing where it is not known."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
