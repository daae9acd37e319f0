"""What there is: models, systems, passes, ops, metrics and tensor-parallel plans, as lists and in full."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import TypeAlias

from ..ir.errors import UnknownNameError

Record: TypeAlias = Mapping[str, object]


def list_text(kind: str, as_json: bool) -> str:
    """Return all of a kind, one a line, or as JSON."""
    rows = _LISTS[kind]()
    if as_json:
        return json.dumps(rows, indent=2)
    names = list(rows[0])
    cells = [names, *([_cell(r[n]) for n in names] for r in rows)]
    widths = [max(len(c) for c in column) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells)


def show_text(kind: str, name: str, as_json: bool, overrides: Sequence[str] = ()) -> str:
    """Return everything about one; UnknownNameError names the nearest."""
    record = _show(kind, name, overrides)
    if as_json:
        return json.dumps(record, indent=2)
    return "\n".join(_lines(record))


def _show(kind: str, name: str, overrides: Sequence[str]) -> Record:
    if kind == "systems":
        return _system(name, overrides)
    if kind == "models":
        return _model(name)
    rows = {str(r["name"]): r for r in _LISTS[kind]()}
    if name not in rows:
        raise UnknownNameError.of({"passes": "pass"}.get(kind, kind.removesuffix("s")), name, rows)
    return rows[name]


def _models() -> list[Record]:
    from ..frontend.models import index

    found = index()
    return [
        {"name": e.name, "family": e.family, "parameters": f"{e.num_parameters / 1e9:.2f}B", "note": e.note}
        for e in (found[n] for n in sorted(found))
    ]


def _model(name: str) -> Record:
    from ..frontend.models import index, read_config

    config = read_config(name)
    entry = index().get(config.name)
    return {**(asdict(entry) if entry is not None else {"name": config.name}), "config": json.loads(config.text)}


def _systems() -> list[Record]:
    from ..backends.system import load_system, system_names

    found = [load_system(n) for n in system_names()]
    return [
        {"name": s.name, "chip": s.chip.name, "gpus a node": s.node_size, "bf16 TFLOP/s": f"{s.chip.peak_flop_per_s.bf16 / 1e12:g}",
         "HBM GB/s": f"{s.chip.hbm_bytes_per_s / 1e9:g}", "network": ", ".join(level.name for level in s.levels)}
        for s in found
    ]  # fmt: skip


def _system(name: str, overrides: Sequence[str]) -> Record:
    from ..backends.system import load_system, system_numbers

    system = load_system(name, overrides)
    numbers = {
        r.path: f"{r.value:g} {r.unit}".strip() + f"  [{r.confidence}] {r.source}" for r in system_numbers(system)
    }
    return {"name": system.name, "chip": system.chip.name, **numbers}


def _passes() -> list[Record]:
    from ..passes.manager import PASSES, pass_class

    rows: list[Record] = []
    for name in sorted(PASSES):
        cls = pass_class(name)
        options = ", ".join(f"{f.name}={json.dumps(f.default)}" for f in fields(cls))
        rows.append({"name": name, "options": options, "what": (cls.__doc__ or "").splitlines()[0]})
    return rows


def _ops() -> list[Record]:
    from ..ir.ops import OPS

    return [{"name": d.name, "class": str(d.kind), "what": d.doc} for d in (OPS[n] for n in sorted(OPS))]


def _metrics() -> list[Record]:
    from .metrics import METRICS

    return [{"name": m.name, "unit": m.unit, "meaning": m.meaning} for m in (METRICS[n] for n in sorted(METRICS))]


def _tp_plans() -> list[Record]:
    from ..passes.sharding.plans import TP_PLANS

    return [
        {"name": p.name, "what": p.doc, "entries": [f"{pattern}: {style}" for pattern, style in p.entries]}
        for p in (TP_PLANS[n] for n in sorted(TP_PLANS))
    ]


_LISTS: Mapping[str, Callable[[], list[Record]]] = MappingProxyType(
    {
        "metrics": _metrics,
        "models": _models,
        "ops": _ops,
        "passes": _passes,
        "systems": _systems,
        "tp-plans": _tp_plans,
    }
)


def _cell(value: object) -> str:
    return f"{len(value)} patterns" if isinstance(value, list) else str(value)


def _lines(record: Record) -> list[str]:
    width = max(len(k) for k in record)
    out: list[str] = []
    for key, value in record.items():
        if isinstance(value, list | tuple) and value:
            out += [f"{key}:", *(f"  {v}" for v in value)]
        elif isinstance(value, dict):
            out += [f"{key}:", *(f"  {k}: {json.dumps(v)}" for k, v in value.items())]
        else:
            out.append(f"{key.ljust(width)}  {value}")
    return out
