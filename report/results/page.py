"""A result as a page that works from a file, where nothing is loaded and nothing runs, and as Markdown; all escaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from ...ir import __version__
from .table import Line, Panel

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


def page(summary: Sequence[Line], sections: Sequence[Panel], command: str, picture: str = "", alt: str = "") -> str:
    """Return the whole page: the summary, the picture where there is one, and a table for each section.

    The picture is one of the house, which escapes what it writes.
    """
    from markupsafe import Markup

    (title, line), *rest = summary
    shown = [{"title": one.title, "table": _table(one.head, one.rows, one.shares)} for one in sections if one.rows]
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            title=title,
            line=line,
            command=command,
            picture=Markup(picture),
            alt=alt,
            summary=_table((), rest),
            sections=shown,
            version=__version__,
        )
    )


def fragment(summary: Sequence[Line]) -> str:
    """Return what a notebook shows: the title and the summary as a table, with its own style."""
    from markupsafe import Markup

    (title, line), *rest = summary
    style = _templates().get_template("tables.css").render()
    head = Markup("<div><strong>{}</strong> {}</div>").format(title, line)
    return f"<style>{style}</style>{head}{_table((), rest)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], shares: Sequence[float] = ()) -> Markup:
    from markupsafe import Markup

    text = _templates().get_template("table.html.j2").render(head=head, rows=rows, shares=shares)
    # A template escapes what it is given: its own text goes into the page as it is.
    return Markup(text)


def markdown(summary: Sequence[Line], sections: Sequence[Panel], command: str) -> str:
    """Return the same as Markdown."""
    (title, first), *rest = summary
    lines = [f"# {_escaped(title)}", "", _escaped(first), "", *_lines(["", ""], rest)]
    for section in sections:
        lines += ["", f"## {_escaped(section.title)}", "", *_lines(section.head, section.rows)]
    return "\n".join([*lines, *(["", "```sh", command, "```"] if command else [])])


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    whole = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(_escaped, row)) + " |" for row in whole]


def _escaped(text: str) -> str:
    for mark in "\\`*_<|":
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", " ")
