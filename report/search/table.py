"""What a search found as people read it: counts, and the best rows as a table."""

from __future__ import annotations

from collections.abc import Iterator

from ...driver.metrics import METRICS, format_metric
from ...explore.best import Columns
from ..columns import in_columns
from .answer import SearchAnswer, num_rows, standings_of
from .ties import ties_text


def search_text(answer: SearchAnswer, width: int | None = None) -> str:
    """Return the answer as text: what was searched and pruned, then the best rows."""
    table = best_table(answer, answer.best.top, width)
    notes = (f"note: {line}" for line in answer.rows.warnings(answer.best.top, 0))
    return "\n".join([*_counts(answer), "", table, *ties_text(answer, width), *_money(answer), *notes])


def best_table(answer: SearchAnswer, rows: Columns, width: int | None = None) -> str:
    """Return rows as a table: place, plan, what else differs, goals and the usual metrics."""
    metrics = list(dict.fromkeys([goal.name for goal in answer.rows.goals] + list(answer.rows.shown)))
    others = list(answer.rows.others(rows, 0))
    heading = ["", "plan", *others, *(METRICS[name].label for name in metrics)]
    body = [
        [
            str(at + 1),
            answer.rows.label(rows, at),
            *answer.rows.others(rows, at).values(),
            *(format_metric(name, float(rows[name][at])) for name in metrics),
        ]
        for at in range(num_rows(rows))
    ]
    return in_columns([heading, *body], width)


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
