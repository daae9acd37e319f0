"""What is in a traced graph, and how it is priced, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...ir import __version__
from ...ir.graph import Workload
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_flops, format_time
from ..accuracy import ANY
from ..columns import in_columns
from ..explain.pricing import BYTES_ALONE, NO_KERNEL, PricedOp
from .contents import Amount, GraphContents

SCHEMA = "slipstick/trace/1"
_REGIONS = ("region", "runs", "nodes", "parameters", "matrix FLOP", "bytes", "saved")
_OPS = ("op", "class", "calls", "matrix FLOP", "share", "bytes", "share")
_PRICED = ("op", "calls", "FLOP", "bytes", "time", "priced by")


def contents_text(found: GraphContents, columns: int | None = None) -> str:
    """Return what is in a graph: totals, regions, ops by kind, notes."""
    graph = found.graph
    sizes = "  ".join(f"{name} {size}" for name, size in found.sizes.items())
    parts = [
        f"{graph.name}  {graph.workload}  {graph.dtype}  {sizes}",
        in_columns(list(_totals(found)), columns),
        _table(_REGIONS, _regions(found), (0,), columns),
        _table(_OPS, _ops(found), (0, 1), columns),
        *(f"note: {note}" for note in graph.notes),
    ]
    return "\n\n".join(parts[:4]) + "".join(f"\n{line}" for line in parts[4:]) + "\n"


def _totals(found: GraphContents) -> Iterator[tuple[str, str]]:
    yield "parameters", f"{found.num_parameters:,.0f} in {format_bytes(found.parameter_bytes)}"
    for phase, amount in found.by_phase.items():
        yield phase, f"{format_flops(amount.matrix_flops)} of matrices, {format_bytes(amount.num_bytes)} moved"
    if found.graph.workload is Workload.TRAIN:
        yield "saved for backward", format_bytes(found.saved_bytes)
    if found.cache_bytes:
        yield "caches read", format_bytes(found.cache_bytes)


def _regions(found: GraphContents) -> Iterator[Sequence[str]]:
    for row in found.regions:
        yield (
            row.name,
            f"{row.count}",
            f"{row.num_nodes}",
            f"{row.num_parameters:,.0f}",
            _known(row.amount.matrix_flops),
            format_bytes(row.amount.num_bytes),
            _kept(row.saved_bytes),
        )


def _ops(found: GraphContents) -> Iterator[Sequence[str]]:
    whole = found.whole
    for row in found.ops:
        a = row.amount
        yield (
            row.op,
            row.kind,
            f"{a.calls:,}",
            _known(a.matrix_flops),
            _part(a.matrix_flops, whole.matrix_flops),
            format_bytes(a.num_bytes),
            _part(a.num_bytes, whole.num_bytes),
        )


def coverage_text(found: GraphContents, ops: Sequence[PricedOp], machine: str, columns: int | None = None) -> str:
    """Return how each op is priced: calls, shares of FLOPs (of all arithmetic), bytes and time, and the model."""
    graph, whole = found.graph, found.whole
    sizes = "  ".join(f"{name} {size}" for name, size in found.sizes.items())
    seconds = sum(row.time_s for row in ops)
    rows = [
        (
            row.op,
            f"{row.amount.calls:,}",
            _part(_flops(row.amount), _flops(whole)),
            _part(row.amount.num_bytes, whole.num_bytes),
            _part(row.time_s, seconds),
            priced_by(row),
        )
        for row in ops
    ]
    lines = [
        f"{graph.name}  {graph.workload}  {graph.dtype}  {sizes}  on one device of {machine}",
        "",
        _table(_PRICED, rows, (0, 5), columns),
        "",
        f"kernels one by one, nothing fused: {format_time(seconds)}; {_summary(ops)}",
        *(f"note: {note}" for note in graph.notes),
    ]
    return "\n".join(lines) + "\n"


def priced_by(row: PricedOp) -> str:
    """Say in a few words what prices an op and how well that is checked.

    >>> priced_by(PricedOp("reshape", "free", NO_KERNEL, (), None, Amount(), 0.0))
    'no kernel: a view'
    """
    if row.model == NO_KERNEL:
        return "no kernel: a view"
    if row.model == BYTES_ALONE:
        return "bytes alone: no rule, FLOPs unknown"
    constants = f" ({', '.join(row.constants)})" if row.constants else ""
    if row.accuracy is None:
        return f"{row.model}{constants}, not measured"
    where = "this chip" if row.accuracy.of_chip else "other chips"
    of = "its class off" if row.accuracy.kind == ANY else "off"
    return f"{row.model}{constants}, {of} {row.accuracy.median:.1%}, p90 {row.accuracy.p90:.0%} on {where}"


def _summary(ops: Sequence[PricedOp]) -> str:
    """Parts of the bytes by how they are priced."""
    whole = sum(row.amount.num_bytes for row in ops) or 1.0
    measured = sum(row.amount.num_bytes for row in ops if row.accuracy is not None)
    unpriced = [row for row in ops if row.model == BYTES_ALONE]
    said = f"{measured / whole:.1%} of the bytes by models that were measured"
    if not unpriced:
        return f"{said}, none unpriced"
    share = sum(row.amount.num_bytes for row in unpriced) / whole
    return f"{said}, {share:.1%} unpriced: {', '.join(row.op for row in unpriced)}"


def contents_json(found: GraphContents, ops: Sequence[PricedOp] = (), machine: str = "") -> str:
    """Return the same as JSON, in SI units; `pricing` is there where it was asked for."""
    graph = found.graph
    record: dict[str, object] = {
        "schema": SCHEMA,
        "tool_version": __version__,
        "units": "SI",
        "model": {"name": graph.name, "workload": str(graph.workload), "dtype": str(graph.dtype)},
        "sizes": dict(found.sizes),
        "num_parameters": int(found.num_parameters),
        "parameter_bytes": found.parameter_bytes,
        "cache_bytes": found.cache_bytes,
        "saved_bytes": found.saved_bytes,
        "phases": {name: _record(amount) for name, amount in found.by_phase.items()},
        "regions": [
            {
                "name": r.name,
                "runs": r.count,
                "nodes": r.num_nodes,
                "num_parameters": int(r.num_parameters),
                "saved_bytes": r.saved_bytes,
                **_record(r.amount),
            }
            for r in found.regions
        ],
        "ops": [{"op": r.op, "class": r.kind, **_record(r.amount)} for r in found.ops],
        "notes": list(graph.notes),
    }
    if ops:
        record["machine"], record["pricing"] = machine, [_priced_record(row) for row in ops]
    return json_text(record, indent=2)


def _record(amount: Amount) -> dict[str, object]:
    return {
        "calls": amount.calls,
        "matrix_flops": amount.matrix_flops,
        "vector_flops": amount.vector_flops,
        "bytes": amount.num_bytes,
    }


def _priced_record(row: PricedOp) -> dict[str, object]:
    a = row.accuracy
    return {
        "op": row.op,
        "class": row.kind,
        "model": row.model,
        "constants": list(row.constants),
        "time_s": row.time_s,
        "median_ape": None if a is None else a.median,
        "p90_ape": None if a is None else a.p90,
        "measured_on_chip": None if a is None else a.of_chip,
        **_record(row.amount),
    }


def _flops(amount: Amount) -> float:
    return amount.matrix_flops + amount.vector_flops


def _part(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if part else "-"


def _known(flops: float) -> str:
    return format_flops(flops) if flops else "-"


def _kept(num_bytes: float) -> str:
    return format_bytes(num_bytes) if num_bytes else "-"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int], columns: int | None) -> str:
    """Lay out rows in columns; those whose places are in `text` stand on the left, numbers on the right."""
    cells = [heading, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    placed = [[c if k in text else c.rjust(w) for k, (c, w) in enumerate(zip(r, widths, strict=True))] for r in cells]
    return in_columns(placed, columns)
