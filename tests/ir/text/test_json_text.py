"""Documents have no number that JSON has none for; and every document is written by this writer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from slipstick.ir.errors import UsageError
from slipstick.ir.text.json_text import json_text

# Texts in quotes, nothing else; and events by the hundred thousand, of an estimate whose numbers are finite.
ROOT = Path(__file__).parents[3]
OWN = {
    "report/compare/saved.py", "report/trace/nodes.py", "report/trace/chrome/stage_events.py",
    "report/trace/chrome/serving.py", "report/trace/chrome/writer.py", "report/trace/chrome/events.py",
    "report/trace/chrome/emit.py", "validation/measure/step.py",
}  # fmt: skip


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_named_with_its_place(number: float) -> None:
    with pytest.raises(UsageError, match=rf"^a\.1\.b is {number:g}, which JSON has no number for"):
        json_text({"a": [1, {"b": number}]}, indent=1)
    with pytest.raises(UsageError, match="a number is"):
        json_text(number)


def test_what_is_no_json_for_another_reason_stays_our_fault() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises((ValueError, RecursionError)) as error:
        json_text(loop)
    assert not isinstance(error.value, UsageError)


def test_all_documents_are_written_by_one_writer() -> None:
    found = set()
    for floor in ("report", "cli", "validation"):
        for path in (ROOT / floor).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.dumps", "json.dump"):
                    found.add(str(path.relative_to(ROOT)))
    assert found == OWN
