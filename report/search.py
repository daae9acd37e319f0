"""What a search found, as one record: the best rows, the front, and where all candidates went."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..explore.search.best import BLOCK, ROW, Best, Columns
from ..explore.search.goals import Goal
from ..explore.search.plan_job import PlanJob
from ..explore.search.searching import Tally
from ..ir.plan import Plan

SCHEMA = "slipstick/search/1"


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A search of plans that is over."""

    job: PlanJob
    model: str
    best: Best
    tally: Tally

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What it was for."""
        return self.job.goals

    def plan(self, rows: Columns, at: int) -> Plan:
        """Return the plan of a row."""
        return self.job.plan_of(rows, at)

    def label(self, rows: Columns, at: int) -> str:
        """Return a row's plan as people write it."""
        return plan_label(self.plan(rows, at))

    def whole_label(self, rows: Columns, at: int) -> str:
        """Return the same with what differs between machines and bases."""
        several = self.machine(rows, at) if len(self.job.machines) > 1 else ""
        return " ".join(filter(None, (self.label(rows, at), self.job.words["base"][int(rows["base"][at])], several)))

    def machine(self, rows: Columns, at: int) -> str:
        """Return what the system of a row has that others have not: its name, numbers that are set."""
        told = [(one.name, *one.overrides) for one in self.job.machines]
        mine = told[int(rows["system"][at])]
        return " ".join(word for word in mine if not all(word in words for words in told))

    def system(self, rows: Columns, at: int) -> str:
        """Return the system of a row, with what is set in it."""
        return str(self.job.machines[int(rows["system"][at])])


def plan_label(plan: Plan) -> str:
    """Return degrees and words of a plan as people write them.

    >>> from slipstick.ir.plan import Family, make_plan
    >>> plan_label(make_plan(num_gpus=16, seq_len=4096, family=Family(sp=True, zero=1), tp=8, global_batch=64))
    'tp8 dp2 mbs1 sp zero1'
    """
    f = plan.family
    words = [
        f"mbs{plan.micro_batch}", "sp" if f.sp else "", f"zero{f.zero}" if f.zero else "",
        f.cp if plan.cp > 1 else "", f.schedule if plan.pp > 1 and f.schedule != "1f1b" else "",
        f"recompute={f.recompute}" if f.recompute != "none" else "", f.precision if f.precision != "none" else "",
        f"offload={'+'.join(f.offload)}" if f.offload else "",
    ]  # fmt: skip
    return " ".join((plan.degrees, *filter(None, words)))


def search_json(answer: SearchAnswer, tool_version: str) -> str:
    """Return the answer as JSON: what was searched, where candidates went, the best rows and the front."""
    tally = answer.tally
    document = {
        "schema": SCHEMA,
        "tool_version": tool_version,
        "model": answer.model,
        "digest": answer.job.digest,
        "objectives": [str(goal) for goal in answer.goals],
        "constraints": [str(limit) for limit in answer.job.limits],
        "num_candidates": tally.num_candidates,
        "num_legal": tally.num_legal,
        "num_kept": tally.num_kept,
        "pruned": dict(sorted(tally.pruned.items())),
        "crashed": tally.crashed,
        "best": _rows(answer, answer.best.top),
        "front": _rows(answer, answer.best.front),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _rows(answer: SearchAnswer, rows: Columns) -> list[Mapping[str, object]]:
    words, num = answer.job.words, len(next(iter(rows.values()))) if rows else 0
    found: list[Mapping[str, object]] = []
    for at in range(num):
        told = {name: words[name][int(column[at])] if name in words else _number(float(column[at]))
                for name, column in rows.items() if name not in (BLOCK, ROW, "part", "base")}  # fmt: skip
        found.append({"plan": answer.label(rows, at), **told})
    return found


def _number(value: float) -> float | int | None:
    """A number as JSON has it; nothing where it is not known."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
