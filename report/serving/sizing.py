"""What was found for a number of requests a second: the plan, what it gives, and the plans behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np

from ...driver.uncertainty.answers import band_of_fleet, evidence_of_server
from ...ir import __version__
from ...ir.text.json_text import json_text
from ...ir.units import format_time
from ..cost.money import usd_text
from ..labels import batch_of, low_types, stack_label
from ..ranking import evidence_word
from ..tables import print_side_by_side, titled_table
from .json import serving_record
from .money import serving_money_lines
from .screen import serving_tables

if TYPE_CHECKING:
    from rich.table import Table

    from ...cost.serving.slo import SLO
    from ...driver.serve.answer import ServeEstimate
    from ...driver.serve.sizes.sizing import Confirmed, Missed, Sizing

SCHEMA = "slipstick/size/1"
# Shapes that miss the target of which one reads.
MISSES = 6


def sizing_text(found: Sizing, answers: Sequence[ServeEstimate], columns: int, color: bool = False) -> str:
    """Return the answer for so many columns: the plan, its latencies and memory, others, and what misses the target."""
    from rich.console import Console

    console = Console(file=StringIO(), width=columns, force_terminal=color, highlight=False, emoji=False)
    best = answers[0]
    with console.capture() as captured:
        console.print(_headline(found, best), style="bold", markup=False)
        choice = found.choices[0]
        chip = best.server.system.chip.name
        room = choice.most_per_s / best.metrics["requests_per_s"] - 1.0
        verdict = (
            f"{choice.num_gpus} x {chip}: {choice.name}, batch {best.metrics['batch']:.0f} a {batch_of(best.server)}; "
            f"{choice.most_per_s:.3g} requests/s within the target, {room:.0%} more"
        )
        console.print(verdict, markup=False)
        band, evidence = band_of_fleet(best), evidence_of_server(best)
        ends = band.around(float(choice.num_gpus))
        rests = f"evidence: {evidence_word(evidence)}; GPUs 90 %: {ends.least:.3g} to {ends.most:.3g}"
        console.print(rests, markup=False)
        if found.choices[0].confirmed is not None:
            console.print(confirmed_text(found.choices[0].confirmed, found.question.target), markup=False)
        print_side_by_side(console, [_plans(found, answers), *_misses(found.missed), *serving_tables(best, False)[:2]])
        for line in (*serving_money_lines(best), *(f"note: {w}" for w in best.warnings)):
            console.print(line, markup=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _headline(found: Sizing, best: ServeEstimate) -> str:
    asked, server = found.question, best.server
    prompt, output = (float(np.asarray(n)) for n in (asked.lengths.prompt, asked.lengths.output))
    graph = server.served.decode.source
    target = f"  {asked.target}" if asked.target else ""
    return (
        f"{graph.name}  size  {asked.requests_per_s:g} requests/s  isl {prompt:g}  osl {output:g}{target}  "
        f"{stack_label(server.engine.name, server.system.assumed)}  {server.system.name}  "
        f"{graph.dtype}{low_types(server.plan.family)}"
    )


def confirmed_text(seen: Confirmed, target: SLO) -> str:
    """Return what simulated requests had at the limits, beside the closed form."""
    first, gap = target.labels
    pairs = ((first, seen.ttft_s, seen.predicted_ttft_s), (gap, seen.tpot_s, seen.predicted_tpot_s))
    said = (f"{name} {format_time(s)} (closed form {format_time(c)})" for name, s, c in pairs if not np.isnan(s))
    more = f"; {seen.added:,} GPUs were added for them" if seen.added else ""
    return f"{seen.num_requests:,} simulated requests: {', '.join(said)}{more}"


def confirmed_record(seen: Confirmed | None) -> dict[str, float | None] | None:
    """Return the same as JSON; None where nothing was simulated."""
    if seen is None:
        return None
    return {
        "num_requests": seen.num_requests,
        "ttft_s": seen.ttft_s,
        "tpot_s": None if np.isnan(seen.tpot_s) else seen.tpot_s,
        "closed_form_ttft_s": seen.predicted_ttft_s,
        "closed_form_tpot_s": None if np.isnan(seen.predicted_tpot_s) else seen.predicted_tpot_s,
        "added_gpus": seen.added,
    }


def _plans(found: Sizing, answers: Sequence[ServeEstimate]) -> Table:
    target = found.question.target
    table = titled_table(f"Plans: GPUs, {', '.join(target.labels)}, batch, load, room, 1M tokens out", 8)
    for choice, answer in zip(found.choices, answers, strict=False):
        m = answer.metrics
        usd = "-" if answer.money is None else usd_text(answer.money.money, answer.money.metrics["usd_per_mtok_output"])
        ttft_s, tpot_s = choice.at_limits(answer, target)
        gap = "-" if np.isnan(tpot_s) else format_time(tpot_s)
        table.add_row(
            choice.name,
            f"{choice.num_gpus}",
            format_time(ttft_s),
            gap,
            f"{m['batch']:.0f}",
            f"{m['serve_utilization']:.0%}",
            f"{choice.most_per_s / m['requests_per_s'] - 1:.0%}",
            usd,
        )
    return table


def _misses(missed: Sequence[Missed]) -> Iterator[Table]:
    """Shapes that hold the model and are too slow, with what one request alone has on them."""
    slow = [(m.shape, m.alone) for m in missed if m.alone is not None]
    if not slow:
        return
    table = titled_table("Too slow, one request alone: TTFT, TPOT", 3)
    for shape, alone in slow[:MISSES]:
        gap = "-" if np.isnan(float(alone.tpot_s)) else format_time(float(alone.tpot_s))
        table.add_row(str(shape), format_time(float(alone.ttft_s)), gap)
    yield table


def sizing_json(found: Sizing, answers: Sequence[ServeEstimate]) -> str:
    """Return the same as JSON: what was asked, each plan with its whole answer, and what misses the target."""
    asked = found.question
    report = {
        "schema": SCHEMA,
        "tool_version": __version__,
        "units": "SI",
        "target": {
            "requests_per_s": asked.requests_per_s,
            "ttft_s": asked.target.ttft_s,
            "tpot_s": asked.target.tpot_s,
            "ttft_share": asked.target.ttft_share,
            "tpot_share": asked.target.tpot_share,
            "isl": float(np.asarray(asked.lengths.prompt)),
            "osl": float(np.asarray(asked.lengths.output)),
        },
        "choices": [
            {
                "name": choice.name,
                "num_gpus": choice.num_gpus,
                "most_requests_per_s": choice.most_per_s,
                "headroom": choice.most_per_s / answer.metrics["requests_per_s"] - 1.0,
                "simulated": confirmed_record(choice.confirmed),
                **serving_record(answer),
            }
            for choice, answer in zip(found.choices, answers, strict=False)
        ],
        "missed": [
            {
                "shape": _shape(one),
                "why": one.why or "too slow",
                "ttft_s": None if one.alone is None else float(one.alone.ttft_s),
                "tpot_s": None if one.alone is None else float(one.alone.tpot_s),
            }
            for one in found.missed
        ],
    }
    return json_text(report, indent=2)


def _shape(one: Missed) -> dict[str, int]:
    shape = one.shape
    return {"tp": shape.tp, "pp": shape.pp, "cp": shape.cp, "ep": shape.ep, "dp": shape.dp, "num_gpus": shape.num_gpus}
