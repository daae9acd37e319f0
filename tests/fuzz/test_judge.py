"""The judge sees what it looks for: failures, time, numbers that are none; and says how far a file got."""

from __future__ import annotations

import random
import time
from pathlib import Path

import click
import pytest

from slipstick.benchmarks.fuzz import judge
from slipstick.benchmarks.fuzz.judge import Depth, judged
from slipstick.benchmarks.fuzz.mutate import Tree, bred, changed, flipped, keys_of, retabled, rough, swapped
from slipstick.cli import root
from slipstick.ir.errors import InternalError, NotUnderstoodError
from slipstick.ir.text.stages import stage


def test_what_is_answered_and_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for text, code, depth in (("a: [", 4, Depth.DOOR), ("name: x", 2, Depth.BEHIND), ("a: 1\na: 2", 4, Depth.DOOR)):
        path.write_text(text, encoding="utf-8")
        found = judged(["cost", str(path)])
        assert (found.code, found.depth, found.fault) == (code, depth, "")
        assert found.told
    found = judged(["cost", "dgx-h100", "--format", "json"])
    assert (found.code, found.depth) == (0, Depth.DEEP)
    assert judged(["cost", "--nonsense"]).code == 2


@pytest.mark.parametrize(
    ("raised", "told"), [(KeyError("x"), "KeyError at"), (InternalError("ours"), "InternalError at")]
)
def test_a_failure_is_a_fault(raised: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **words: object) -> int:
        raise raised

    monkeypatch.setattr(root, "invoke", fail)
    assert judged(["list", "ops"]).fault.startswith(told)


@pytest.mark.parametrize("left", [SystemExit(2), SystemExit(0), click.exceptions.Exit(1), click.exceptions.Exit(130)])
def test_an_end_that_is_no_documented_one_is_a_fault(left: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*args: object, **words: object) -> int:
        raise left

    monkeypatch.setattr(root, "invoke", leave)
    assert judged(["list", "ops"]).fault


@pytest.mark.parametrize(("doing", "depth"), [("lower x", Depth.DEEP), ("read x", Depth.BEHIND)])
def test_a_refusal_is_deep_once_a_graph_is_lowered(doing: str, depth: Depth, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **words: object) -> int:
        with stage(doing):
            pass
        raise NotUnderstoodError("no")

    monkeypatch.setattr(root, "invoke", refuse)
    found = judged(["list", "ops"])
    assert (found.depth, found.fault) == (depth, "")


def test_what_takes_too_long_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(*args: object, **words: object) -> int:
        end = time.process_time() + 5
        while time.process_time() < end:
            pass
        return 0

    monkeypatch.setattr(judge, "MOST_S", 0.05)
    monkeypatch.setattr(root, "invoke", spin)
    assert "_OverTimeError" in judged(["list", "ops"]).fault


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": [1e999]}', '{"a": -Infinity}', '{"a": '])
def test_a_document_with_numbers_that_are_none_is_a_fault(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def say(*args: object, **words: object) -> int:
        print(text)
        return 0

    monkeypatch.setattr(root, "invoke", say)
    assert judged(["list", "ops"]).fault.startswith("JSON: ")


def test_a_seed_is_the_same_change_each_time_and_most_seeds_change_something() -> None:
    tree: Tree = {"a": [1, 2, {"b": "x"}], "c": 1.5}
    text = "  %1 = matmul(%0, %2) : bf16[batch, 64]\n"
    assert list(keys_of({"a": [1, {"b": 2}]})) == [("a",), ("a", 0), ("a", 1), ("a", 1, "b")]
    for make, seed in (
        (lambda rng: changed(rng, tree), tree),
        (lambda rng: bred(rng, tree, [tree, {"a": [5], "c": 2.5}]), tree),
        (lambda rng: rough(rng, text), text),
        (lambda rng: retabled(rng, "a,b\n1,2\n"), "a,b\n1,2\n"),
        (lambda rng: swapped(rng, text), text),
        (lambda rng: flipped(rng, b"data"), b"data"),
    ):
        first, again = ([make(random.Random(n)) for n in range(30)] for _ in range(2))
        assert repr(first) == repr(again)
        assert sum(one != seed for one in first) >= 10
    assert tree == {"a": [1, 2, {"b": "x"}], "c": 1.5}
