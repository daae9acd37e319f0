"""Why a winner wins: parts that add up, in words and as JSON."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimate, estimate, worth
from slipstick.explore.goals import Goal
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan
from slipstick.report.search.why import why, why_text

Traced = Callable[[str], Graph]


def of(traced: Traced, system: System, **degrees: int) -> Estimate:
    family = Family(pp=degrees.get("pp", 1) > 1, sp=degrees.get("tp", 1) > 1)
    plan = make_plan(num_gpus=4, seq_len=64, global_batch=16, family=family, **degrees)
    return estimate(traced("tiny-llama.train"), system, plan)


@pytest.fixture
def pair(traced: Traced, made_up: System) -> tuple[Estimate, Estimate]:
    return of(traced, made_up, tp=1), of(traced, made_up, tp=2, micro_batch=2)


def test_parts_add_up_to_the_difference_of_the_whole(pair: tuple[Estimate, Estimate]) -> None:
    winner, other = pair
    found = why(winner, other)
    assert found.time is not None
    assert found.memory is not None
    whole = winner.metrics["step_time_s"] - other.metrics["step_time_s"]
    assert sum(change.difference for change in found.time.parts) == pytest.approx(whole)
    whole = winner.metrics["peak_mem_bytes"] - other.metrics["peak_mem_bytes"]
    assert sum(change.difference for change in found.memory.parts) == pytest.approx(whole)
    sizes = [abs(change.difference) for change in found.time.parts]
    assert sizes == sorted(sizes, reverse=True)


def test_what_differs_is_named_without_what_follows(pair: tuple[Estimate, Estimate]) -> None:
    found = why(*pair)
    # 4 GPUs / tp 2 = 2 replicas; whole micro-batches follow, and so does etp.
    assert list(found.differs) == [("tp", "1", "2"), ("dp", "4", "2"), ("mbs", "1", "2"), ("sp", "no", "yes")]


def test_the_text_says_plans_times_and_reasons(pair: tuple[Estimate, Estimate]) -> None:
    winner, other = pair
    head, differs, time, memory, *_ = why_text(why(winner, other)).splitlines()
    assert head.startswith("tp1 dp4 mbs1 against tp2 dp2 mbs2: step time ")
    assert differs == "  differs: tp 1, not 2, dp 4, not 2, mbs 1, not 2, sp no, not yes"
    assert time.startswith("  time of a step: ")
    # No replica of one rank sends over tp: all that the other spends there is gained.
    assert "less tp communication" in time
    assert memory.startswith("  memory of a GPU: ")


def test_goals_come_first_with_both_values(pair: tuple[Estimate, Estimate]) -> None:
    winner, other = pair
    found = why(winner, other, [Goal("mfu", -1.0), Goal("no_such_goal")])
    assert [change.name for change in found.goals] == ["mfu"]
    assert (found.goals[0].after, found.goals[0].before) == (winner.metrics["mfu"], other.metrics["mfu"])
    assert "step_time_s" in {change.name for change in found.metrics}


def test_a_plan_against_itself_differs_in_nothing(pair: tuple[Estimate, Estimate]) -> None:
    lines = why_text(why(pair[0], pair[0])).splitlines()
    assert lines[0].endswith("both")
    assert lines[1:] == [
        "  time of a step: the same in every part",
        "  memory of a GPU: the same in every part",
    ]


def test_other_systems_are_named(traced: Traced, made_up: System) -> None:
    faster = replace(made_up, name="faster", chip=replace(made_up.chip, hbm_bytes_per_s=2e12))
    found = why(of(traced, faster), of(traced, made_up))
    assert (found.winner, found.runner_up) == ("tp1 dp4 mbs1 on faster", "tp1 dp4 mbs1 on toy")
    assert ("system.name", "faster", "toy") in found.differs


def test_money_is_said_where_both_were_priced(traced: Traced) -> None:
    system = load_system("dgx-h100")
    priced, other = (worth(of(traced, system, tp=tp)) for tp in (1, 2))
    found = why(priced, other)
    assert "usd_per_mtok" in {change.name for change in found.metrics}
    assert "usd_per_mtok" not in {change.name for change in why(of(traced, system), of(traced, system, tp=2)).metrics}
