"""A number alone and the same number in a column have one power, to the last bit."""

import ast
from collections.abc import Iterator
from pathlib import Path

PRICES = ("backends", "cost")


def test_powers_of_arrays_are_numpys(root: Path) -> None:
    """`x ** y` of a lone number is Python's or C's power, of a column another library's: `np.power` is one for both.

    Whole powers that are written out are products.
    """
    paths = [path for floor in PRICES for path in (root / floor).rglob("*.py")]
    assert len(paths) > 100
    found = [f"{path.relative_to(root)}:{line}" for path in paths for line in _powers(path)]
    assert not found, f"write np.power(x, y): {', '.join(found)}"


def _powers(path: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not isinstance(node.left, ast.Constant):
            power = node.right
            if not (isinstance(power, ast.Constant) and isinstance(power.value, int)):
                yield node.lineno
