"""Frozen answers: questions move every word of a plan, the same question has the same answer, changes are told."""

from __future__ import annotations

from pathlib import Path

from slipstick.benchmarks.frozen.answers import answered, changes, read, write
from slipstick.benchmarks.frozen.cases import UNMOVED, commands, names
from slipstick.cli.flags.command import shared_flags


def test_questions_move_every_word_of_a_plan() -> None:
    words = {word for line in commands() for word in line.replace("=", " ").split()}
    flags = [flag for name in ("Workload", "Plan") for flag in shared_flags()[name] if flag.name not in UNMOVED]
    assert [flag.name for flag in flags if not words & {*flag.opts, *flag.secondary_opts}] == []


def test_questions_are_of_all_models_and_systems_and_each_is_asked_once() -> None:
    lines = list(commands())
    assert len(lines) == len(set(lines)) > 300
    asked = {word for line in lines for word in line.split()}
    assert {*names("models"), *names("systems")} <= asked


def test_an_answer_is_the_same_again_and_is_kept(tmp_path: Path) -> None:
    line = "cost dgx-h100 --format json"
    found = {line: answered(line), "cost nowhere": answered("cost nowhere")}
    write(found, tmp_path)
    assert read(tmp_path) == {line: answered(line), "cost nowhere": answered("cost nowhere")}
    assert found["cost nowhere"].startswith("exit code 2\nerror: ")


def test_a_change_shows_the_lines_that_differ() -> None:
    (told,) = changes({"q": "exit code 0\na\nb"}, {"q": "exit code 0\na\nc"})
    assert told == "changed: q\n  -b\n  +c"
    (long,) = changes({"q": ""}, {"q": "\n".join(map(str, range(40)))})
    assert long.endswith("... 28 lines more")
