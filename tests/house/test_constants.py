"""A number that kernels and costs are worked out with says where it comes from, or why it is what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = ("backends/kernels", "cost")


def is_number(value: ast.expr) -> bool:
    """Whether a value is made of numbers alone, none of them computed from another constant."""
    parts = list(ast.walk(value))
    numbers = [p for p in parts if isinstance(p, ast.Constant) and type(p.value) in (int, float)]
    return bool(numbers) and not any(isinstance(p, ast.Call | ast.Name | ast.Dict) for p in parts)


def silent(text: str) -> Iterator[str]:
    """Constants of a module without a comment: on their lines, or above the run of constants that they stand in."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or not is_number(node.value):
            continue
        above = node.lineno - 2
        while above >= 0 and lines[above].lstrip("_")[:1].isupper() and "=" in lines[above]:
            above -= 1
        own = lines[node.lineno - 1 : node.end_lineno]
        if not any("#" in line for line in [*own, lines[above]]):
            yield ast.unparse(target) if target is not None else ""


@pytest.mark.parametrize("room", ROOMS)
def test_a_constant_has_its_source_or_its_reason(room: str, root: Path) -> None:
    found = {f"{p.relative_to(root)}: {name}" for p in (root / room).rglob("*.py") for name in silent(p.read_text())}
    assert not found, "say where they come from in a comment: " + ", ".join(sorted(found))


def test_a_silent_constant_is_found() -> None:
    text = "# Of a table.\nA = 3.0\nB = (1, 2)\n\nC = 4  # why\nD = A\n\n_E = 7\n"
    assert list(silent(text)) == ["_E"]
