"""Spaces of chip designs as tables: what each is made of, costs and takes, the best first."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from ..explore.designs import Designs, reason_text
from ..explore.pareto import pareto
from ..ir.errors import UnknownNameError
from ..ir.units import format_bytes_per_s, format_flop_per_s, format_usd
from .columns import in_columns
from .metrics import METRICS, format_metric

Array = NDArray[np.float64]
WORDS = ("node", "num_dies", "unit", "memory", "link", "joint", "d2d", "join")
# Columns of a table for people, where designs differ in them or always.
_NUMBERS = ("die_mm2", "power_w", "num_stacks", "d2d_bytes_per_s")
_RESULTS = (
    "fp16_flop_per_s", "hbm_bytes_per_s", "package_usd", "package_yield", "usd_per_gpu", "usd_per_gpu_hour",
    "step_time_s", "mfu", "usd_per_mtok", "usd_per_mtok_input", "usd_per_mtok_output", "j_per_token", "fits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Goals:
    """What should be small, or large where `signs` is -1; the first one sorts."""

    names: tuple[str, ...]
    signs: tuple[float, ...]

    @classmethod
    def of(cls, text: str | None, timed: bool) -> Goals:
        """Read `usd_per_mtok,+mfu`; the usual goals where nothing is said.

        >>> Goals.of("usd_per_mtok,+mfu", True)
        Goals(names=('usd_per_mtok', 'mfu'), signs=(1.0, -1.0))
        """
        usual = "usd_per_gpu_hour,+fp16_flop_per_s" if not timed else "usd_per_step,step_time_s"
        words = [word.strip() for word in (text or usual).split(",") if word.strip()]
        return cls(tuple(w.lstrip("+") for w in words), tuple(-1.0 if w.startswith("+") else 1.0 for w in words))


@dataclass(frozen=True, slots=True)
class _Rows:
    """All designs as one table, those that can be built and fit first, by the first goal."""

    words: Mapping[str, list[str]]
    columns: Mapping[str, Array]
    reason: Array
    best: NDArray[np.bool_]
    order: NDArray[np.intp]


def designs_text(
    found: Sequence[Designs], goals: Goals, only_pareto: bool, top: int, form: str, width: int | None = None
) -> str:
    """Return designs as a table of the best, as CSV of all, or as JSON of all.

    UnknownNameError for a goal that is no column.
    """
    rows = _gathered(found, goals)
    order = rows.order[rows.best[rows.order]] if only_pareto else rows.order
    if form == "csv":
        return _csv(rows, order)
    if form == "json":
        return json.dumps([_record(rows, k) for k in order], indent=2)
    return _table(rows, order[:top], len(order), width)


def _gathered(found: Sequence[Designs], goals: Goals) -> _Rows:
    words: dict[str, list[str]] = {name: [] for name in WORDS}
    for designs in found:
        form = asdict(designs.form)
        for name in WORDS:
            words[name] += [str(form[name])] * len(designs.reason)
    names = dict.fromkeys(name for designs in found for name in designs.columns)
    columns = {name: np.concatenate([_column(d, name) for d in found]) for name in names if name != "num_dies"}
    reason = np.concatenate([d.reason for d in found])
    for name in goals.names:
        if name not in columns:
            raise UnknownNameError.of("objective", name, columns)
    legal = (reason == 0) & (columns["fits"] > 0 if "fits" in columns else True)
    aims = [np.where(legal, columns[n] * sign, np.inf) for n, sign in zip(goals.names, goals.signs, strict=True)]
    return _Rows(words, columns, reason, pareto(aims), np.argsort(aims[0], kind="stable")[: int(legal.sum())])


def _column(designs: Designs, name: str) -> Array:
    return np.asarray(designs.columns.get(name, np.full(len(designs.reason), np.nan)))


def _record(rows: _Rows, k: int) -> dict[str, str | float | bool]:
    words: dict[str, str | float | bool] = {name: column[k] for name, column in rows.words.items()}
    return words | {name: float(c[k]) for name, c in rows.columns.items()} | {"pareto": bool(rows.best[k])}


def _csv(rows: _Rows, order: NDArray[np.intp]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*rows.words, *rows.columns, "pareto"])
    writer.writerows(_record(rows, k).values() for k in order)
    return text.getvalue()


def _table(rows: _Rows, order: NDArray[np.intp], num_legal: int, width: int | None) -> str:
    words = [name for name, column in rows.words.items() if len(set(column)) > 1]
    numbers = [name for name in _NUMBERS if name in rows.columns and np.unique(rows.columns[name]).size > 1]
    results = [name for name in _RESULTS if name in rows.columns and name != "fits"]
    heading = ["", *words, *map(_label, numbers), *map(_label, results)]
    body = [
        ["*" if rows.best[k] else "", *(rows.words[w][k] for w in words),
         *(_shown(n, float(rows.columns[n][k])) for n in (*numbers, *results))]
        for k in order
    ]  # fmt: skip
    return "\n".join([in_columns([heading, *body], width), *_notes(rows, num_legal)])


def _notes(rows: _Rows, num_legal: int) -> Iterator[str]:
    yield f"{num_legal:,} of {len(rows.reason):,} designs; * no other is better in every objective"
    codes, numbers = np.unique(rows.reason[rows.reason != 0], return_counts=True)
    if codes.size:
        why = ", ".join(f"{reason_text(code)} {n:,}" for code, n in zip(codes, numbers, strict=True))
        yield f"cannot be built, by what there is no room for: {why}"
    if "fits" in rows.columns:
        too_large = int(((rows.reason == 0) & (rows.columns["fits"] == 0)).sum())
        yield from [f"too little memory for the plan: {too_large:,}"] if too_large else []


_LABELS = {
    "die_mm2": "die", "power_w": "power", "num_stacks": "stacks", "d2d_bytes_per_s": "d2d", "fp16_flop_per_s": "fp16",
    "hbm_bytes_per_s": "memory", "package_usd": "package", "package_yield": "yield", "usd_per_gpu": "$/GPU",
    "usd_per_gpu_hour": "$/GPU-h", "step_time_s": "step", "mfu": "MFU", "usd_per_mtok": "$/Mtok",
    "usd_per_mtok_input": "$/Mtok in", "usd_per_mtok_output": "$/Mtok out", "j_per_token": "J/token",
}  # fmt: skip


def _label(name: str) -> str:
    return _LABELS.get(name, name)


def _shown(name: str, value: float) -> str:
    if name in METRICS:
        return format_metric(name, value)
    if name.endswith("_flop_per_s"):
        return format_flop_per_s(value)
    if name.endswith("_bytes_per_s"):
        return format_bytes_per_s(value)
    if "usd" in name:
        return format_usd(value)
    units = {"die_mm2": " mm2", "power_w": " W"}
    return f"{value:.1%}" if name == "package_yield" else f"{value:,.4g}{units.get(name, '')}"
