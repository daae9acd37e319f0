"""Mutation runs: which small faults there are, what a mutated source does, and which tests are asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.benchmarks.mutants.changes import Mutant, mutants_of, mutated
from slipstick.benchmarks.mutants.judge import Verdict
from slipstick.benchmarks.mutants.page import Judged, page, read, written
from slipstick.benchmarks.mutants.probes import Probes
from slipstick.benchmarks.mutants.selection import Seen, chosen


def mutants(tmp_path: Path, body: str) -> list[Mutant]:
    (tmp_path / "room").mkdir(exist_ok=True)
    (tmp_path / "room" / "file.py").write_text(f"def f(a, b, c):\n    {body}\n", encoding="utf-8")
    return mutants_of(tmp_path, ("room",))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("x = a + b", {"a + b -> a - b", "a + b -> a", "a + b -> b"}),
        ("x = a / b", {"a / b -> a * b", "a / b -> a"}),
        ("x = a < b", {"a < b -> a <= b"}),
        ("x = 3", {"3 -> 4", "3 -> 2"}),
        ("x = a and b", {"a and b -> a or b", "a and b -> b", "a and b -> a"}),
        ("x = not a", {"not a -> a"}),
        ("x = min(a, b)", {"min -> max", "min(a, b) -> min(a)"}),
        ("x = a if b else c", {"a if b else c -> a if True else c", "a if b else c -> a if False else c"}),
        ("return a", {"return a -> return None"}),
        ("a += b", {"a += b -> pass"}),
        ("x = [i for i in a if i]", {"for i in a if i -> for i in a"}),
        ("x = f'{a + b}' 'text'", set()),
        ("assert a > b", set()),
        ("raise ValueError(a + b)", {"raise ValueError(a + b) -> pass"}),
    ],
)
def test_each_construct_has_its_faults(tmp_path: Path, body: str, wanted: set[str]) -> None:
    assert {m.what.strip() for m in mutants(tmp_path, body)} == wanted


def test_a_mutated_source_does_what_the_mutant_says(tmp_path: Path) -> None:
    source = "def f(a, b, c):\n    return max(a + b, c)\n"
    found = {}
    for mutant in mutants(tmp_path, "return max(a + b, c)"):
        names: dict[str, object] = {}
        exec(compile(mutated(source, mutant), "file.py", "exec"), names)
        f = names["f"]
        assert callable(f)
        if "max(a + b)" not in mutant.what:
            found[mutant.what] = f(5, 2, 6)
    # max(5 + 2, 6) is 7; with 5 - 2 and with 2 alone 6 is the greater.
    assert found.pop("return max(a + b, c) -> return None") is None
    assert found == {"max -> min": 6, "a + b -> a - b": 6, "a + b -> a": 6, "a + b -> b": 6}


def test_probes_tell_which_statements_ran(tmp_path: Path) -> None:
    mutants(tmp_path, "if a:\n        return b\n    return c")
    file = tmp_path / "room" / "file.py"
    probes = Probes(tmp_path, ("room",))
    names: dict[str, object] = {"__probe__": probes.run.add}
    exec(compile(probes.probed(str(file), file.read_text("utf-8")), str(file), "exec"), names)
    f = names["f"]
    assert callable(f)
    assert f(False, 1, 2) == 2
    ran = probes.taken()
    assert [line for (_, line), k in probes.number.items() if ran >> k & 1] == [2, 4]
    assert probes.taken() == 0


def test_tests_that_run_a_statement_are_asked_cheap_ones_first_as_far_as_time_goes() -> None:
    tests = {"slow": Seen(2.0, 0b11), "quick": Seen(0.5, 0b10), "other": Seen(0.1, 0b01), "dear": Seen(9.0, 0b10)}
    assert chosen(tests, [1], 5.0) == ["quick", "slow"]


def test_the_page_counts_equivalent_mutants_apart(tmp_path: Path) -> None:
    three = mutants(tmp_path, "x = a + b")
    verdicts = (Verdict.KILLED, Verdict.SURVIVED, Verdict.UNSEEN)
    for mutant, verdict in zip(three, verdicts, strict=True):
        written(tmp_path / "log", Judged(mutant.key, verdict, 1))
    found = read(tmp_path / "log")
    text = page([(m, found[m.key]) for m in three], 7, {three[2].key: "b is always 0"})
    assert "| all | 3 | 1 (33%) | 1 (33%) | 1 (33%) |" in text
    assert text.endswith(f"`{three[2].what}`: b is always 0\n")
