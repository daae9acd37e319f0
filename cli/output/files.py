"""Text to where the user wants it: stdout, or a file that is complete or not there at all."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ...ir.errors import UsageError
from .talk import TALK


def write_text(text: str, output: str) -> None:
    """Write to a file, gzipped when its name ends in .gz, or to stdout when it is `-`."""
    text = text if text.endswith("\n") else text + "\n"
    if output == "-":
        click.echo(text, nl=False)
        return
    from ...ir.text.files import write_whole

    with TALK.writing(output):
        write_whole(Path(output), text)


def check_suffix(output: str, *allowed: str) -> None:
    """Refuse a file whose suffix says a form of answers that the text is not in; other names are the user's.

    >>> check_suffix("plan.sh"), check_suffix("plan.json.gz", ".json")
    (None, None)
    """
    from ...report.results.files import SUFFIXES

    name = Path(output.removesuffix(".gz")).suffix.lower()
    if name not in (*allowed, *SUFFIXES["table"]) and any(name in known for known in SUFFIXES.values()):
        told = f"formats of this file: {', '.join(allowed)}" if allowed else "what is written is text"
        raise UsageError(f"'{output}': cannot write '{name}'; {told}")


def columns() -> int | None:
    """Return the width of the terminal, None where stdout is a file or a pipe."""
    if not sys.stdout.isatty():
        return None
    import shutil  # only here: it imports all kinds of archives

    return shutil.get_terminal_size().columns


writing = TALK.writing
