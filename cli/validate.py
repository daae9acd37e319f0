"""`slipstick validate`: predictions beside tables of measurements."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir.errors import GateError, InfeasibleError, UsageError
from ..ir.text.files import write_atomically
from .flags.numbers import Named, Real, Whole
from .flags.talk import Watched, talk_flags
from .output.answers import form_of, format_flag, output_flag, write_answer
from .output.files import columns, write_text, writing

if TYPE_CHECKING:
    from ..validation.results.outcomes import Outcome

FORMS = ("table", "json", "csv", "md", "html", "parquet", "svg")
# PNG is no text, so that only a suffix says it.
DRAWN = ("svg", "png")


@click.command(
    "validate",
    cls=Watched,
    params=[
        format_flag(*FORMS),
        output_flag(".json, .csv, .parquet, .md, .html, .svg or .png for a picture, or .txt for the table"),
        *talk_flags(),
    ],
)
@click.argument("files", nargs=-1, required=True, metavar="FILE.csv...", type=click.Path(path_type=Path))
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Judge the rows with this cell only, e.g. dataset=vidur_linear; numbers also with > >= < <=. Repeatable: "
    "all must hold, values of one column are alternatives.",
)
@click.option(
    "--part",
    type=Named(("all", "fit", "judged")),
    default="all",
    show_default=True,
    help="Rows to count: those that constants were fitted to, those that judge them, or all.",
)
@click.option(
    "--calibration",
    metavar="NAME|FILE",
    help="Constants of kernels: a name of the catalogue or a YAML file.  [default: those of each row's chip]",
)
@click.option("--rows", metavar="OUT.csv", help="Write every row with prediction, measurement, error and reason.")
@click.option(
    "--accuracy",
    metavar="OUT.csv",
    help="Write median and 90th percentile of the errors of the rows that judge, by table, chip, library and kind: "
    "what `estimate` says of how far its numbers are to be trusted.",
)
@click.option("--worst", type=Whole(min=1), metavar="N", help="List the N rows that are farthest off.")
@click.option(
    "--beyond",
    type=Real(min=0),
    metavar="PCT",
    help="List every row that is off by more than this many percent, with the cause where one was found.",
)
@click.option(
    "--max-error",
    type=Real(min=0),
    metavar="PCT",
    help="Exit with code 5 when the median error of a data set is above this many percent, or no row is judged.",
)
@click.option(
    "--cache/--no-cache", default=True, show_default=True, help="Keep traced graphs in the user's cache folder."
)
@click.option(
    "--jobs",
    type=Whole(min=1),
    metavar="N",
    help="Processes that judge training steps.  [default: one a processor]",
)
def validate_command(
    files: tuple[Path, ...], where: tuple[str, ...], part: str, calibration: str | None, rows: str | None,
    accuracy: str | None, worst: int | None, beyond: float | None, max_error: float | None, form: str | None,
    output: str, cache: bool, jobs: int | None, quiet: bool,
) -> int:  # fmt: skip
    """Compare predictions with measurements in FILEs, CSV tables of kernels, steps, requests or power.

    Every row gets an error, or is listed with the reason why not: skipped rows have no prediction, excluded rows are
    documented outliers, which count only in `all`. Errors are predicted / measured - 1. docs/validation.md describes
    the columns and the figures.
    """
    if max_error is not None and math.isnan(max_error):
        raise UsageError("--max-error nan: a number of percent, 0 or more")
    kind = form_of(form, output, (*FORMS, "png"))
    from ..frontend import GraphCache
    from ..validation.judge import chosen, judge_files
    from ..validation.kinds import JudgingSettings
    from ..validation.processors import cpu_count
    from ..validation.results.report import rows_csv
    from ..validation.rows.machine_room import MachineRoom

    report = None if quiet else lambda line: click.echo(line, err=True)
    kept = GraphCache.default() if cache else None
    settings = JudgingSettings(MachineRoom(calibration), kept, report, jobs or cpu_count(), _metrics_of)
    outcomes = chosen(judge_files(files, where, settings), part)
    if rows is not None:
        write_text(rows_csv(outcomes), rows)
    if accuracy is not None:
        from ..validation.results.accuracy import accuracy_csv

        write_text(accuracy_csv(outcomes, lambda system: settings.room.system(system).chip.name), accuracy)
    _write(outcomes, kind, output, worst or 0, None if beyond is None else beyond / 100)
    _refuse_above(max_error, outcomes)
    return 0


def _write(outcomes: Sequence[Outcome], kind: str, output: str, worst: int, far: float | None) -> None:
    """Write a summary, rows or a picture in a format."""
    from ..validation.results.report import rows_csv, summary_json, summary_text

    if kind in DRAWN:
        from ..validation.results.plot import chart

        picture = chart(outcomes)
        if picture is None:
            raise UsageError("no row has both a prediction and a measurement: there is no picture to draw")
        if kind == "svg":
            write_text(picture.svg(), output)
            return
        with writing(output):
            write_atomically(Path(output), picture.png())
    elif kind == "json":
        write_text(summary_json(outcomes, worst, far), output)
    elif kind == "csv":
        write_text(rows_csv(outcomes), output)
    elif kind == "table":
        write_text(summary_text(outcomes, worst, columns(), far), output)
    else:
        from ..report.results.documents import DocumentResult

        found = DocumentResult(
            title="validation",
            document=lambda: summary_json(outcomes, worst, far),
            screen=lambda _: summary_text(outcomes, worst, columns(), far),
        )
        write_answer(found, kind, output)


def _metrics_of(arguments: Sequence[str]) -> Mapping[str, float]:
    """Answer arguments of `slipstick estimate`, as a command of its own would, whether or not it fits."""
    from . import run

    out, errors = io.StringIO(), io.StringIO()
    # A server that has no room for its requests has no answer at all.
    whatever = () if "serve" in arguments else ("--allow-infeasible",)
    with redirect_stdout(out), redirect_stderr(errors):
        code = run(["estimate", *arguments, "--format", "json", "--quiet", *whatever])
    if code not in (0, InfeasibleError.exit_code):
        raise UsageError(errors.getvalue().strip().rpartition("error: ")[2] or f"exit code {code}")
    metrics = json.loads(out.getvalue())["metrics"]
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}


def _refuse_above(max_error: float | None, outcomes: Sequence[Outcome]) -> None:
    from ..validation.judge import medians

    if max_error is None:
        return
    found = medians(outcomes)
    if not found:
        raise GateError(f"no row was judged, so that no median error is known to be {max_error:g}% or less")
    over = {name: error for name, error in found.items() if error > max_error / 100}
    if over:
        named = ", ".join(f"{name} {error:.1%}" for name, error in over.items())
        raise GateError(f"the median error is above {max_error:g}%: {named}")
