"""The public names are the ones we mean, and each says what it is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import slipstick


def test_the_list_is_sorted() -> None:
    assert slipstick.__all__ == sorted(slipstick.__all__)


def test_the_three_lists_agree(root: Path) -> None:
    tree = ast.parse((root / "__init__.py").read_text(encoding="utf-8"))
    for_checkers = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert for_checkers == slipstick._MODULE_OF
    assert set(slipstick.__all__) == set(slipstick._MODULE_OF)


@pytest.mark.parametrize("name", slipstick.__all__)
def test_a_public_name_resolves_and_is_documented(name: str) -> None:
    doc = getattr(slipstick, name).__doc__
    assert doc
    # What a dataclass without a docstring of its own gets is its signature.
    assert not doc.startswith(f"{name}(")


def test_public_names_are_listed_before_they_are_loaded() -> None:
    assert set(slipstick.__all__) <= set(dir(slipstick))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        _ = slipstick.estimat  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "first",
    ["", "import slipstick.cost.flops", "slipstick.cost", "slipstick.cost('dgx-h100')", "slipstick.estimate"],
)
def test_a_folder_and_a_function_may_have_one_name(first: str) -> None:
    code = (
        f"import slipstick; {first}\nimport slipstick.cost.flops as flops; from slipstick.cost import money\n"
        "assert flops.Convention and money.Terms and slipstick.cost('dgx-h100').money"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
