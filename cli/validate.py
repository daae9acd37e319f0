"""`slipstick validate`: predictions beside a table of measurements."""

from __future__ import annotations

from pathlib import Path

import click

from ..ir.errors import UsageError
from .flags import Named
from .output import columns

# Quantity -> what its table is called in docs/validation.md.
QUANTITIES = ("memory",)


@click.command("validate")
@click.argument("quantity", type=Named(QUANTITIES))
@click.argument("table", required=False, type=click.Path(path_type=Path))
@click.option("--dataset", "datasets", multiple=True, metavar="NAME", help="Judge this data set only. Repeatable.")
@click.option("--rows", is_flag=True, help="List every row with prediction, measurement and error.")
@click.option("--worst", type=click.IntRange(min=1), metavar="N", help="List the N rows that are farthest off.")
@click.option("--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output.")
@click.option(
    "--cache/--no-cache", default=True, show_default=True, help="Keep traced graphs in the user's cache folder."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def validate_command(
    quantity: str, table: Path | None, datasets: tuple[str, ...], rows: bool, worst: int | None, form: str,
    cache: bool, quiet: bool,
) -> int:  # fmt: skip
    """Judge a QUANTITY against measurements in TABLE, a CSV file.

    Every row is judged, or listed with the reason why it is not. docs/validation.md says which columns a table has and
    what the figures mean.

    \b
    memory  peak memory of a GPU in training, and whether configurations fit
    """  # noqa: D301
    if table is None:
        raise UsageError(
            f"validate {quantity} needs a table of measurements, such as tests/validation/{quantity}.csv of a "
            "checkout; docs/validation.md says which columns it has"
        )
    from ..frontend import GraphCache
    from ..validation.memory import MEMORY_COLUMNS, MemoryJudge
    from ..validation.report import summary_json, summary_text
    from ..validation.rows import of_datasets, read_rows

    chosen = of_datasets(read_rows(table, MEMORY_COLUMNS), datasets)
    report = None if quiet else lambda line: click.echo(line, err=True)
    verdicts = MemoryJudge(GraphCache.default() if cache else None, report).judge(chosen)
    limit = len(verdicts) if rows else worst or 0
    text = summary_json(verdicts, limit) if form == "json" else summary_text(verdicts, limit, columns(), rows)
    click.echo(text)
    return 0
