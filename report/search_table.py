"""What a search found as people read it: counts, the best plans as a table, and what is worth knowing of them."""

from __future__ import annotations

from collections.abc import Iterator

from ..explore.search.best import Columns
from .columns import in_columns
from .metrics import METRICS, format_metric
from .search import SearchAnswer

_SHOWN = ("step_time_s", "tokens_per_s_per_gpu", "mfu", "peak_mem_bytes")


def search_text(answer: SearchAnswer, width: int | None = None) -> str:
    """Return the answer as text: what was searched and pruned, then the best rows."""
    return "\n".join([*_counts(answer), "", best_table(answer, answer.best.top, width)])


def best_table(answer: SearchAnswer, rows: Columns, width: int | None = None) -> str:
    """Return rows as a table: place, plan, system where there are several, goals and the usual metrics."""
    metrics = list(dict.fromkeys([goal.name for goal in answer.goals] + [n for n in _SHOWN if n in rows]))
    several = len(answer.job.machines) > 1
    based = len(answer.job.bases) > 1
    heading = ["", "plan", *(["system"] if several else []), *(["with"] if based else []),
               *(METRICS[name].label for name in metrics)]  # fmt: skip
    body = [
        [str(at + 1), answer.label(rows, at), *([answer.machine(rows, at)] if several else []),
         *([answer.job.words["base"][int(rows["base"][at])]] if based else []),
         *(format_metric(name, float(rows[name][at])) for name in metrics)]
        for at in range(len(rows["part"]))
    ]  # fmt: skip
    return in_columns([heading, *body], width)


def _counts(answer: SearchAnswer) -> Iterator[str]:
    job, tally = answer.job, answer.tally
    families = len({job.parts[block.part].family for block in job.blocks()})
    systems = f" on {len(job.machines):,} systems" if len(job.machines) > 1 else f" on {job.machines[0]}"
    yield f"{answer.model}: {tally.num_candidates:,} candidates of {families:,} families{systems}"
    yield f"  {tally.num_legal:,} legal by divisibility, {tally.num_kept:,} evaluated and kept; left out:"
    yield from (f"  {num:>12,}  {reason}" for reason, num in tally.pruned.most_common())
    if tally.crashed:
        yield f"  {len(tally.crashed):>12,}  failed, the first: {tally.crashed[0]}"
