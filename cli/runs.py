"""`slipstick runs`: the searches that were kept: what there is, what one of them found, and its plans as a file."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from ..ir.errors import UsageError, did_you_mean
from .flags.numbers import Named
from .output.files import columns, writing

if TYPE_CHECKING:
    from ..explore.runs.export import Selection
    from ..explore.runs.runs import LedgerFolder

_CSV, _CSV_GZ, _PARQUET = ".csv", ".csv.gz", ".parquet"


class RunsGroup(click.Group):
    """Verbs on runs; a wrong one is answered with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown verb with the nearest one."""
        verbs = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in verbs:
            raise click.UsageError(
                f"unknown verb 'runs {args[0]}'{did_you_mean(args[0], verbs)} allowed: {', '.join(verbs)}", ctx
            )
        return super().resolve_command(ctx, args)


_FOLDER = click.option(
    "--runs",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder of runs.  [default: SLIPSTICK_RUNS, else slipstick/runs in the user's state folder]",
)
_NAME = click.argument("name", metavar="NAME|FILE")


@click.group("runs", cls=RunsGroup)
def runs_command() -> None:
    """List, show, export or remove saved searches: each `slipstick search` is saved under a name, unless --no-ledger.

    \b
    slipstick runs list
    slipstick runs show llama-3.1-405b-1
    slipstick runs export llama-3.1-405b-1 -o plans.parquet --where 'step_time_s<20s'
    """  # noqa: D301


@runs_command.command("list")
@_FOLDER
@click.option(
    "--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output format."
)
def list_command(folder: Path | None, form: str) -> int:
    """List all runs.

    Of each: its state, how many plans it holds, and the best of its first objective.
    """
    from ..explore.runs.summary import summaries
    from ..report.search.runs import runs_json, runs_table

    runs = _runs(folder)
    found = summaries(runs)
    if form == "json":
        click.echo(runs_json(found))
    elif found:
        click.echo(runs_table(found, columns()))
    else:
        click.echo(f"there are no runs in '{runs.folder}'", err=True)
    return 0


@runs_command.command("show")
@_NAME
@_FOLDER
@click.option(
    "--format",
    "form",
    type=Named(("table", "json", "yaml")),
    default="table",
    show_default=True,
    help="Output; yaml is the space alone, as `slipstick search --space FILE` takes it.",
)
def show_command(name: str, folder: Path | None, form: str) -> int:
    """Show what one run searched and found.

    What was pruned and why, what crashed, how many plans were kept, and between what their columns lie.
    """
    from ..explore.runs.ledger import Ledger
    from ..explore.runs.summary import Summary
    from ..report.search.runs import run_json, run_text

    path = _runs(folder).path(name)
    if form == "yaml":
        with Ledger.open(path) as ledger:
            click.echo(ledger.run.text.rstrip("\n"))
        return 0
    summary = Summary.of(path)
    click.echo(run_json(summary) if form == "json" else run_text(summary, columns()))
    return 0


@runs_command.command("export")
@_NAME
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="FILE.parquet (needs slipstick[results]), FILE.csv or FILE.csv.gz; - is CSV on stdout.",
)
@click.option("--columns", "names", metavar="LIST", help="Columns, as tp,pp,step_time_s.  [default: all]")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only plans for which this holds: 'step_time_s<20s', 'peak_mem_bytes<=70GiB', tp=4,8 or recompute!=full. "
    "Repeatable; all must hold.",
)
@_FOLDER
def export_command(name: str, output: str, names: str | None, conditions: tuple[str, ...], folder: Path | None) -> int:
    """Write the plans of a run to a file.

    Every plan that was evaluated and kept is a row, in the order in which they were enumerated; columns are raw numbers
    in SI units, or words.
    """
    from ..explore.runs.export import Selection
    from ..explore.runs.ledger import Ledger

    if output != "-" and not output.endswith((_CSV, _CSV_GZ, _PARQUET)):
        raise UsageError(f"-o '{output}': the name ends in {_PARQUET}, {_CSV} or {_CSV_GZ}, or is - for CSV on stdout")
    wanted = None if names is None else [word.strip() for word in names.split(",") if word.strip()]
    with Ledger.open(_runs(folder).path(name)) as ledger:
        num_done, num_blocks = ledger.num_done(), ledger.run.num_blocks
        num_rows = _written(Selection.of(ledger, wanted, conditions), output)
    rest = "" if num_done == num_blocks else f"; {num_done:,} of {num_blocks:,} blocks are done, others are missing"
    click.echo(f"{num_rows:,} plan{'' if num_rows == 1 else 's'}{rest}", err=True)
    return 0


@runs_command.command("remove")
@click.argument("name", metavar="NAME")
@_FOLDER
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_command(name: str, folder: Path | None, yes: bool) -> int:
    """Delete a run and all that it found."""
    runs = _runs(folder)
    path = runs.named(name)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"nobody can be asked whether to delete '{path}': say --yes")
        click.confirm(f"delete '{path}'?", abort=True, err=True)
    runs.remove(name)
    click.echo(f"deleted {path}", err=True)
    return 0


def _runs(folder: Path | None) -> LedgerFolder:
    from ..explore.runs.runs import LedgerFolder

    return LedgerFolder.at(folder)


def _written(selection: Selection, output: str) -> int:
    from ..explore.runs.export import write_csv, write_parquet
    from ..ir.text.files import replacing

    if output == "-":
        return write_csv(selection, sys.stdout.buffer)
    path = Path(output)
    with writing(output):
        if output.endswith(_PARQUET):
            return write_parquet(selection, path)
        with replacing(path) as out:
            return _gzipped(selection, out) if output.endswith(_CSV_GZ) else write_csv(selection, out)


def _gzipped(selection: Selection, out: BinaryIO) -> int:
    """The same rows make the same file: no name, no time in it."""
    from ..explore.runs.export import write_csv

    with gzip.GzipFile("", "wb", compresslevel=6, fileobj=out, mtime=0) as packed:
        return write_csv(selection, packed)
