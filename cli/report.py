"""`slipstick report`: answers that were saved, as one page or one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import click

from ..ir.errors import ParseError
from .output.answers import DRAWN_SUFFIXES, Answering, format_flag, output_flag

if TYPE_CHECKING:
    from ..app.sources import VerbArguments
    from ..report.results.documents import SavedResult
    from ..report.results.result import Result


class ReportCommand(Answering):
    """A verb whose answer is a page where nothing says another form."""

    forms: ClassVar[tuple[str, ...]] = ("html", "md", "csv", "parquet", "json", "table", "svg", "png")

    def form_of(self, said: Mapping[str, object], arguments: VerbArguments) -> str:
        """Return the form: a page, unless a flag or a suffix says another."""
        usual = {"form": "html"} if said["form"] is None and said["output"] == "-" else {}
        return super().form_of({**said, **usual}, arguments)

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the page or the table; ParseError for answers that have not what was written."""
        from ..ir.text.admission import refuse_incoming

        with refuse_incoming(", ".join(map(str, cast("Sequence[object]", said["files"]))), "page"):
            return super().deliver(result, form, said, arguments)


@click.command(
    "report",
    cls=ReportCommand,
    params=[format_flag("html", "md", "csv", "parquet", "json", "table", "svg"), output_flag(DRAWN_SUFFIXES)],
)
@click.argument("files", nargs=-1, required=True, metavar="RESULT.json...")
def report_command(files: tuple[str, ...]) -> SavedResult:
    """Turn results that were saved with -o RESULT.json into one HTML page, or a table with a row for each.

    A page works offline and contacts no host; charts need slipstick[report]. `-` is stdin.

    \b
    slipstick estimate llama-3.1-8b --system dgx-h100 --tp 2 -o tp2.json
    slipstick report tp2.json -o tp2.html
    slipstick report *.json -o all.csv
    """  # noqa: D301
    from ..report.compare.saved import REPORT, estimate_of, read_tree
    from ..report.results.documents import SavedResult

    documents = {path: read_tree(path) for path in files}
    for path, tree in documents.items():
        if tree.get("schema") == REPORT:
            estimate_of(tree, path)
        if "schema" not in tree:
            raise ParseError(f"'{path}' is no answer: write one with `slipstick estimate ... -o FILE.json`")
    return SavedResult(documents=documents)
