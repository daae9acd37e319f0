"""A schedule is known by its file alone: nothing outside asks which one it is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from slipstick.ir.schedules.registry import SCHEDULES

ROOM = Path("ir/schedules")


def test_no_text_outside_the_room_names_a_schedule(root: Path, floors: tuple[Path, ...]) -> None:
    files = [path for floor in floors for path in floor.rglob("*.py") if ROOM not in path.relative_to(root).parents]
    assert [f"{path.relative_to(root)}:{line}" for path in files for line in _named(path.read_text("utf-8"))] == []


def test_the_reader_sees_names_in_code_and_not_in_documents() -> None:
    text = '"""Of 1f1b."""\ndef f(s):\n    """1f1b."""\n    return s in ("x", "zb-v") or f"as {s}, 1f1b"\n'
    assert list(_named(text)) == [4, 4]
    assert list(_named('a = "zb-v2", "pre-zb-v"')) == []


def _named(text: str) -> Iterator[int]:
    """Lines of literals, other than docstrings, in which the name of a schedule is a word."""
    names = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, SCHEDULES))})(?![\w-])")
    tree = ast.parse(text)
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    first = (node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and node.body)
    documents = {id(one.value) for one in first if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield from (node.lineno for _ in names.finditer(node.value))
