"""Facts about a publication that its table of measurements has no cells for: what is known, what is assumed, what not.

They stand in YAML beside the table, `own.yaml` beside `own.csv`: a mapping of data sets, or patterns of their names, to
publications. Of several rules for one cell the first that holds fills it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, TypeAlias

from ...backends.machine.files.kinds import Least
from ...backends.machine.files.section import Section, fields_of
from ...backends.machine.files.shapes import Plain
from ...backends.machine.files.system_tree import Tree
from ...ir.errors import UsageError
from .formulas import columns_of, count_of

Cells: TypeAlias = Mapping[str, str]
FORMULA = "="
_VERSION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*")
_COMPARISON = re.compile(r"(<=|>=|<|>) *([0-9.]+)")


def _cell(given: Tree) -> str:
    """Return a scalar of YAML as the text of a cell."""
    if given is None or isinstance(given, dict | list):
        raise ValueError
    text = str(given)
    if text.startswith(FORMULA):
        columns_of(text.removeprefix(FORMULA))
    return text


def _patterns(given: Tree) -> tuple[str, ...]:
    return tuple(map(_cell, given)) if isinstance(given, list) else (_cell(given),)


_TEXT = Plain("string", parse=_cell)
_PATTERNS = Plain("string", parse=_patterns)


class Rule(Section):
    """Rows that meet all conditions; a condition is on a column, or on a formula over columns, where empty cells are 1.

    A cell meets one of the patterns `Llama*`, `!Llama*` for any other, and `>=16`; versions such as 26.04.01 are
    compared part by part.
    """

    when: Mapping[str, Annotated[tuple[str, ...], _PATTERNS]] = {}

    def applies_to(self, cells: Cells) -> bool:
        """Return whether a row meets all conditions."""
        return all(any(_meets(_text(key, cells), one) for one in wanted) for key, wanted in self.when.items())

    def faults(self, found: Mapping[str, object]) -> Iterable[str]:
        """Yield conditions that are neither a column nor a formula."""
        for key in self.when:
            try:
                columns_of(key)
            except UsageError as error:
                yield str(error)


class KnownCells(Rule):
    """Cells that rows are given, text or `= batch * tp // 8`, which counts in whole numbers."""

    cells: Annotated[Mapping[str, Annotated[str, _TEXT]], Least()]


class AssumedCells(KnownCells):
    """Cells that a publication leaves out, what is taken for them, and on what grounds."""

    why: str


class RowVerdict(Rule):
    """Something that holds of rows, and why."""

    why: str


class Accelerator(Section):
    """A system of the catalogue, and what a machine has other than that: `network.infiniband.bandwidth=100Gbit/s`."""

    system: str
    set: tuple[str, ...] = ()


class PublishedModel(Section):
    """A model that the catalogue lacks: its config as transformers reads it, and where its sizes are published."""

    config: dict[str, object]
    source: str


class Publication(Section):
    """What is known of the rows of a data set.

    Attributes:
        accelerators: pattern of what a table calls an accelerator -> the system.
        models: what a table calls a model -> its name in the catalogue, or its config.
        engines: pattern of what a table calls an engine, in small letters -> its name in the catalogue.
        precisions: what a table calls low precision, in small letters -> the recipe.
        notes: column -> the text of a note around its cell, `container {}`.
        corrected: cells that rows have in place of those of the table.
        known: cells of rows where the table has none.
        assumed: cells of rows where nothing is known.
        unlike: rows that cannot be predicted.
        outliers: measurements that no sane model follows, left out of the figures.
        causes: what was found to be the reason of a large error.
        not_fitted: rows that judge alone; without conditions no fit may name the data set.
        computed: quantities that the publication computed from others of the row, which are not judged.
    """

    called: ClassVar[str] = "publication"

    accelerators: Mapping[str, str | Accelerator] = {}
    models: Mapping[str, str | PublishedModel] = {}
    engines: Mapping[str, str] = {}
    precisions: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}
    corrected: tuple[KnownCells, ...] = ()
    known: tuple[KnownCells, ...] = ()
    assumed: tuple[AssumedCells, ...] = ()
    unlike: tuple[RowVerdict, ...] = ()
    outliers: tuple[RowVerdict, ...] = ()
    causes: tuple[RowVerdict, ...] = ()
    not_fitted: tuple[RowVerdict, ...] = ()
    computed: tuple[str, ...] = ()

    @property
    def judges_only(self) -> bool:
        """Whether no row of the data set may be fitted."""
        return any(not rule.when for rule in self.not_fitted)

    def over(self, other: Publication) -> Publication:
        """Lay a publication over another one: its rules come first."""
        laid: dict[str, object] = {}
        for key in fields_of(Publication):
            mine, theirs = getattr(self, key), getattr(other, key)
            added = {name: theirs[name] for name in theirs if name not in mine} if isinstance(mine, dict) else theirs
            laid[key] = {**mine, **added} if isinstance(mine, dict) else (*mine, *added)
        return Publication.of(laid)

    def completed(self, cells: Cells) -> tuple[dict[str, str], tuple[str, ...]]:
        """Fill the cells of a row; returned with what was assumed, in words."""
        found, assumed = dict(cells), list[str]()
        for column, around in self.notes.items():
            if _empty(found, column):
                found |= _noted(column, around, found)
        for rule in self.corrected:
            if rule.applies_to(found):
                found |= {column: _value(text, found) for column, text in rule.cells.items()}
        for rule in (*self.known, *self.assumed):
            empty = [column for column in rule.cells if _empty(found, column)] if rule.applies_to(found) else []
            found |= {column: _value(rule.cells[column], found) for column in empty}
            if isinstance(rule, AssumedCells):
                assumed += [f"{column} {found[column]} ({rule.why})" for column in empty]
        return found, tuple(assumed)


def reason(rules: Sequence[RowVerdict], cells: Cells) -> str:
    """Return why something holds of a row by the first rule that it meets, empty where it meets none.

    >>> slow = RowVerdict.of({"when": {"id": ("run_1*",)}, "why": "a slow disk"})
    >>> reason([slow], {"id": "run_12"}), reason([slow], {"id": "run_2"})
    ('a slow disk', '')
    """
    return next((rule.why for rule in rules if rule.applies_to(cells)), "")


def named_in(names: Mapping[str, object], text: str) -> object | None:
    """Return what a name stands for: by itself, else by the first pattern that it meets; None where it is unknown."""
    return names.get(text) or next((found for pattern, found in names.items() if fnmatchcase(text, pattern)), None)


def _value(text: str, cells: Cells) -> str:
    return str(count_of(text.removeprefix(FORMULA), cells)) if text.startswith(FORMULA) else text


def _text(key: str, cells: Cells) -> str:
    return cells.get(key, "").strip() if key.isidentifier() else str(count_of(key, cells))


def _empty(cells: Cells, column: str) -> bool:
    return not cells.get(column, "").strip()


def _noted(column: str, around: str, cells: Cells) -> dict[str, str]:
    before, _, after = around.partition("{}")
    noted = re.search(rf"{re.escape(before)}([\w.+-]*\w){re.escape(after)}", cells.get("note", ""))
    return {} if noted is None else {column: noted[1]}


def _meets(text: str, pattern: str) -> bool:
    if pattern.startswith("!"):
        return not _meets(text, pattern[1:])
    if (compared := _COMPARISON.fullmatch(pattern)) is None:
        return fnmatchcase(text, pattern)
    sign, wanted = compared[1], compared[2]
    given, least = _number(text, wanted), _number(wanted, text)
    if given is None or least is None:
        return False
    return {"<=": given <= least, ">=": given >= least, "<": given < least, ">": given > least}[sign]


def _number(text: str, beside: str) -> tuple[float, ...] | None:
    """Return a number, or a version part by part where it is beside one; None for another text."""
    if _VERSION.fullmatch(text) is None:
        return None
    versions = max(text.count("."), beside.count(".")) > 1
    return tuple(map(float, text.split("."))) if versions else (float(text),)
