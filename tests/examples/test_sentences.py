"""Each written sentence of a study follows from its table, and its picture fits a column of a paper."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from types import ModuleType

Written: TypeAlias = Callable[[str], Path]
# What a sentence says: its template, whether its relation holds, and its words.
Spoken: TypeAlias = tuple[str, bool, str]


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def _listen(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Spoken]:
    """Have a script say its sentences whether they hold or not, and note them."""
    spoken: list[Spoken] = []

    def say(template: str, holds: bool, /, **facts: str | float) -> str:
        spoken.append((template, bool(holds), template.format(**facts)))
        return spoken[-1][-1]

    monkeypatch.setattr(script, "say", say)
    return spoken


def _shuffled(script: ModuleType, text: str) -> Iterator[None]:
    """Yield after each try to conclude from another table: numbers multiplied, words dealt anew."""
    table = import_module("study").read_table(text)
    places = range(len(table.columns))
    counts = {k for k in places if all(_is_chosen(str(row[k])) for row in table.rows)}
    words = [None, *(k for k in places if all(isinstance(row[k], str) for row in table.rows))]
    for seed in range(40):
        dice, sign = random.Random(seed), (1, 1, 0, -1)[seed % 4]
        scale = [dice.uniform(-1, 1) for _ in places]
        rows = [
            [
                cell if k in counts or isinstance(cell, str) else _other(cell, scale[k] + dice.uniform(-1, 1), sign)
                for k, cell in enumerate(row)
            ]
            for row in table.rows
        ]
        moved = words[seed // 4 % len(words)]
        if moved is not None:
            for row, cell in zip(rows, dice.sample([row[moved] for row in rows], len(rows)), strict=True):
                row[moved] = cell
        # A table on which nothing can be said is no support either.
        with suppress(ArithmeticError, LookupError, ValueError):
            list(script.conclude(type(table)(table.columns, rows)))
        yield


def _is_chosen(number: str) -> bool:
    """Say whether a number is one of an axis, such as a batch or 0.25, and no result."""
    return number.removesuffix(".0").isdigit() or len(number) <= len("1.25")


def _other(number: float, power: float, sign: int) -> float:
    """Return another number: up to a hundred times as large or small, of its own sign where none is told."""
    return (abs(number) * sign if sign else number) * 10**power


def test_sentences_are_those_of_the_written_table(concluding: str, written: Written) -> None:
    study, folder = import_module("study"), written(concluding)
    table = study.read_table((folder / f"{concluding}.csv").read_text(encoding="utf-8"))
    sentences = [f"- {sentence}." for sentence in import_module(concluding).conclude(table)]
    page = (folder / f"{concluding}.md").read_text(encoding="utf-8").splitlines()
    assert 1 <= len(sentences) <= 5
    assert page[2 : 2 + len(sentences) + 1] == [*sentences, ""]


def test_each_sentence_fails_or_changes_on_other_numbers(
    concluding: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence that says the same of every table, or whose relation cannot fail, says nothing of this one."""
    script = import_module(concluding)
    text = (written(concluding) / f"{concluding}.csv").read_text(encoding="utf-8")
    spoken = _listen(script, monkeypatch)
    list(script.conclude(import_module("study").read_table(text)))
    first = spoken.copy()
    assert all(holds for _, holds, _ in first)
    moved: set[int] = set()
    failed: set[int] = set()
    spoken.clear()
    for _ in _shuffled(script, text):
        for k, ((template, _, words), (other, holds, others)) in enumerate(zip(first, spoken, strict=False)):
            moved |= {k} if words != others else set()
            failed |= {k} if not holds or template != other else set()
        spoken.clear()
    assert moved == set(range(len(first))), "a sentence that no number of the table changes"
    assert failed == set(range(len(first))), "a sentence whose relation no table breaks"


@pytest.mark.parametrize("typed", ["B200 is {gain:.1f} times as fast", "it takes half of {step:.1f} s"])
def test_numbers_are_not_typed_into_sentences(typed: str) -> None:
    study = import_module("study")
    with pytest.raises(study.ClaimError, match="is typed into"):
        study.say(typed, True, gain=2.0, step=1.0)


def test_sentences_that_do_not_hold_are_refused() -> None:
    study = import_module("study")
    with pytest.raises(study.ClaimError, match="does not support"):
        study.say("{a} is faster than {b}", 1.0 > 2.0, a="new", b="old")


def test_pictures_fit_a_column(pictured: str) -> None:
    """3.3 inches, text of 7 points or more, nothing outside or over other text."""
    study, picture, script = (import_module(name) for name in ("study", "picture", pictured))
    svg = (EXAMPLES / "pictures" / f"{pictured}.svg").read_text(encoding="utf-8")
    width, height = (float(length) for length in re.findall(r'(?:width|height)="([0-9.]+)pt"', svg)[:2])
    panels = svg.count('<g id="axes_')
    assert width == pytest.approx(72 * picture.WIDTH_IN)
    figure, axes = picture.column_figure(pictured, panels, height / 72 / panels)
    table = (EXAMPLES / "tables" / f"{pictured}.csv").read_text(encoding="utf-8")
    script.draw(axes, study.read_table(table))
    assert list(picture.faults(figure)) == []


def test_the_page_of_conclusions_is_that_of_the_tables() -> None:
    conclusions = import_module("conclusions")
    assert (EXAMPLES / "conclusions.md").read_text(encoding="utf-8") == conclusions.text()
    assert {path.stem for path in (EXAMPLES / "tables").glob("*.csv")} <= set(conclusions.concluding())
