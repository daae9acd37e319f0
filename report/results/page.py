"""A result as a page that works from a file and asks no other host for anything, and as Markdown; all escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING

from ...ir import __version__
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.text.shown import code_block, markdown_text
from .headline import Figure, figures
from .table import Line, Panel

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from ..charts.chart import Chart

# Rows from which a table with a heading can be filtered, columns from which it leaves out those that are all alike.
_MANY_ROWS, _MANY_COLUMNS = 8, 8
_CONTROLS = {c: f"\\x{c:02x}" for c in (*range(9), 11, 12, *range(14, 32), 127)}
_CONTROLS |= {c: f"\\u{c:04x}" for c in range(0xD800, 0xE000)}
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {}; base-uri 'none'; form-action 'none'"
)
# Of the notes of an answer, what a page says at its top.
_NOTES = "Notes"


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says.

    Attributes:
        summary: names and what is said of them; the first is the title.
        panels: tables.
        command: the command line that gives the same.
        document: the answer as JSON has it.
        charts: of the document; drawn where there is what draws.
        picture: SVG of the house for a page without charts, and what it shows.
        several: whether the document holds several answers, which have no figures in common.
    """

    summary: Sequence[Line]
    panels: Sequence[Panel]
    command: str = ""
    document: Mapping[str, object] = field(default_factory=dict)
    charts: Sequence[Chart] = ()
    picture: str = ""
    alt: str = ""
    several: bool = False


@cache
def _templates() -> Environment:
    """Templates of this folder; a name that a template says and nobody gives is our own mistake.

    Text that would steer a terminal stands as it is typed; text of our own templates is free of it already.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("slipstick.report.results"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: value.translate(_CONTROLS) if type(value) is str else value,
    )


def page(given: Page) -> str:
    """Return the whole page: figures, warnings, summary, charts, tables; without what draws, how to get the charts."""
    from markupsafe import Markup

    from ..charts.chart import NEEDED, drawable, scripts

    (title, line), *rest = given.summary
    drawn = bool(given.charts) and drawable()
    loader = _templates().loader
    assert loader is not None
    script = _inline(loader.get_source(_templates(), "page.js")[0])
    parts = [script, *([_inline(scripts())] if drawn else [])]
    # A page runs exactly these scripts, and asks nobody for anything.
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in parts]
    policy = _POLICY.format(" ".join(f"'sha256-{one}'" for one in hashes))
    warnings = [row[0] for panel in given.panels if panel.title == _NOTES for row in panel.rows]
    charts: list[dict[str, object]] = [
        {
            "id": _anchor(chart.title, k),
            "title": chart.title,
            "alt": chart.alt,
            "table": None if chart.numbers is None else _table(chart.numbers.head, chart.numbers.rows),
        }
        for k, chart in enumerate(given.charts if drawn else ())
    ]
    sections = [_section(one, len(given.charts) + k) for k, one in enumerate(given.panels) if one.title != _NOTES]
    sections = [one for one in sections if one["table"]]
    plain = any(not one["filter"] for one in sections)
    specs = {f"{shown['id']}-chart": chart.whole() for shown, chart in zip(charts, given.charts, strict=False)}
    headline: list[Figure] = [] if given.several else figures(given.document)
    links = [{"id": one["id"], "title": one["title"]} for one in [*charts, *(one for one in sections if one["filter"])]]
    links += [{"id": "numbers", "title": "All numbers"}] if plain else []
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            policy=policy,
            title=title,
            line=line,
            command=given.command,
            headline=headline,
            links=links,
            warnings=warnings,
            summary=_table((), rest),
            picture=Markup("" if drawn else given.picture),
            alt=given.alt,
            hint="" if drawn or not given.charts else f"{NEEDED[0].upper()}{NEEDED[1:]}",
            charts=charts,
            sections=sections,
            plain=plain,
            version=__version__,
            scripts=Markup(parts[-1]) if drawn else "",
            specs=_data(specs),
            document=_data(given.document),
            script=Markup(script),
        )
    )


def _section(panel: Panel, place: int) -> dict[str, object]:
    """Return what the template takes of a panel; of many columns, those that say the same in all rows are a line."""
    head, rows = panel.head, panel.rows
    filtered, same = len(rows) >= _MANY_ROWS and any(head), ""
    if filtered and len(head) > _MANY_COLUMNS:
        differ = [k for k in range(len(head)) if len({row[k] for row in rows}) > 1]
        fixed = [k for k in range(len(head)) if k not in differ and rows[0][k]]
        same = ", ".join(f"{head[k]} {rows[0][k]}" for k in fixed)
        head, rows = [head[k] for k in differ], [[row[k] for k in differ] for row in rows]
    return {
        "id": _anchor(panel.title, place),
        "title": panel.title,
        "table": _table(head, rows, panel.shares) if panel.rows else "",
        "filter": filtered,
        "same": same,
    }


def fragment(summary: Sequence[Line]) -> str:
    """Return what a notebook shows: the title and the summary as a table, with its own style."""
    from markupsafe import Markup

    (title, line), *rest = summary
    style = _templates().get_template("tables.css").render()
    head = Markup("<div><strong>{}</strong> {}</div>").format(title, line)
    return f"<style>{style}</style>{head}{_table((), rest)}"


def _anchor(title: str, place: int) -> str:
    """Return the name of a section in addresses.

    >>> _anchor("Memory of a GPU, of 79.6 GiB", 3)
    'memory-of-a-gpu-of-79-6-gib-3'
    """
    return f"{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}-{place}"


def _inline(script: str) -> str:
    """Return a script as it may stand inside a page: nothing in it ends it early, or opens a comment."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _data(value: object) -> Markup:
    """Return JSON for a script element that runs nothing: no letter of it can end the element."""
    from markupsafe import Markup

    text = json_text(value, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], shares: Sequence[float] = ()) -> Markup:
    from markupsafe import Markup

    text = _templates().get_template("table.html.j2").render(head=head, rows=rows, shares=shares)
    # A template escapes what it is given: its own text goes into the page as it is.
    return Markup(text)


def markdown(summary: Sequence[Line], sections: Sequence[Panel], command: str) -> str:
    """Return the same as Markdown."""
    (title, first), *rest = summary
    lines = [f"# {markdown_text(title)}", "", markdown_text(first), "", *_lines(["", ""], rest)]
    for section in sections:
        lines += ["", f"## {markdown_text(section.title)}", "", *_lines(section.head, section.rows)]
    return "\n".join([*lines, *(["", *code_block(command, "sh")] if command else [])])


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    header, *cells = ("| " + " | ".join(map(markdown_text, row)) + " |" for row in (head, *rows))
    return [header, "|" + " --- |" * len(head), *cells]
