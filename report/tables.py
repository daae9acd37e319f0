"""An estimate on one screen."""

from __future__ import annotations

import math
from io import StringIO
from typing import TYPE_CHECKING

from ..backends.pricing.places import placement_line
from ..cost.replicated import LARGE, NOTABLE
from ..driver.estimate import Estimate
from ..driver.metrics import METRICS, format_metric
from ..driver.uncertainty.answers import band_of_step, evidence_of_step, step_bands
from ..ir.graph import Workload
from ..ir.plan.precision import counted_dtype
from ..ir.units import format_bytes, format_flop_per_s, format_time
from .advice import verdict
from .bounds import bound_seconds
from .cost.money import money_lines
from .explain.intervals import evidence_line, figures_line, half_line
from .explain.provenance import shares_line, shares_of
from .explain.sensitivity import sensitivity
from .explain.trust import Trust, trust_of_parts
from .labels import bound_label, low_types, parameter_label, part_label, software_label
from .training_run import run_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    from .advice import Advice

GAP = 4
# Shown elsewhere, or of no use to people beside the others.
NOT_SHOWN = ("tokens_per_s", "samples_per_s", "model_flops")
# Shown where samples are of tokens.
OF_TOKENS = ("tokens_per_s_per_gpu",)
# Said only when there is any.
IF_ANY = ("hidden_comm_s", "exposed_comm_s", "bubble_fraction")
# The longest bar, and the narrowest screen with bars and errors.
BAR, NARROW = 10, 64
# Least share, and least elasticity, that has a line; what is below is in the JSON report.
LEAST_SHARE, LEAST_ELASTICITY = 5e-4, 5e-3
MOST_NUMBERS = 12
# Metrics whose intervals have room on a screen, by workload; the others follow from them.
OF_INTERVALS = {
    Workload.TRAIN: ("step_time_s", "peak_mem_bytes"),
    Workload.PREFILL: ("ttft_s", "tokens_per_s_per_gpu"),
    Workload.DECODE: ("tpot_s", "tokens_per_s_per_gpu"),
}
OTHER_CHIPS = "*"


