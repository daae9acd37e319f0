"""Studies, each run once as a user runs it: a script that prints a table and writes it beside a picture."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

from slipstick.tests.warm import Warm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Row: TypeAlias = Mapping[str, str]
Study: TypeAlias = Callable[[str], Sequence[Row]]


def by(rows: Sequence[Row], *names: str) -> dict[tuple[str, ...], Row]:
    """Return rows by what stands in some of their columns."""
    return {tuple(row[name] for name in names): row for row in rows}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for a `script` every one there is, a `concluding` or a `pictured` one."""
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("ex[0-9]*.py"))}
    if "script" in metafunc.fixturenames:
        metafunc.parametrize("script", list(scripts))
    if "concluding" in metafunc.fixturenames:
        metafunc.parametrize("concluding", [name for name, text in scripts.items() if "def conclude(" in text])
    if "pictured" in metafunc.fixturenames:
        drawn, tables = ({path.stem for path in (EXAMPLES / name).iterdir()} for name in ("pictures", "tables"))
        metafunc.parametrize("pictured", [name for name in scripts if name in drawn & tables])


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Callable[[str], Path]:
    """Run a study on its reduced grid, warnings as errors; the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("studies")

    def run(script: str) -> Path:
        words = ["-W", "error", str(EXAMPLES / f"{script}.py"), "--output", str(folder)]
        done = warm.run("python", words, folder, os.environ, apart=True)
        assert done.returncode == 0, done.stderr
        return folder

    return cache(run)


@pytest.fixture(scope="session")
def study(written: Callable[[str], Path]) -> Study:
    """Return the rows of a study's table."""

    def rows(script: str) -> Sequence[Row]:
        text = (written(script) / f"{script}.csv").read_text(encoding="utf-8")
        return list(csv.DictReader(text.splitlines()))

    return rows
