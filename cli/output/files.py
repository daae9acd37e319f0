"""Text to where the user wants it: stdout, or a file that is complete or not there at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ...ir.errors import SlipstickError, UsageError


def write_text(text: str, output: str) -> None:
    """Write to a file, gzipped when its name ends in .gz, or to stdout when it is `-`."""
    text = text if text.endswith("\n") else text + "\n"
    if output == "-":
        click.echo(text, nl=False)
        return
    from ...ir.text.files import write_whole

    with writing(output):
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


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Report what is written, on stderr; a place that cannot be written is the user's to change."""
    try:
        yield
    except SlipstickError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "\0" not in str(path):
            raise  # of what is written, not of where
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot write '{path}': {reason}") from error
    click.echo(f"wrote {path}", err=True)
