"""Chip designs as a table for people: what differs between them, what they cost, why others are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ...driver.metrics import METRICS, format_metric
from ...explore.designs.reasons import reason_text
from ...ir.units import format_bytes_per_s, format_flop_per_s, format_si, format_usd
from ..columns import in_columns
from .designs import Ranking, goals_text

# Numbers of a design, where designs differ in them.
_NUMBERS = ("die_mm2", "package_w", "num_stacks", "d2d_bytes_per_s")
_RESULTS = (
    "fp16_flop_per_s", "hbm_bytes_per_s", "package_usd", "package_nre_usd", "package_yield", "usd_per_gpu",
    "usd_per_gpu_hour",
    "step_time_s", "mfu", "usd_per_step", "usd_per_mtok", "usd_per_mtok_input", "usd_per_mtok_output", "usd_run",
    "j_per_token",
)  # fmt: skip
_ONLY_UNTIMED = ("fp16_flops_per_usd", "hbm_bytes_per_usd")
_LABELS = {
    "num_dies": "dies", "die_mm2": "die", "silicon_mm2": "silicon", "package_w": "power", "num_stacks": "stacks",
    "d2d_bytes_per_s": "D2D bandwidth", "d2d": "D2D", "fp16_flop_per_s": "fp16", "hbm_bytes_per_s": "HBM",
    "package_usd": "package", "package_nre_usd": "of it NRE", "package_yield": "yield",
    "usd_per_gpu": "$/GPU", "usd_per_gpu_hour": "$/GPU-h",
    "step_time_s": "step", "mfu": "MFU", "usd_per_step": "$/step", "usd_per_mtok": "$/Mtok",
    "usd_per_mtok_input": "$/Mtok in", "usd_per_mtok_output": "$/Mtok out", "usd_run": "$/run",
    "j_per_token": "J/token", "fp16_flops_per_usd": "FLOP/$", "hbm_bytes_per_usd": "HBM/$",
}  # fmt: skip
_PLAIN_UNITS = {"die_mm2": " mm2", "silicon_mm2": " mm2", "d2d_mm2": " mm2", "package_w": " W", "w_per_gpu": " W"}


def designs_table(ranking: Ranking, rows: NDArray[np.intp], width: int | None = None) -> str:
    """Return rows as a table: only what designs differ in, results, and a column for each goal; notes below."""
    words = [name for name, column in ranking.words.items() if len(set(column)) > 1]
    numbers = [name for name in _NUMBERS if _differs(ranking, name)]
    shown = (*_RESULTS, *(() if "step_time_s" in ranking.columns else _ONLY_UNTIMED))
    known = (*numbers, *(name for name in shown if name in ranking.columns))
    results = [*known, *(goal.name for goal in ranking.goals if goal.name not in known)]
    heading = ["", *map(label, words), *map(label, results)]
    body = [
        [
            "*" if ranking.best[k] else "",
            *(str(ranking.words[w][k]) or "-" for w in words),
            *(told(name, float(ranking.columns[name][k])) for name in results),
        ]
        for k in rows
    ]
    return "\n".join([in_columns([heading, *body], width), *_notes(ranking, len(rows))])


def design_orders(rankings: Mapping[str, Ranking]) -> dict[str, list[str]]:
    """Return the first five designs of the first book, and the first of each other, in the order of each book."""
    if len(rankings) < 2:
        return {}
    usual, *others = rankings.values()
    pool = {*usual.order[:5].tolist(), *(int(one.order[0]) for one in others)}
    return {book: [_name(one, at) for at in one.order.tolist() if at in pool] for book, one in rankings.items()}


def _name(ranking: Ranking, at: int) -> str:
    words = [
        f"{column[at]} {label(name)}" if name == "num_dies" else str(column[at])
        for name, column in ranking.words.items()
        if len(set(column)) > 1
    ]
    numbers = [
        f"{label(name)} {told(name, float(ranking.columns[name][at]))}" for name in _NUMBERS if _differs(ranking, name)
    ]
    return " ".join([*words, *numbers]) or "the design"


def _differs(ranking: Ranking, name: str) -> bool:
    column = ranking.columns[name]
    return np.unique(column[~np.isnan(column)]).size > 1


def _notes(ranking: Ranking, num_shown: int) -> Iterator[str]:
    legal, best = int(ranking.legal.sum()), int(ranking.best.sum())
    goals = goals_text(ranking.goals)
    rest = "" if num_shown == legal else f", {num_shown:,} of them here"
    yield f"{legal:,} of {len(ranking.reason):,} designs{rest}; * the {best:,} Pareto-optimal in {goals}"
    if "step_time_s" in ranking.columns:
        yield "evidence: data sheets and constants of measured chips; no design was measured"
    codes, numbers = np.unique(ranking.reason[ranking.reason != 0], return_counts=True)
    if codes.size:
        why = "; ".join(f"{reason_text(code)} {n:,}" for code, n in zip(codes, numbers, strict=True))
        yield f"cannot be built: {why}"
    too_small = int(((ranking.reason == 0) & ~ranking.legal).sum())
    if too_small:
        yield f"too little memory for the plan: {too_small:,}"
    if ranking.without:
        yield f"every sum is at least so much, without {', '.join(ranking.without)}"
    yield from (f"not priced: {line}" for line in ranking.unpriced)
    if any(d2d and dies != 1 for d2d, dies in zip(ranking.words["d2d"], ranking.words["num_dies"], strict=True)):
        yield "where an interface joins dies, each die is a GPU"


def label(name: str) -> str:
    """Return what people call a number of a design."""
    return _LABELS.get(name, name)


def told(name: str, value: float) -> str:
    """Return a number of a design as people read it."""
    if np.isnan(value):
        return "-"
    if name in METRICS:
        return format_metric(name, value)
    if name.endswith("_flop_per_s"):
        return format_flop_per_s(value)
    if name.endswith("_bytes_per_s"):
        return format_bytes_per_s(value) if value else "-"
    if name.endswith("_per_usd"):
        return format_si(value, "FLOP" if "flops" in name else "B")
    if "usd" in name:
        return format_usd(value)
    return f"{value:.1%}" if name == "package_yield" else f"{value:,.4g}{_PLAIN_UNITS.get(name, '')}"
