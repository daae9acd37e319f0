"""A comparison as text for a screen, as Markdown for a review, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from ...driver.metrics import METRICS
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.text.shown import markdown_code, markdown_text
from ..columns import in_columns
from ..explain.intervals import shares_between
from ..readable import percent, shown, shown_both, shown_change, shown_relative
from .comparison import Change, Comparison, ComparisonSection, Differs, split
from .gates import Gate

SCHEMA = "slipstick/comparison/1"
# Parts that a sentence names, and the share of the whole change below which it does not.
MOST_NAMED = 3
LEAST_NAMED = 0.05
# Inputs without which steps are not of the same work.
WORK = ("model.name", "phase", "plan.gbs", "plan.seq", "system.num_gpus")
# A digest says that something differs; it is of no interest beside another input that says what.
DIGESTS = {
    "system.numbers_sha256": ("system.name", "system.chip", "system.stack", "system.calibration", "--set"),
    "money.prices_sha256": ("money.prices", "--set"),
    "model.graph_sha256": ("model.name", "model.num_parameters", "phase", "dtype"),
}


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A table under a title, and lines that say what it leaves out."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def comparison_text(found: Comparison, gates: Sequence[Gate], floor: float, columns: int | None = None) -> str:
    """Return the comparison for a screen; changes below `floor`, a share of the whole, are not listed."""
    lines = [f"A  {found.a.path}", f"B  {found.b.path}", *_sentences(found, floor)]
    for block in _blocks(found, floor):
        rows = [(block.title, *block.head), *block.rows] if block.rows else [(block.title,)]
        lines += ["", in_columns(rows, columns), *block.notes]
    lines += ["", *(f"gate {'FAILED' if gate.failed else 'passed'}  {gate}" for gate in gates)] if gates else []
    return "\n".join(lines)


def comparison_markdown(found: Comparison, gates: Sequence[Gate], floor: float) -> str:
    """Return the same as Markdown: the answer first, then gates, then tables."""
    first, *rest = _sentences(found, floor)
    lines = [f"**{markdown_text(first)}**", *(f"- {markdown_text(line.strip())}" for line in rest)]
    lines.insert(1, "")
    lines += ["", f"A is {markdown_code(found.a.path)}, B is {markdown_code(found.b.path)}."]
    lines += ["", *map(_markdown_gate, gates)]
    for block in _blocks(found, floor):
        lines += ["", *_markdown_table(block)]
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def comparison_json(found: Comparison, gates: Sequence[Gate], kernels: Mapping[str, object] | None = None) -> str:
    """Return all of it as JSON in SI units; a relative change is null for what was zero in A.

    `kernels` are those of a measured trace beside the nodes of a prediction.
    """
    record = {
        "schema": SCHEMA,
        "a": {"path": found.a.path, "feasible": found.a.fits},
        "b": {"path": found.b.path, "feasible": found.b.fits},
        "inputs": [{"name": d.name, "a": d.before, "b": d.after} for d in found.inputs],
        "metrics": {c.name: _record(c) | _interval_record(c) for c in found.metrics.values()},
        "paired": found.is_paired,
        "alone": dict(found.alone),
        "parts": {
            s.name: {"of": s.whole.name, "changes": {c.name: _record(c) for c in s.parts}} for s in found.sections
        },
        "warnings": [{"report": which, "warning": text} for which, text in found.warnings],
        "gates": [
            {"gate": g.text, "failed": g.failed, "found": _finite(g.found), "limit": g.limit, "kind": g.kind}
            for g in gates
        ],
        **({} if kernels is None else {"kernels": kernels}),
    }
    return json_text(record, indent=2)


def _record(c: Change) -> dict[str, object]:
    return {"a": c.before, "b": c.after, "difference": c.difference, "relative": _finite(c.relative)}


def _interval_record(c: Change) -> dict[str, object]:
    """Where the relative change of a metric is expected when both are measured."""
    if c.ratio is None or not c.before or not math.isfinite(c.relative):
        return {}
    ends = asdict(c.ratio.around(c.after / c.before))
    return {"relative_interval": {name: end - 1.0 for name, end in ends.items()}}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _sentences(found: Comparison, floor: float) -> Iterator[str]:
    """Say what changed most and what made it change, and whether one of both does not fit."""
    whole = found.headline
    label = _label(whole.name)
    if abs(whole.relative) <= floor:
        within = f" within {floor * 100:.3g} %" if whole.difference else ""
        yield f"{label}: {shown(whole.after, whole.unit)}, the same{within}"
    else:
        span = f" (90 %: {_measured_change(whole)})" if _measured_change(whole) else ""
        yield f"{label}: {' to '.join(shown_both(whole))}: {shown_change(whole)}, {shown_relative(whole)}{span}"
        yield from _reasons(found)
    # Say that steps of other work are compared, and what can be compared instead.
    differ = [d.name for d in found.inputs if d.name in WORK and _is_change(d)]
    rate = found.metrics.get("tokens_per_s_per_gpu")
    if differ:
        instead = f"; {_label(rate.name)} {shown_relative(rate)}" if rate is not None else ""
        yield f"  not the same work: {', '.join(differ)} {'differs' if len(differ) == 1 else 'differ'}{instead}"
    for which, report in (("A", found.a), ("B", found.b)):
        if not report.fits:
            yield f"  {which} does not fit the memory of its machine"
    for which, text in found.warnings:
        yield f"  only {which} notes: {text}"


def _measured_change(change: Change) -> str:
    """Where nine tenths of measurements of a relative change lie; nothing where that is not known."""
    if change.ratio is None or change.before <= 0.0 or change.after <= 0.0:
        return ""
    return shares_between(change.after / change.before, change.ratio)


def _reasons(found: Comparison) -> Iterator[str]:
    """Name the parts that make most of the change of the headline."""
    whole = found.headline
    for section in found.sections:
        if section.whole is not whole or not section.add_up:
            continue
        moved = sum(abs(c.difference) for c in section.parts)
        named = [c for c in section.parts[:MOST_NAMED] if abs(c.difference) >= LEAST_NAMED * moved and c.difference]
        if named:
            first, *rest = (f"{c.name} {shown_change(c)}" for c in named)
            yield f"  {', '.join([f'{first} of the {shown_change(whole)}', *rest])}"


def _blocks(found: Comparison, floor: float) -> Iterator[TextBlock]:
    yield _inputs(found)
    yield _metrics(found, floor)
    for section in found.sections:
        block = _section(section, floor)
        if block.rows or block.notes:
            yield block


def _inputs(found: Comparison) -> TextBlock:
    """Inputs that differ; what one report does not say, because another version wrote it, is no difference."""
    both = [d for d in found.inputs if _is_change(d) and not _is_explained(d, found)]
    rows = [(d.name, _input(d.name, d.before), _input(d.name, d.after)) for d in both]
    notes = [
        f"only {which} says: {', '.join(names)}"
        for which, names in (
            ("A", [f"{d.name} {_input(d.name, d.before)}" for d in found.inputs if not _is_change(d) and d.before]),
            ("B", [f"{d.name} {_input(d.name, d.after)}" for d in found.inputs if not _is_change(d) and d.after]),
        )
        if names
    ]
    if rows or not found.a.inputs:
        return TextBlock("Inputs that differ", ("A", "B"), rows, notes)
    return TextBlock("No input differs", (), (), notes)


def _is_change(d: Differs) -> bool:
    return d.name.startswith("--set ") or None not in (d.before, d.after)


def _is_explained(d: Differs, found: Comparison) -> bool:
    others = DIGESTS.get(d.name, ())
    return any(other.name.split(" ")[0] in others for other in found.inputs)


def _input(name: str, value: str | None) -> str:
    if value is None:
        return "-"
    return value[:12] if name.endswith("_sha256") else value


def _metrics(found: Comparison, floor: float) -> TextBlock:
    large = [c for c in found.metrics.values() if abs(c.relative) > floor]
    small = [c.name for c in found.metrics.values() if abs(c.relative) <= floor]
    notes = [f"{_below(floor)}: {', '.join(small)}"] if small else []
    for which in ("A", "B"):
        names = [name for name, owner in found.alone.items() if owner == which]
        notes += [f"only in {which}: {', '.join(names)}"] if names else []
    spans = [_measured_change(c) for c in large]
    extra = [(span,) if any(spans) else () for span in spans]
    rows = [(*_row(c), *span) for c, span in zip(large, extra, strict=True)]
    head = ("A", "B", "change", "relative", *(("90 %",) if any(spans) else ()))
    return TextBlock("Metrics", head, rows, notes)


def _row(c: Change) -> tuple[str, ...]:
    return c.name, *shown_both(c), shown_change(c), shown_relative(c)


def _below(floor: float) -> str:
    return f"changed by {floor * 100:.3g} % at most" if floor else "the same"


def _section(section: ComparisonSection, floor: float) -> TextBlock:
    """The parts that changed, with their share of the change of the whole, and the sum of those that are not listed."""
    whole = section.whole
    size = (
        max(abs(whole.before), abs(whole.after))
        if section.add_up
        else max([abs(v) for c in section.parts for v in (c.before, c.after)], default=0.0)
    )
    large, small = split(section.parts, floor * size)
    shared = section.add_up and abs(whole.difference) > floor * size
    rows = [(*_row(c), percent(c.difference / whole.difference)) if shared else _row(c) for c in large]
    moved = [c for c in small if c.difference]
    rest = Change("", whole.unit, 0.0, sum(c.difference for c in moved))
    notes = [f"{len(moved)} more: {shown_change(rest)}"] if moved and section.add_up else []
    head = ("A", "B", "change", "relative", *(("of the change",) if shared else ()))
    return TextBlock(section.title, head, rows, notes)


def _label(name: str) -> str:
    return METRICS[name].label if name in METRICS else name


def _measured(gate: Gate) -> str:
    return str(gate).removeprefix(f"{gate.text}: ")


def _markdown_gate(gate: Gate) -> str:
    mark = "❌" if gate.failed else "✅"
    return f"- {mark} {markdown_code(gate.text)}: {markdown_text(_measured(gate))}"


def _markdown_table(block: TextBlock) -> Iterator[str]:
    notes = [f"_{markdown_text(note)}_" for note in block.notes]
    if not block.rows:
        yield from (f"**{markdown_text(block.title)}**", *(("", *notes) if notes else ()))
        return
    yield f"| {' | '.join(map(markdown_text, (block.title, *block.head)))} |"
    yield f"| --- |{' ---: |' * len(block.head)}"
    for row in block.rows:
        yield f"| {' | '.join(map(markdown_text, row))} |"
    if notes:
        yield ""
        yield from notes
