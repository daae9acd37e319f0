"""Processes are started by one module, which keeps them from the modules of the current folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

STARTER = "ir/host/children.py"
# What they offer without starting anything.
HARMLESS = {
    "multiprocessing.parent_process",
    "multiprocessing.connection.Connection",
    "multiprocessing.connection.wait",
}
# A page of our own server, in a browser that runs no module of the folder.
ALLOWED = {"cli/ui/ui.py": {"webbrowser"}}
STARTS = re.compile(
    r"(subprocess|multiprocessing|torch\.multiprocessing|joblib|pty|webbrowser|runpy|concurrent\.futures\.process"
    r"|concurrent\.futures\.ProcessPoolExecutor"
    r"|asyncio\.create_subprocess_\w+|os\.(fork\w*|spawn\w+|posix_spawn\w*|exec[lv]\w*|system|popen|startfile))(\..*)?"
)


def names(tree: ast.AST) -> Iterator[str]:
    """Every name of another module in a file: imported, or reached through one that is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def starts(code: str) -> set[str]:
    """Names in a file that start processes."""
    return {name for name in names(ast.parse(code)) if STARTS.fullmatch(name) and name not in HARMLESS}


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess",
        "from subprocess import run",
        "import multiprocessing.pool",
        "from multiprocessing import get_context",
        "from concurrent.futures import ProcessPoolExecutor",
        "import concurrent.futures\nconcurrent.futures.ProcessPoolExecutor(2)",
        "import os\nos.fork()",
        "import os\nos.execvp('ls', ['ls'])",
        "from os import posix_spawn",
        "import torch\ntorch.multiprocessing.spawn(print)",
        "import asyncio\nasyncio.create_subprocess_exec('ls')",
    ],
)
def test_a_start_is_seen(code: str) -> None:
    assert starts(code)


def test_one_module_starts_processes(root: Path, floors: tuple[Path, ...]) -> None:
    files = [*root.glob("*.py"), *(file for floor in floors for file in floor.rglob("*.py"))]
    places = {file.relative_to(root).as_posix(): starts(file.read_text(encoding="utf-8")) for file in files}
    assert places.pop(STARTER)
    for place, found in places.items():
        assert {name for name in found if name.partition(".")[0] not in ALLOWED.get(place, ())} == set(), place
