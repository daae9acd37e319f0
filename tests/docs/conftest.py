"""Pages as programs: every console, Python and file block is run again, and what it printed is compared.

`pytest tests/docs --update-docs` writes the pages anew; read the difference before it is kept.

- `console` blocks: lines that begin with `$ ` run in a shell; what they print follows them.
- `python` blocks run as scripts; a `text printed` block behind one holds what it printed.
- `LANGUAGE file=NAME` blocks become files; a page's blocks run in order in one folder.
- A page that begins as a notebook of jupytext is one: its `python` blocks are cells, which share what they define.

`slipstick` and `python` are forks of one process that has imported everything (`tests/warm.py`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slipstick.tests.warm import Warm

ROOT = Path(__file__).resolve().parents[2]
_NOTEBOOK = "---\njupytext:\n"
_CELLS = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
# Runs cells one after another, and prints what each printed.
_KERNEL = """
import io, json, sys
from contextlib import redirect_stdout
names, printed = {"__name__": "__main__"}, []
for cell in json.load(sys.stdin):
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(cell, "cell", "exec"), names)
    printed.append(out.getvalue().splitlines())
print(json.dumps(printed))
"""
_FENCE = re.compile(r"```(\w+)(?: (.+))?")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-docs", action="store_true", help="write what the commands in the pages print now")


@dataclass
class Shell:
    """A folder to run in, the environment, what runs Python, and what the last Python block printed."""

    folder: Path
    environment: dict[str, str]
    warm: Warm
    printed: list[str] = field(default_factory=list)
    cells: Iterator[list[str]] | None = None

    def refreshed(self, text: str) -> str:
        """Return a page as it is with everything in it run again."""
        self.cells = self._executed(_CELLS.findall(text)) if text.startswith(_NOTEBOOK) else None
        return "\n".join(self._lines(iter(text.split("\n"))))

    def _executed(self, cells: list[str]) -> Iterator[list[str]]:
        """Run the cells of a notebook in one process."""
        done = self.warm.run(
            "python", ["-c", _KERNEL], self.folder, self.environment, apart=True, given=json.dumps(cells)
        )
        assert done.returncode == 0, done.stderr
        return iter(json.loads(done.stdout))

    def _lines(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            yield line
            if match := _FENCE.fullmatch(line):
                body = list(iter(lambda: next(lines), "```"))
                yield from self._block(match.group(1), match.group(2) or "", body)
                yield "```"

    def _block(self, language: str, option: str, body: list[str]) -> list[str]:
        if option.startswith("file="):
            (self.folder / option.removeprefix("file=")).write_text("\n".join(body) + "\n", encoding="utf-8")
        elif language == "console":
            return [line for given in body if given.startswith("$ ") for line in (given, *self._console(given[2:]))]
        elif (language, option) == ("text", "printed"):
            return self.printed
        elif (language, option) == ("python", ""):
            self.printed = self._run(["python", "-c", "\n".join(body)]) if self.cells is None else next(self.cells)
        return body

    def _console(self, command: str) -> list[str]:
        """Run one line. A make target stands for its recipe: the environment that it would build is there."""
        if command.startswith("make "):
            recipe = _recipe(command.removeprefix("make "))
            return [recipe, *self._console(recipe.replace(".venv/bin/", ""))]
        return self._run(["bash", "-c", command])

    def _run(self, command: list[str]) -> list[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", check=False,
        )  # fmt: skip
        # Progress is shown only where a model is recorded for the first time, and the number of processes is ours.
        return [line for line in done.stdout.splitlines() if not line.startswith(("recording ", "defaults: --jobs 1 "))]


def _recipe(target: str) -> str:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(f"{target}:"))
    return lines[start + 1].strip().replace("$(BIN)", ".venv/bin")


@pytest.fixture
def shell(tmp_path: Path, graph_folder: Path, warm: Warm) -> Shell:
    path = os.pathsep.join([str(warm.programs), os.environ.get("PATH", "")])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLIPSTICK", "COLUMNS", "PYTEST"))}
    # Pages name files of the checkout as they are seen from its root.
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    # Searches of a page are its own, else the numbers of runs would hang on which pages ran before.
    folders = {"SLIPSTICK_CACHE": str(graph_folder), "SLIPSTICK_RUNS": str(tmp_path / ".runs")}
    # Other tests keep the other cores busy, and a spawned process would import everything again.
    return Shell(tmp_path, {**kept, "PATH": path, **folders, "SLIPSTICK_VALIDATE_JOBS": "1"}, warm)