def report_text(
    answer: Estimate,
    columns: int,
    color: bool = False,
    with_sensitivity: bool = True,
    remedies: Sequence[Advice] = (),
) -> str:
    """Return the answer for so many columns: metrics, memory, bounds, where the time goes, and what it follows.

    Sensitivity prices the step again some twenty times, which takes some tens of milliseconds.
    """
    from rich.console import Console

    console = Console(file=StringIO(), width=columns, force_terminal=color, highlight=False, emoji=False)
    tables = [_metrics(answer), _memory(answer), _bounds(answer), _breakdown(answer, columns >= NARROW)]
    lacking = verdict(answer)
    with console.capture() as captured:
        if lacking is not None:
            console.print(lacking, style="bold red", markup=False)
            for remedy in remedies:
                console.print(f"  try {remedy.line}", markup=False)
        console.print(headline(answer), style="bold", markup=False)
        console.print(figures_line(answer.metrics, step_bands(answer), _of_intervals(answer)), markup=False)
        print_side_by_side(console, tables + ([_sensitivity(answer)] if with_sensitivity else []))
        lines = (*_notes(answer), *run_lines(answer, columns), *money_lines(answer))
        for line in (*lines, *(f"note: {w}" for w in answer.warnings)):
            console.print(line, markup=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def headline(answer: Estimate) -> str:
    """Say in one line what was estimated."""
    plan, system, graph = answer.plan, answer.table.system, answer.table.lowered.source
    sp = "+sp" if plan.family.sp else ""
    degrees = plan.degrees.replace(f"tp{plan.tp}", f"tp{plan.tp}{sp}", 1)
    length = "" if "samples_per_s" in answer.metrics else f"  seq {plan.seq_len}"
    batch = f"mbs {plan.micro_batch}  gbs {plan.global_batch}{length}"
    low = low_types(plan.family)
    device = f"{plan.num_gpus} x {system.chip.name}  {software_label(system)}"
    return f"{graph.name}  {graph.workload}  {device}  {degrees}  {batch}  {graph.dtype}{low}"


def _of_intervals(answer: Estimate) -> tuple[str, ...]:
    return OF_INTERVALS[answer.table.lowered.source.workload]


def print_side_by_side(console: Console, tables: list[Table]) -> None:
    """Print as many tables beside each other as the screen takes, the rest below."""
    from rich.segment import Segment, Segments

    widths = [min(console.measure(t).maximum, console.width) for t in tables]
    # A grid of rich would measure every cell of every table three times, a tenth of a short command.
    drawn = [console.render_lines(t, console.options.update_width(w)) for t, w in zip(tables, widths, strict=True)]
    while drawn:
        num = max(n for n in range(1, len(drawn) + 1) if n == 1 or sum(widths[:n]) + GAP * (n - 1) <= console.width)
        for k in range(max(map(len, drawn[:num]))):
            row: list[Segment] = []
            for lines, width in zip(drawn[:num], widths, strict=False):
                row += [*(lines[k] if k < len(lines) else [Segment(" " * width)]), Segment(" " * GAP)]
            console.print(Segments([*row[:-1], Segment.line()]), end="")
        drawn, widths = drawn[num:], widths[num:]


def titled_table(title: str, num_columns: int) -> Table:
    """Return an empty table whose first column is text and whose others are numbers."""
    from rich.table import Table

    table = Table(title=title, box=None, show_header=False, title_justify="left", pad_edge=False)
    table.add_column(no_wrap=True)
    for _ in range(num_columns - 1):
        table.add_column(justify="right", no_wrap=True)
    return table


def _metrics(answer: Estimate) -> Table:
    table = titled_table("Result", 2)
    hidden = (*NOT_SHOWN, *(OF_TOKENS if "samples_per_s" in answer.metrics else ()))
    for name, value in answer.metrics.items():
        if name in METRICS and name not in hidden and (value or name not in IF_ANY):
            table.add_row(METRICS[name].label, format_metric(name, value))
    return table


def _memory(answer: Estimate) -> Table:
    table = titled_table("Memory of a GPU", 2)
    for name, value in answer.memory_bytes.items():
        if value > 0:
            table.add_row(name.replace("_", " "), format_bytes(value))
    table.add_row("total", format_bytes(answer.metrics["peak_mem_bytes"]))
    table.add_row("capacity", format_bytes(float(answer.table.system.chip.hbm_bytes)), style="dim")
    return table


def _bounds(answer: Estimate) -> Table:
    table = titled_table("What bounds it", 2)
    for name, seconds in bound_seconds(answer).items():
        if seconds >= LEAST_SHARE * answer.metrics["step_time_s"]:
            table.add_row(bound_label(name), f"{seconds / answer.metrics['step_time_s']:.1%}")
    return table


def _breakdown(answer: Estimate, wide: bool) -> Table:
    """Parts that add up, then what hides behind them; on a wide screen bars, and how near such kernels came."""
    table = titled_table("Where the time goes: seconds, share" + (", error" if wide else ""), 3)
    if wide:
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
    total, trust = answer.metrics["step_time_s"], trust_of_parts(answer)
    most = max(answer.breakdown_s.values())
    for name, value in answer.breakdown_s.items():
        if value > 0:
            more = (bar(value / most), _error(trust.get(name))) if wide else ()
            table.add_row(part_label(name), format_time(value), f"{value / total:.1%}", *more)
    more = ("", _whole_error(answer)) if wide else ()
    table.add_row("step", format_time(total), "100.0%", *more)
    for name, value in answer.hidden_comm_s.items():
        if value > 0:
            table.add_row(f"({part_label(name)}", format_time(value), "hidden)", *(("", "") if wide else ()))
    return table


def bar(share: float) -> str:
    """Draw a share.

    >>> bar(0.3)
    '###'
    """
    return "#" * round(BAR * share)


def _error(trust: Trust | None) -> str:
    return "-" if trust is None else _shown(trust.median, trust.p90, trust.is_of_chip)


def _whole_error(answer: Estimate) -> str:
    band, evidence = band_of_step(answer.table), evidence_of_step(answer.table)
    return _shown(math.expm1(band.half), math.expm1((band.most - band.least) / 2.0), evidence.is_measured)


def _shown(median: float, p90: float, of_chip: bool) -> str:
    return f"{median:.1%}, {p90:.0%}{' ' if of_chip else OTHER_CHIPS}"


def _sensitivity(answer: Estimate) -> Table:
    table = titled_table("% of time for +1 % of", 2)
    shown = [(k, v) for k, v in sensitivity(answer).items() if abs(v) >= LEAST_ELASTICITY]
    for name, value in shown[:MOST_NUMBERS]:
        table.add_row(parameter_label(name), f"{value:+.3f}")
    return table


def _notes(answer: Estimate) -> Iterator[str]:
    """What the figures rest on."""
    graph, system = answer.table.lowered.source, answer.table.system
    if answer.plan.pp > 1:
        yield f"layers by stage: {answer.table.staging.layouts[0]}"
    if placement := placement_line(system, answer.plan):
        yield f"placement: {placement}"
    replicated = answer.replicated
    if replicated is not None and NOTABLE <= replicated.largest < LARGE:  # a larger share is among the warnings
        yield replicated.line
    dtype = counted_dtype(answer.plan.family, str(graph.dtype))
    peak = format_flop_per_s(float(system.chip.matmul_flop_per_s(dtype)))
    yield f"MFU, HFU: {answer.table.convention} attention FLOPs, of {peak} dense {dtype}"
    yield f"error: median, p90 of measured kernels of the kind on this chip ({OTHER_CHIPS}: on others; -: none)"
    bands = step_bands(answer)
    yield half_line(answer.metrics, bands, _of_intervals(answer))
    yield evidence_line(evidence_of_step(answer.table), bands["step_time_s"])
    yield f"times rest on: {shares_line(shares_of(answer))} (--explain provenance, --explain settings)"
