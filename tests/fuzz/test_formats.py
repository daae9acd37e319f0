"""Hostile files of every format: each is answered or refused with words, and enough of them are priced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from slipstick.benchmarks.fuzz.formats import FORMATS, tried
from slipstick.benchmarks.fuzz.judge import ANSWERED, Depth, judged
from slipstick.benchmarks.fuzz.mutate import Still

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
# Files of each format in the suite; `make fuzz` tries as many as it is told to.
COUNT = 24
# Seeds that found a fault once, or something near to one.
FOUND = {
    "graph": (5000, 5013, 5119, 5148, 5204, 5246, 5289, 5393, 5557, 5590, 5886, 5983),
    "requests": (43, 5025),
    "ledger": (2, 5001),
    "defaults": (20024,),
}


def counted(name: str, seeds: range | tuple[int, ...]) -> Counter[str]:
    """Try files by their seeds, and count refused and deep ones; a fault fails with its traceback."""
    counts = Counter[str]()
    for seed in seeds:
        command, outcome = tried(name, Random(seed))
        assert not outcome.fault, f"seed {seed}: slipstick {' '.join(command)}: {outcome.fault}\n{outcome.told}"
        counts.update(tried=1, refused=outcome.code not in ANSWERED, deep=outcome.depth is Depth.DEEP)
    return counts


@pytest.mark.parametrize("name", FORMATS)
def test_no_hostile_file_of_a_format_is_a_fault(name: str, prepared: Path) -> None:
    found = counted(name, range(COUNT)) + counted(name, FOUND.get(name, ()))
    assert found["refused"] >= 0.1 * found["tried"], "hardly any file is hostile"
    # Of every format a third or more are deep at length (docs/robustness.md): of two dozen, a fifth.
    assert found["deep"] >= 0.2 * found["tried"], "most files get no further than a refusal"


@pytest.mark.parametrize("name", sorted({*FORMATS} - {"words"}))
def test_every_seed_of_a_format_is_answered(name: str, prepared: Path) -> None:
    turn, most = 0, 1
    while turn < most:
        still = Still(turn)
        command, found = tried(name, still)
        assert (found.code, found.fault) == (0, ""), f"slipstick {' '.join(command)}: {found.told}"
        turn, most = turn + 1, max(most, still.most)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.deep) for first in (1, 2, 3))])
def test_no_mutant_of_a_graph_is_a_fault_of_ours(first: int, prepared: Path) -> None:
    # Every fourth of 1,400 seeds; `make fuzz` tries more.
    found = counted("graph", range(1000 + 4 * first, 2400, 16))
    assert found["tried"] == 88 - (first > 1)
    assert found["deep"] >= 0.25 * found["tried"]


def test_code_runs_only_where_it_is_typed(prepared: Path) -> None:
    # Typed, it runs, and the judge sees that; a plan that names the same is refused.
    assert judged(["estimate", "evil.py:make", "--system", "dgx-h100"]).fault == "code ran that nobody typed"
    Path("x.json").write_text('{"schema": "slipstick/plan/1", "model": "evil.py:make", "system": "dgx-h100"}')
    found = judged(["estimate", "--plan", "x.json"])
    assert (found.code, found.fault) == (4, "")
