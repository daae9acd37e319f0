"""The base class of results: a summary of a few lines, conversion to a dict, a table, a page or a file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast, overload

from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ..columns import in_columns
from .table import Columns, Line, Panel, Row

if TYPE_CHECKING:
    from altair import TopLevelMixin

    from ..charts.chart import Chart
    from ..pictures.picture import Picture
    from .page import Page

F = TypeVar("F")
# Libraries of frames, in the order in which they are looked for.
FRAMES = ("pandas", "polars")
# Forms of results that have charts, beside those of all.
DRAWN = ("svg", "png")
# A screen in a file or a pipe is laid out for so many columns; what a notebook prints, for these.
FILE_COLUMNS, WIDTH = 120, 100


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Result(ABC):
    """The result of a verb of the command line, and of the Python function of that name.

    `command` is the equivalent command line; `defaults` are its flags that a file of defaults or the environment set;
    `forms` are the file formats that it can be saved in.
    """

    command: str = ""
    defaults: tuple[str, ...] = ()
    forms: ClassVar[tuple[str, ...]] = ("json", "csv", "parquet", "md", "html", "table")

    @abstractmethod
    def json(self) -> str:
        """Return the document that `--format json` prints."""

    @abstractmethod
    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen that the command line shows, for so many columns."""

    @abstractmethod
    def summary(self) -> Sequence[Line]:
        """Return three to six lines, each of a name and what is said of it; the first is the title."""

    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """Return the rows of the result as a table; whole numbers are ints."""

    @abstractmethod
    def panels(self) -> Sequence[Panel]:
        """Return the tables of a page."""

    def pictures(self) -> Sequence[Picture]:
        """Return what a terminal shows beside the text; nothing where no picture helps."""
        return ()

    def drawn(self, columns: int = WIDTH, color: bool = False) -> str:
        """Return the pictures of the result in characters, for so many columns; empty where it has none."""
        from ..pictures.picture import drawn

        return drawn(self.pictures(), columns, color)

    def svg(self) -> str:
        """Return the first chart of the result as a picture, where it has one: see `forms`."""
        if "svg" not in self.forms:
            raise UsageError(f"there is no picture of this result; allowed: {', '.join(self.forms)}")
        return self.chart().svg()

    def markdown(self) -> str:
        """Return the summary and the sections as Markdown."""
        from .page import markdown

        return markdown(self.summary(), self.panels(), self.command)

    def html(self) -> str:
        """Return the figures, the charts and the panels as a page that works from a file."""
        from .page import page

        return page(self.page())

    def page(self) -> Page:
        """Return what the page says; charts are of the whole document."""
        from ..charts.documents import charts_of
        from .page import Page

        whole: object = self.whole_document()
        # Rows alone, as of a list, have no figures of their own.
        document = whole if isinstance(whole, Mapping) else {}
        return Page(self.summary(), self.panels(), self.command, document, charts_of(document))

    def whole_document(self) -> Mapping[str, object]:
        """Return the document of `--format json`, and with it what only charts show."""
        return self.to_dict()

    def plot(self, name: str = "") -> TopLevelMixin:
        """Return the chart with a title, else the first, as an Altair chart, which notebooks show.

        UsageError where Altair is not installed, the result has no chart, or none of that name.
        """
        return self.chart(name).figure()

    def charts(self) -> Sequence[Chart]:
        """Return the charts of a page, in their order."""
        from ..charts.documents import charts_of

        return charts_of(self.whole_document())

    def chart(self, name: str = "") -> Chart:
        """Return the chart whose title begins so; UsageError with the titles that there are."""
        found = self.charts()
        if not found:
            raise UsageError("there is no chart of this result")
        chosen = next((chart for chart in found if chart.title.lower().startswith(name.lower())), None)
        if chosen is None:
            raise UnknownNameError.of("chart", name, [chart.title for chart in found])
        return chosen

    def form(self, name: str, columns: int | None = None, color: bool = False) -> str:
        """Return the result as text in one of `forms` except Parquet, ending with a line break."""
        from ..columns import fitted
        from .files import csv_text

        made: Mapping[str, Callable[[], str]] = {
            "json": self.json,
            "md": self.markdown,
            "html": self.html,
            "svg": self.svg,
            "csv": lambda: csv_text(self.to_columns()),
            "table": lambda: fitted(self.text(columns, color), columns).rstrip("\n") + self._defaults_line(),
        }
        return made[name]().rstrip("\n") + "\n"

    def _defaults_line(self) -> str:
        return f"\ndefaults of slipstick.toml or SLIPSTICK_*: {' '.join(self.defaults)}" if self.defaults else ""

    def to_dict(self) -> dict[str, object]:
        """Return the document of `--format json` as a dict."""
        return cast(dict[str, object], json.loads(self.json()))

    def to_columns(self) -> Columns:
        """Return the table column by column; None where a row has no value."""
        rows = self.rows()
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    @overload
    def to_frame(self) -> object: ...

    @overload
    def to_frame(self, make: Callable[[Columns], F]) -> F: ...

    def to_frame(self, make: Callable[[Columns], F] | None = None) -> F | object:
        """Return the table as a pandas frame, else a polars frame; or as what `make` returns for its columns.

        UsageError where neither is installed. A type checker knows the frame of `to_frame(pandas.DataFrame)`.
        """
        return (make or _frame_maker())(self.to_columns())

    def save(self, path: str | Path, form: str = "") -> Path:
        """Write the result in a form, or in that of the suffix, and return the path; the file is whole or not there.

        UsageError for a suffix that says none of `forms`, and for Parquet without DuckDB.
        """
        from ...ir.text.files import write_atomically, write_whole
        from .files import form_of_file, write_parquet

        name, path = form or form_of_file(str(path), self.forms), Path(path)
        if name == "parquet":
            write_parquet(self.to_columns(), path)
        elif name == "png":
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, self.chart().png())
        else:
            write_whole(path, self.form(name))
        return path

    def __repr__(self) -> str:
        (title, first), *rest = self.summary()
        lines = in_columns([(f"  {name}", told) for name, told in rest], WIDTH) if rest else ""
        return f"{title}  {first}".rstrip() + (f"\n{lines}" if lines else "")

    def _repr_html_(self) -> str:
        from .page import fragment

        return fragment(self.summary())


def _frame_maker() -> Callable[[Columns], object]:
    for name in FRAMES:
        if find_spec(name) is not None:
            return cast(Callable[[Columns], object], import_module(name).DataFrame)
    raise UsageError(f"a frame needs {' or '.join(FRAMES)}: pip install one of them; to_columns() needs neither")
