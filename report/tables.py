"""An estimate on one screen."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from ..driver import Estimate
from ..ir.units import format_bytes, format_time
from .metrics import METRICS, format_metric
from .training_run import run_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GAP = 4
# Shown elsewhere, or of no use to people beside the others.
NOT_SHOWN = ("tokens_per_s", "model_flops")
# Said only when there is any.
IF_ANY = ("hidden_comm_s", "exposed_comm_s", "bubble_fraction")


def report_text(answer: Estimate, columns: int, color: bool = False) -> str:
    """Return the headline, the metrics, where the time goes and what fills the memory, for so many columns."""
    from rich.console import Console

    console = Console(file=StringIO(), width=columns, force_terminal=color, highlight=False)
    with console.capture() as captured:
        console.print(headline(answer), style="bold", markup=False)
        _print_side_by_side(console, [_metrics(answer), _breakdown(answer), _memory(answer)])
        if answer.plan.pp > 1:
            console.print(f"layers by stage: {answer.table.staging.layouts[0]}", markup=False)
        for line in run_lines(answer, columns):
            console.print(line, markup=False)
        for warning in answer.warnings:
            console.print(f"note: {warning}", markup=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def headline(answer: Estimate) -> str:
    """Say in one line what was estimated."""
    plan, system, graph = answer.plan, answer.table.system, answer.table.lowered.source
    sp = "+sp" if plan.family.sp else ""
    degrees = plan.degrees.replace(f"tp{plan.tp}", f"tp{plan.tp}{sp}", 1)
    batch = f"mbs {plan.micro_batch}  gbs {plan.global_batch}  seq {plan.seq_len}"
    low = "" if plan.family.precision == "none" else f"+{plan.family.precision}"
    device = f"{plan.num_gpus} x {system.chip.name}"
    return f"{graph.name}  {graph.workload}  {device}  {degrees}  {batch}  {graph.dtype}{low}"


def _print_side_by_side(console: Console, tables: list[Table]) -> None:
    """Print as many tables beside each other as the screen takes, the rest below."""
    from rich.table import Table

    while tables:
        widths = [console.measure(t).maximum for t in tables]
        num = max([n for n in range(1, len(tables) + 1) if sum(widths[:n]) + GAP * (n - 1) <= console.width], default=1)
        grid = Table.grid(padding=(0, GAP))
        grid.add_row(*tables[:num])
        console.print(grid)
        tables = tables[num:]


def _table(title: str, num_columns: int) -> Table:
    from rich.table import Table

    table = Table(title=title, box=None, show_header=False, title_justify="left", pad_edge=False)
    table.add_column(no_wrap=True)
    for _ in range(num_columns - 1):
        table.add_column(justify="right", no_wrap=True)
    return table


def _metrics(answer: Estimate) -> Table:
    table = _table("Result", 2)
    for name, value in answer.metrics.items():
        if name in METRICS and name not in NOT_SHOWN and (value or name not in IF_ANY):
            table.add_row(METRICS[name].label, format_metric(name, value))
    return table


def _breakdown(answer: Estimate) -> Table:
    table = _table("Where the time goes", 3)
    total = answer.metrics["step_time_s"]
    for name, value in answer.breakdown_s.items():
        if value > 0:
            table.add_row(_label(name), format_time(value), f"{value / total:.1%}")
    for name, value in answer.hidden_comm_s.items():
        if value > 0:
            table.add_row(f"({_label(name)}, hidden)", format_time(value), "")
    return table


def _label(name: str) -> str:
    kind, _, rest = name.partition(".")
    if name == "offload":
        return "host copies"
    if kind == "comm":
        return f"{rest} communication"
    return (
        {"memory": "data movement", "lent_sms": "SMs lent to messages"}.get(rest, rest) if kind == "compute" else name
    )


def _memory(answer: Estimate) -> Table:
    table = _table("Memory of a GPU", 2)
    for name, value in answer.memory_bytes.items():
        if value > 0:
            table.add_row(name.replace("_", " "), format_bytes(value))
    table.add_row("total", format_bytes(answer.metrics["peak_mem_bytes"]))
    table.add_row("capacity", format_bytes(answer.table.system.chip.hbm_bytes), style="dim")
    return table
