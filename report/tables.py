"""An estimate on one screen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from ..driver import Estimate
from ..ir.units import format_bytes, format_time
from .metrics import METRICS, format_metric

if TYPE_CHECKING:
    from rich.table import Table


WIDE = 100


def print_report(answer: Estimate, file: TextIO | None = None) -> None:
    """Print the headline, the metrics, where the time goes and what fills the memory."""
    from rich.console import Console
    from rich.table import Table

    out = file or sys.stdout
    console = Console(file=out, highlight=False, width=None if out.isatty() else 120)
    console.print(headline(answer), style="bold", soft_wrap=True)
    tables = (_metrics(answer), _breakdown(answer), _memory(answer))
    grid = Table.grid(padding=(0, 4))
    if console.width >= WIDE:
        grid.add_row(*tables)
    else:
        for table in tables:
            grid.add_row(table)
    console.print(grid)
    for warning in answer.warnings:
        console.print(f"note: {warning}", soft_wrap=True)


def headline(answer: Estimate) -> str:
    """Say in one line what was estimated."""
    plan, system, graph = answer.plan, answer.table.system, answer.table.lowered.source
    sp = "+sp" if plan.family.sp else ""
    degrees = plan.degrees.replace(f"tp{plan.tp}", f"tp{plan.tp}{sp}", 1)
    batch = f"mbs {plan.micro_batch}  gbs {plan.global_batch}  seq {plan.seq_len}"
    return f"{graph.name}  {graph.workload}  {plan.num_gpus} x {system.chip.name}  {degrees}  {batch}  {graph.dtype}"


def _metrics(answer: Estimate) -> Table:
    from rich.table import Table

    table = Table(title="Result", box=None, show_header=False, title_justify="left", pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in answer.metrics.items():
        if name in METRICS and name not in ("tokens_per_s", "model_flops"):
            table.add_row(METRICS[name].label, format_metric(name, value))
    return table


def _breakdown(answer: Estimate) -> Table:
    from rich.table import Table

    table = Table(title="Where the time goes", box=None, show_header=False, title_justify="left", pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
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
    return {"comm": f"{rest} communication", "compute": rest}.get(kind, name)


def _memory(answer: Estimate) -> Table:
    from rich.table import Table

    table = Table(title="Memory of a GPU", box=None, show_header=False, title_justify="left", pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in answer.memory_bytes.items():
        if value > 0:
            table.add_row(name.replace("_", " "), format_bytes(value))
    table.add_row("of", format_bytes(answer.table.system.chip.hbm_bytes), style="dim")
    return table
