"""`slipstick compare`: what changed between two reports, and why."""

from __future__ import annotations

import click

from ..ir.errors import GateError, UsageError
from .flags.shared import Named
from .output.files import columns


@click.command("compare")
@click.argument("a", metavar="A.json")
@click.argument("b", metavar="B.json")
@click.option(
    "--fail-on",
    "gates",
    multiple=True,
    metavar="GATE",
    help="Exit with code 5 when this holds, e.g. 'step_time_s>+3%', 'step_time_s.comm.tp>+100ms', "
    "'peak_mem_bytes>70GiB', 'usd_per_mtok>+3%', 'mfu<40%'. A sign means a change against A, none the value of B. "
    "Repeatable.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, max=100),
    default=0.1,
    show_default=True,
    metavar="PCT",
    help="Do not list what changes by this many percent or less; of parts, percent of the whole.",
)
@click.option(
    "--format",
    "form",
    type=Named(("table", "json", "markdown")),
    default="table",
    show_default=True,
    help="Output format.",
)
def compare_command(a: str, b: str, gates: tuple[str, ...], threshold: float, form: str) -> int:
    """Show what changed from report A to report B, and why.

    Both are files that `slipstick estimate --format json` wrote, or `slipstick compile --emit report`; `-` is stdin.
    Two summaries of `slipstick validate --format json` can be compared as well.
    """
    if a == b == "-":
        raise UsageError("stdin can be one of both reports: name a file for the other")
    from ..report.compare.comparison import compare
    from ..report.compare.gates import judged
    from ..report.compare.saved import read_saved

    found = compare(read_saved(a), read_saved(b))
    verdicts = judged(gates, found)
    from ..report.compare.compare_text import comparison_json, comparison_markdown, comparison_text

    if form == "json":
        click.echo(comparison_json(found, verdicts))
    elif form == "markdown":
        click.echo(comparison_markdown(found, verdicts, threshold / 100))
    else:
        click.echo(comparison_text(found, verdicts, threshold / 100, columns()))
    failed = [verdict for verdict in verdicts if verdict.failed]
    if failed:
        raise GateError(f"{len(failed)} of {len(verdicts)} gates failed: {'; '.join(map(str, failed))}")
    return 0
