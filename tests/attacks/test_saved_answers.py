"""Answers that were saved and changed by hand: each leaf, by each odd value, ends in an answer or in words."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from slipstick.cli import run
from slipstick.ir.errors import NotUnderstoodError
from slipstick.ir.text.admission import refuse_incoming
from slipstick.report.compare.saved import REPORT, estimate_of
from slipstick.report.results.documents import SavedResult

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | float | bool | None"
Place: TypeAlias = tuple[str | int, ...]
NOT_UNDERSTOOD = 4
DATA = Path(__file__).parents[1] / "data" / "configs"
ODD: tuple[Tree, ...] = (None, 0, -1.5, 1e308, cast(float, 10**40), "x", [], [None], {"a": 1})
ON = ("--system", "dgx-h100", "--gpus", "4", "-q")
MADE = {
    "step": ("estimate", "tiny-llama.json", *ON, "--tp", "2", "--pp", "2", "--seq", "128", "--gbs", "16"),
    "serve": (
        "estimate", "tiny-llama.json", *ON, "--phase", "serve", "--tp", "4", "--isl", "64", "--osl", "16",
        "--concurrency", "8",
    ),
    "cost": ("cost", "dgx-h100", "-q"),
    "search": ("search", "tiny-llama.json", *ON, "--seq", "128", "--gbs", "16", "--no-ledger", "--jobs", "1"),
}  # fmt: skip


def places(tree: Tree, above: Place = ()) -> Iterator[Place]:
    """Yield the place of each value, of a list those of its first two."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree[:2]) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield (*above, key)
        yield from places(value, (*above, key))


def changed(tree: dict[str, Tree], place: Place, value: Tree) -> dict[str, Tree]:
    """Return the tree with another value at a place."""
    found = copy.deepcopy(tree)
    above: Tree = found
    for key in place[:-1]:
        above = above[key]  # type: ignore[index]
    above[place[-1]] = value  # type: ignore[index]
    return found


@pytest.mark.parametrize("name", MADE)
def test_each_leaf_of_a_saved_answer_may_be_anything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`report` makes its page, `compare` its tables; or the file is refused with exit code 4."""
    monkeypatch.chdir(tmp_path)
    words = [str(DATA / word) if word.endswith(".json") else word for word in MADE[name]]
    assert run([*words, "-o", "base.json"]) == 0
    base = cast("dict[str, Tree]", json.loads(Path("base.json").read_text(encoding="utf-8")))
    if isinstance(nodes := base.get("nodes"), dict) and isinstance(rows := nodes["rows"], list):
        nodes["rows"] = rows[:3]
    Path("base.json").write_text(json.dumps(base), encoding="utf-8")
    cases = 0
    alike = {tuple("*" if isinstance(key, int) else key for key in place): place for place in places(base)}
    for number, place in enumerate(alike.values()):
        # Each odd value at every place is tried by `benchmarks.fuzz report`; here each place has two of them.
        for turn in (0, 4):
            tree = changed(base, place, ODD[(number + turn) % len(ODD)])
            cases += 1
            try:
                with refuse_incoming("x.json", "page"):
                    made = SavedResult(documents={"x.json": tree})
                    page = made.page()
                    assert page.summary
                    assert made.rows()
                    if tree.get("schema") == REPORT:
                        estimate_of(tree, "x.json")
            except NotUnderstoodError:
                continue
        if number % 60 == 0:
            Path("x.json").write_text(json.dumps(tree), encoding="utf-8")
            for verb in ("report x.json -o x.md", "compare x.json base.json", "compare base.json x.json --format json"):
                code = run(verb.split())
                assert code in (0, NOT_UNDERSTOOD), f"{place}: {verb}: {capsys.readouterr().err}"
                if tree.get("schema") != REPORT:
                    break
    assert cases > 100
