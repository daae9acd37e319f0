"""Every priced node as a row: work, time, bound."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict

from ...backends.pricing.timing import PricedGroup
from ...driver.estimate import Estimate
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ..columns import in_columns


@dataclass(frozen=True, slots=True)
class CostedNode:
    """One node of the costed graph, for one device and one run of its region; `count` says how often it runs."""

    node: str
    op: str
    scope: str
    phase: str
    count: int
    tensor_flops: float
    vector_flops: float
    num_bytes: float
    time_s: float
    bound: str


def costed_rows(answer: Estimate) -> Iterator[CostedNode]:
    """Yield the nodes in the order of the graph."""
    found = {row.node: row for priced in answer.table.timing.priced for row in _rows(answer, priced)}
    for region in answer.table.lowered.graph.regions:
        for node in region.nodes:
            row = found.get(f"{region.name}/%{node.key}")
            if row is not None:
                yield row


def _rows(answer: Estimate, priced: PricedGroup) -> Iterator[CostedNode]:
    env = {k: float(v[0]) for k, v in answer.table.plans.columns.items()}
    for i, e in enumerate(priced.group.entries):
        if e.message is not None:
            amounts = (0.0, 0.0, float(e.message.evaluate(env)))
            bound = "network"
        else:
            w = e.work
            amounts = (
                float(w.tensor_flops.evaluate(env)),
                float(w.vector_flops.evaluate(env)),
                float(w.num_bytes.evaluate(env)),
            )
            bound = priced.kernels.bound(i, int(priced.point[0])) if priced.kernels is not None else ""
        time_s = float(priced.time_s[i, priced.point[0]])
        yield CostedNode(e.name, e.op, e.scope, str(e.phase), e.count, *amounts, time_s, bound)


def costed_text(answer: Estimate, suffix: str) -> str:
    """Return the rows as CSV, JSON or an aligned table, by file suffix."""
    rows = [asdict(r) for r in costed_rows(answer)]
    if suffix == ".json":
        return json_text(rows, indent=1)
    if suffix == ".csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()
    return _table(rows)


def _table(rows: list[dict[str, object]]) -> str:
    cells = [list(rows[0])] + [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    return in_columns(cells) + "\n"
