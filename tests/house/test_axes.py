"""Mesh axes are named by `ir/placement.py`: no text of a group of axes is taken apart, no axis is written out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from slipstick.ir.placement import AXES

HOME = "ir/placement.py"
_APART = re.compile(r"""(axis|axes|group|own)\b[^\n]{0,20}\.r?(split|partition)\(["'][+/]["']""")
_QUOTED = re.compile(f"[\"'](?:{'|'.join(AXES)})[\"']")
# Rooms that see graphs; in these files the letters are words of a plan, as flags and files of machines have them.
ROOMS = ("passes", "backends", "cost", "ir/graph.py", "ir/ops", "ir/text", "measured", "validation/fit")
WORDS = {
    "backends/machine/software/usual.py",
    "cost/cautions.py",
    "cost/serving/simulate/autoscale.py",
    "ir/ops/fused/experts.py",
}


def test_no_group_of_axes_is_taken_apart(floors: tuple[Path, ...], root: Path) -> None:
    texts = {str(p.relative_to(root)): p.read_text("utf-8") for floor in floors for p in floor.rglob("*.py")}
    assert HOME in texts
    assert sorted(name for name, text in texts.items() if name != HOME and _APART.search(text)) == []


def test_no_axis_is_written_out(root: Path) -> None:
    found = {str(path.relative_to(root)) for path in _files(root) if any(_axes_in(path))}
    assert sorted(found - WORDS) == []
    assert found >= WORDS, "a file without words that look like axes needs no exception"


def _files(root: Path) -> Iterator[Path]:
    for room in ROOMS:
        yield from [root / room] if room.endswith(".py") else (root / room).rglob("*.py")


def _axes_in(path: Path) -> Iterator[str]:
    """Every text of a module that is the name of an axis; few modules have one, and are looked at closely."""
    if not _QUOTED.search(path.read_text("utf-8")):
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and node.value in AXES:
            yield node.value
