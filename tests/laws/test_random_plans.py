"""Laws of answers on random plans of the whole catalogue, and that a broken one is told: see `benchmarks/laws`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.machine.load import system_names
from slipstick.benchmarks.laws.__main__ import NO_LAWS, joined, kept, main, page, reason
from slipstick.benchmarks.laws.laws import BALANCED, Outcome
from slipstick.benchmarks.laws.run import Court, Tally
from slipstick.ir.plan import Family, PlanTable, make_plan

# Dense, with experts, with latent attention: small enough to be lowered often.
MODELS = ("gpt2", "llama-3.1-8b", "mixtral-8x7b", "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v3")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2))])
def test_no_law_is_broken(seed: int) -> None:
    court = Court(MODELS, system_names(), random.Random(1000 + seed))
    court.run(num_plans=2000, seconds=12.0)
    assert court.plans > 100
    broken = {law: (t.violations, t.worst, t.where) for law, t in court.tallies.items() if t.violations}
    assert {law: told for law, told in broken.items() if reason(law) is None} == {}


def test_a_broken_law_is_counted_with_its_worst_plan() -> None:
    plans = PlanTable.of([make_plan(num_gpus=n, seq_len=64, family=Family()) for n in (1, 2, 4)])
    tally = Tally()
    tally.count(Outcome("more is not less", np.arange(3), np.array([0.0, 0.5, np.nan])), "here", plans)
    assert (tally.plans, tally.violations) == (3, 2)
    assert tally.where.startswith("here num_gpus=4")


def test_what_is_no_law_has_its_reason_on_the_page() -> None:
    court = Court(MODELS[:1], system_names()[:1], random.Random(0))
    court.seen = {name: {"one"} for name in ("model", "system", "schedule", "precision", "workload")}
    for law in NO_LAWS:
        court.tallies[f"longer{law}" if law == BALANCED else law] = Tally(10, 1, 0.25, "somewhere")
    court.tallies["a law"] = Tally(10)
    text = page(court, [0], 60.0)
    assert "| a law | 10 | 0 | - |" in text
    assert all(why in text for why in NO_LAWS.values())


def test_runs_in_parts_are_one_table(tmp_path: Path) -> None:
    files = []
    for seed, (violations, worst) in enumerate([(0, 0.0), (2, 0.5), (1, 0.25)]):
        court = Court(MODELS[:1], system_names()[:1], random.Random(0), plans=100)
        court.tallies["a law"] = Tally(100, violations, worst, f"seed {seed}" if violations else "")
        court.seen = {name: {f"{name} {seed % 2}"} for name in ("model", "system", "schedule", "precision", "workload")}
        files.append(tmp_path / f"{seed}.json")
        files[-1].write_text(json.dumps(kept(court, [seed], 60.0)), encoding="utf-8")
    whole = Court(MODELS[:1], system_names()[:1], random.Random(0))
    assert joined(whole, files) == ([0, 1, 2], 180.0)
    assert whole.tallies["a law"] == Tally(300, 3, 0.5, "seed 1")
    assert whole.plans == 300
    assert len(whole.seen["model"]) == 2
    assert main(["--of", *map(str, files), "--page", str(tmp_path / "laws.md")]) == 5
    assert "Seed 0, 1, 2: 300 plans" in (tmp_path / "laws.md").read_text("utf-8")


def test_a_run_writes_its_page(tmp_path: Path) -> None:
    assert main(["--plans", "1", "--seconds", "20", "--page", str(tmp_path / "laws.md")]) == 0
    assert "## Comparisons that are not laws" in (tmp_path / "laws.md").read_text("utf-8")
