"""A result as a page that works from a file: nothing is loaded, nothing runs, and every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from ... import __version__
from .result import Result

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def _templates() -> Environment:
    """Templates of this folder; a name that a template says and nobody gives is our own mistake."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("slipstick.report.results"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def page(result: Result) -> str:
    """Return the whole page: the summary, the picture where there is one, and a table for each section."""
    from markupsafe import Markup

    (title, line), *rest = result.summary()
    # The picture is made by the house itself, which escapes what it writes.
    picture = Markup(result.svg()) if "svg" in result.forms else ""
    sections = [
        {"title": one.title, "table": _table(one.head, one.rows, one.shares)} for one in result.sections() if one.rows
    ]
    return _templates().get_template("page.html.j2").render(
        title=title, line=line, command=result.command, picture=picture, summary=_table((), rest), sections=sections,
        version=__version__,
    )  # fmt: skip


def fragment(result: Result) -> str:
    """Return what a notebook shows: the title and the summary as a table, with its own style."""
    from markupsafe import Markup

    (title, line), *rest = result.summary()
    style = _templates().get_template("tables.css").render()
    head = Markup("<div><strong>{}</strong> {}</div>").format(title, line)
    return f"<style>{style}</style>{head}{_table((), rest)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], shares: Sequence[float] = ()) -> Markup:
    from markupsafe import Markup

    text = _templates().get_template("table.html.j2").render(head=head, rows=rows, shares=shares)
    # A template escapes what it is given: its own text goes into the page as it is.
    return Markup(text)
