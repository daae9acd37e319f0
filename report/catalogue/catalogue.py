"""What there is, from models and machines to passes and metrics, as lists and in full."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from ...ir.errors import UnknownNameError
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_bytes_per_s, format_flop_per_s, format_time
from ..columns import in_columns
from .engines import engines
from .machines import MACHINES, chips, networks, show_machine, systems
from .parts import PARTS, parts, precisions, schedules, show_part
from .prices import profiles, show_prices
from .stacks import stacks

# What JSON shows: numbers are raw, in SI units; the end of a key says which.
Record: TypeAlias = Mapping[str, object]


def list_text(kind: str, as_json: bool, columns: int | None = None) -> str:
    """Return all of a kind as JSON, or as a table for a screen of so many columns (None: no limit)."""
    records = _LISTS[kind]()
    if as_json:
        return json_text(records, indent=2)
    keys = list(records[0])
    rows = [[_heading(k) for k in keys], *([_cell(k, r[k]) for k in keys] for r in records)]
    return in_columns(rows, columns)


def names_of(kind: str) -> list[str]:
    """Name all of a kind."""
    return [str(record["name"]) for record in _LISTS[kind]()]


def show_text(
    kind: str,
    name: str,
    as_json: bool,
    overrides: Sequence[str] = (),
    columns: int | None = None,
    constants: bool = False,
) -> str:
    """Return everything about one; UnknownNameError names the nearest. `constants` are those of a system's kernels."""
    if kind == "prices":
        return show_prices(name, overrides, as_json, columns)
    if kind in PARTS:
        return show_part(kind, name, as_json, columns)
    if kind in MACHINES:
        return show_machine(kind, name, overrides, as_json, columns, constants)
    record = _model(name) if kind == "models" else _named(kind, name)
    return json_text(record, indent=2) if as_json else "\n".join(_lines(record))


def _named(kind: str, name: str) -> Record:
    records = {str(r["name"]): r for r in _LISTS[kind]()}
    if name not in records:
        raise UnknownNameError.of({"passes": "pass"}.get(kind, kind.removesuffix("s")), name, records)
    return records[name]


def _models() -> list[Record]:
    from ...frontend.huggingface.configs.models import index

    found = index()
    return [
        {"name": e.name, "family": e.family, "num_parameters": e.num_parameters, "note": e.note}
        for e in (found[n] for n in sorted(found))
    ]


def _model(name: str) -> Record:
    from ...frontend.huggingface.configs.models import index, read_config

    config = read_config(name)
    entry = index().get(config.name)
    return {**(asdict(entry) if entry is not None else {"name": config.name}), "config": json.loads(config.text)}


def _passes() -> list[Record]:
    from ...passes.manager import PASSES, pass_class

    rows: list[Record] = []
    for name in sorted(PASSES):
        cls = pass_class(name)
        options = ", ".join(f"{f.name}={json_text(f.default)}" for f in fields(cls))
        rows.append({"name": name, "options": options, "what": (cls.__doc__ or "").splitlines()[0]})
    return rows


def _ops() -> list[Record]:
    from ...ir.ops import OPS

    return [{"name": d.name, "class": str(d.kind), "what": d.doc} for d in (OPS[n] for n in sorted(OPS))]


def _metrics() -> list[Record]:
    from ...driver.metrics import METRICS

    return [{"name": m.name, "unit": m.unit, "meaning": m.meaning} for m in (METRICS[n] for n in sorted(METRICS))]


def _tp_plans() -> list[Record]:
    from ...passes.sharding.plans.plans import MADE_PLANS, TP_PLANS

    ready: list[Record] = [
        {"name": p.name, "entries": [f"{pattern}: {style}" for pattern, style in p.entries], "what": p.doc}
        for p in TP_PLANS.values()
    ]
    made: list[Record] = [{"name": n, "entries": [], "what": doc} for n, doc in MADE_PLANS.items()]
    return sorted([*ready, *made], key=lambda record: str(record["name"]))


_LISTS: Mapping[str, Callable[[], list[Record]]] = MappingProxyType(
    {
        "chips": chips,
        "engines": engines,
        "metrics": _metrics,
        "models": _models,
        "networks": networks,
        "ops": _ops,
        "passes": _passes,
        "precisions": precisions,
        "prices": profiles,
        "schedules": schedules,
        "stacks": stacks,
        "systems": systems,
        "tp-plans": _tp_plans,
        **{kind: partial(parts, kind) for kind in PARTS},
    }
)


def _cell(key: str, value: object) -> str:
    """Write a value for people: the end of its key says its unit."""
    if key == "options":
        return ", ".join(option.partition("=")[0] for option in str(value).split(", ")) if value else ""
    if isinstance(value, list):
        return str(len(value)) if key == "entries" else ", ".join(map(str, value)) or "-"
    if value is None:
        return "-"
    if not isinstance(value, int | float):
        return str(value)
    if key == "num_parameters":
        return f"{value / 1e9:.2f}B"
    for end, write in _WRITERS.items():
        if key.endswith(end):
            return write(value)
    return f"{value:g}"


_WRITERS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "_flop_per_s": format_flop_per_s,
        "_bytes_per_s": format_bytes_per_s,
        "_bytes": format_bytes,
        "_s": format_time,
        "_w": lambda watts: f"{watts:g} W",
    }
)


def _heading(key: str) -> str:
    """Write a key for people: the cells below it have their units."""
    for end in _WRITERS:
        key = key.removesuffix(end)
    return key.removeprefix("num_").replace("_", " ")


def _lines(record: Record) -> list[str]:
    width = max(len(k) for k in record)
    out: list[str] = []
    for key, value in record.items():
        if isinstance(value, list | tuple):
            out += [f"{key}:", *(f"  {v}" for v in value)] if value else []
        elif isinstance(value, dict):
            out += [f"{key}:", *(f"  {k}: {json_text(v)}" for k, v in value.items())]
        else:
            out.append(f"{key.ljust(width)}  {'-' if value is None else value}")
    return out
