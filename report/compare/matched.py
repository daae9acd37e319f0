"""Kernels beside nodes as tables for people and as JSON: ops, layers, collectives, waiting, ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ...measured.match.run import MatchedRun
from ...measured.match.tables import MatchedLayer, MatchedOp
from ..readable import shown
from ..results.table import Panel

# Rows of a table for people; JSON has all.
_OPS, _LAYERS, _NAME = 14, 8, 72
_SHARES = ("shape", "class", "between", "optimizer", "nothing")


def matched_panels(run: MatchedRun) -> Sequence[Panel]:
    """Return the tables."""
    rows = [(kind, *(f"{shares.get(how, 0.0):.1%}" for how in _SHARES)) for kind, shares in run.tables.shares.items()]
    panels = [
        _ops(run),
        _layers(run),
        Panel("Kernels matched, share of their time", ("class", *_SHARES), rows),
        _collectives(run),
        _waiting(run),
        _ranks(run),
    ]
    return [panel for panel in panels if panel.rows]


def matched_notes(run: MatchedRun) -> Iterator[str]:
    """Yield what stands above the tables: what was matched, and what a reader must know."""
    found, steps = run.tables, run.matched.steps
    number = "one step" if steps == 1 else f"{steps} steps"
    yield f"kernels of {number}: {found.product_share:.1%} of the time of matrix products matched to nodes"
    yield from found.notes
    if found.untold:
        name, seconds = next(iter(found.untold.items()))
        yield (
            f"{_s(sum(found.untold.values()))} of a step in kernels that no node predicts, most in {name[:_NAME]}: "
            f"{_s(seconds)}"
        )


def matched_record(run: MatchedRun) -> dict[str, object]:
    """Return all of it for JSON, in SI units."""
    # Kernels beside the nodes that predict them.
    found = run.tables
    kernels = {
        "kernel_time_s": found.measured_s,
        "product_share": found.product_share,
        "seen_share": found.seen,
        "notes": list(found.notes),
        "shares": found.shares,
        "ops": [
            {
                "name": r.name,
                "phase": r.part,
                "matched_by": r.how,
                "nodes": list(r.nodes),
                "predicted_s": r.predicted_s,
                "measured_s": r.measured_s,
                "gap_s": r.gap_s,
                "ratio": r.ratio,
                "predicted_calls": r.predicted_calls,
                "measured_calls": r.measured_calls,
            }
            for r in found.ops
        ],
        "layers": [
            {"layer": r.layer if r.layer >= 0 else None, "predicted_s": r.predicted_s, "measured_s": r.measured_s}
            for r in found.layers
        ],
        "unmatched_s": found.untold,
    }
    return {"steps": run.matched.steps, "tokens": run.matched.tokens, **kernels, **_waits(run)}


def _waits(run: MatchedRun) -> dict[str, object]:
    """Messages, gaps between kernels, and ranks that wait for others."""
    return {
        "collectives": [
            {
                "kind": r.kind,
                "bytes": r.num_bytes,
                "ranks": r.ranks,
                "group": r.group,
                "calls": r.calls,
                "predicted_s": r.predicted_s,
                "measured_s": r.measured_s,
                "exposed_s": r.exposed_s,
            }
            for r in run.collectives
        ],
        "idle": {
            "time_s": _per_step(run, run.idle.time_us),
            "host_late_s": _per_step(run, run.idle.late_us),
            "short_s": _per_step(run, run.idle.short_us),
            "longest": [{"before": g.before, "after": g.after, "time_s": g.time_us * 1e-6} for g in run.idle.longest],
        },
        "ranks": [
            {
                "path": r.path,
                "step_s": r.step_s,
                "compute_s": r.compute_s,
                "exposed_comm_s": r.exposed_comm_s,
                "idle_s": r.idle_s,
                "waits_s": r.waits_s,
            }
            for r in run.ranks
        ],
    }


def _ops(run: MatchedRun) -> Panel:
    rows = run.tables.ops
    shown_ops = [_op(row) for row in rows[:_OPS]]
    if rest := rows[_OPS:]:
        predicted, measured = sum(r.predicted_s for r in rest), sum(r.measured_s for r in rest)
        shown_ops.append((f"{len(rest)} more", "", "", *_both(predicted, measured)))
    head = ("op", "phase", "matched by", "predicted", "measured", "gap", "ratio")
    return Panel("Ops, those that explain most of the gap first", head, shown_ops)


def _op(row: MatchedOp) -> tuple[str, ...]:
    name = row.name if len(row.name) <= _NAME else f"{row.name[: _NAME - 3]}..."
    return name, row.part, row.how, *_both(row.predicted_s, row.measured_s)


def _both(predicted: float, measured: float) -> tuple[str, str, str, str]:
    ratio = f"{predicted / measured:.2f}" if measured else ""
    gap = measured - predicted
    return _s(predicted), _s(measured), f"{'+' if gap >= 0 else '-'}{_s(abs(gap))}", ratio


def _layers(run: MatchedRun) -> Panel:
    """All layers where they are few; else the middle one, the fastest and the slowest."""
    layers = [row for row in run.tables.layers if row.layer >= 0]
    ends = [row for row in run.tables.layers if row.layer < 0]
    rows: list[tuple[str, ...]] = [("beside the layers", *_both(row.predicted_s, row.measured_s)) for row in ends]
    if len(layers) <= _LAYERS:
        rows += [(f"layer {row.layer}", *_both(row.predicted_s, row.measured_s)) for row in layers]
    else:
        rows += list(_spread(layers))
    return Panel("Layers", ("layer", "predicted", "measured", "gap", "ratio"), rows)


def _spread(layers: Sequence[MatchedLayer]) -> Iterator[tuple[str, ...]]:
    middle = median(row.predicted_s for row in layers), median(row.measured_s for row in layers)
    yield f"median of {len(layers)} layers", *_both(*middle)
    for word, row in (("fastest", min(layers, key=_measured)), ("slowest", max(layers, key=_measured))):
        yield f"{word}: layer {row.layer}", *_both(row.predicted_s, row.measured_s)


def _measured(row: MatchedLayer) -> float:
    return row.measured_s


def _collectives(run: MatchedRun) -> Panel:
    rows = [
        (
            r.kind,
            shown(r.num_bytes, "B") if r.num_bytes else "",
            str(r.ranks or ""),
            r.group,
            f"{r.calls:g}",
            "" if r.predicted_s is None else _s(r.predicted_s),
            _s(r.measured_s),
            _s(r.exposed_s),
        )
        for r in run.collectives
    ]
    return Panel("Collectives", ("kind", "bytes", "ranks", "group", "calls", "predicted", "measured", "exposed"), rows)


def _waiting(run: MatchedRun) -> Panel:
    waits = run.idle
    rows = [("nothing runs", _s(_per_step(run, waits.time_us)))]
    if waits.late_us:
        rows.append(("of it before kernels that the host launched too late", _s(_per_step(run, waits.late_us))))
    rows.append(("of it in pauses below 10 us", _s(_per_step(run, waits.short_us))))
    rows += [
        (f"longest: from {g.before[:_NAME]} to {g.after[:_NAME]}", _s(g.time_us * 1e-6)) for g in waits.longest[:3]
    ]
    return Panel("Waiting", ("", "a step"), rows)


def _ranks(run: MatchedRun) -> Panel:
    """Several ranks; one has nothing to be compared with."""
    rows = [
        (
            r.path,
            _s(r.step_s),
            _s(r.compute_s),
            _s(r.exposed_comm_s),
            _s(r.idle_s),
            "" if r.waits_s is None else _s(r.waits_s),
        )
        for r in run.ranks
    ]
    head = ("rank", "step", "computes", "exposed communication", "idle", "waits for others")
    return Panel("Ranks", head, rows if len(rows) > 1 else [])


def _per_step(run: MatchedRun, time_us: float) -> float:
    return time_us * 1e-6 / run.matched.steps


def _s(seconds: float) -> str:
    return shown(seconds, "s")
