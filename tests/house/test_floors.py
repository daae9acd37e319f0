"""Imports go downward only, and between floors they are relative."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest


def test_imports_go_downward_only(root: Path) -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_documents_list_the_floors_that_the_linter_keeps(root: Path) -> None:
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    floors = [floor for layer in layers for floor in layer.split(" | ")]
    said = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("**Layers.**")[2].partition(" A module ")[0]
    assert re.findall(r"`(\w+)`", said) == floors
    drawn = (root / "docs/architecture.md").read_text(encoding="utf-8").split("```text\n")[2].split("```")[0]
    assert [name for name in re.findall(r"(\w+)/", drawn) if name in floors] == floors


def test_floors_import_each_other_relatively(root: Path, floors: tuple[Path, ...]) -> None:
    ours = {"slipstick", *(floor.name for floor in floors)}
    shipped = [
        root / "__main__.py",
        *(p for floor in floors for p in floor.rglob("*.py")),
    ]
    wrong = [
        f"{path.relative_to(root)}:{line}: {name}"
        for path in shipped
        for line, name in _absolute_imports(path)
        if name.split(".")[0] in ours
    ]
    assert wrong == []


def test_the_root_imports_itself_absolutely(root: Path) -> None:
    # pytest imports this file again under the folder's name; relative imports would load a second package.
    tree = ast.parse((root / "__init__.py").read_text())
    assert all(node.level == 0 for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import cost.money, os", [(1, "cost.money"), (1, "os")]),
        ("def f():\n    from slipstick.ir import graph", [(2, "slipstick.ir")]),
        ("from ..ir import graph", []),
    ],
)
def test_the_reader_of_imports_sees(tmp_path: Path, text: str, expected: list[tuple[int, str]]) -> None:
    path = tmp_path / "sample.py"
    path.write_text(text)
    assert list(_absolute_imports(path)) == expected


def _absolute_imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
