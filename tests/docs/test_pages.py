"""Every command and every Python block in the pages does what the page says it does."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *(f"docs/{p.name}" for p in sorted(ROOT.glob("docs/*.md")))]

pytest.importorskip("transformers", reason="the pages record models; install slipstick[hf]")


class Shell(Protocol):
    folder: Path

    def refreshed(self, text: str) -> str: ...


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_true(page: str, shell: Shell, request: pytest.FixtureRequest) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    now = shell.refreshed(text)
    assert "error: internal" not in now
    assert "Traceback (most recent call last)" not in now
    if request.config.getoption("--update-docs", default=False):
        (ROOT / page).write_text(now, encoding="utf-8")
        return
    assert now == text


def test_the_runner_would_notice_an_old_output(shell: Shell) -> None:
    page = "```console\n$ echo new\nold\n```"
    assert shell.refreshed(page) == "```console\n$ echo new\nnew\n```"


def test_the_runner_runs_python_and_keeps_what_it_printed(shell: Shell) -> None:
    page = "```text file=a.txt\nhello\n```\n```python\nprint(open('a.txt').read().upper())\n```\n```text printed\n```"
    assert shell.refreshed(page).endswith("```text printed\nHELLO\n\n```")


def test_the_cells_of_a_notebook_share_what_they_define(shell: Shell) -> None:
    cells = (
        "```python\na = 1\nprint('one')\n```\n```text printed\n```\n```python\nprint(a + 1)\n```\n```text printed\n```"
    )
    lines = shell.refreshed(f"---\njupytext:\n---\n{cells}").splitlines()
    assert (lines[8], lines[-2]) == ("one", "2")


def test_the_readme_opens_with_the_two_commands() -> None:
    commands = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line[:7] == "$ make "]
    assert commands == ["$ make demo", "$ make test"]
