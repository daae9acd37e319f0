"""What a plan lacks in memory, and the changes that fit and cost least."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimate, estimate
from slipstick.driver.remedies import find_remedies
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, PlanWords, make_plan
from slipstick.ir.plan.plan import plan_of
from slipstick.ir.plan.word import changed
from slipstick.report.advice import find_advice, shortage, verdict

Traced = Callable[[str], Graph]
KIB = 1024.0


def with_memory(system: System, num_bytes: float) -> System:
    chip = replace(system.chip, hbm_bytes=num_bytes)
    return replace(system, chip=chip, stack=replace(system.stack, memory_reserve_bytes=0.0))


@pytest.fixture
def ask(traced: Traced, made_up: System) -> Callable[[Plan, float], Estimate]:
    return lambda plan, memory: estimate(traced("tiny-llama.train"), with_memory(made_up, memory), plan)


def train(gpus: int = 1, micro_batch: int = 1) -> Plan:
    return make_plan(num_gpus=gpus, seq_len=64, micro_batch=micro_batch, family=Family())


def test_a_plan_that_fits_lacks_nothing(ask: Callable[[Plan, float], Estimate]) -> None:
    answer = ask(train(), 2.0**30)
    assert (verdict(answer), shortage(answer), find_advice(answer)) == (None, None, ())


def test_the_verdict_has_need_and_limit(ask: Callable[[Plan, float], Estimate]) -> None:
    need = ask(train(), 1.0).metrics["peak_mem_bytes"]
    assert verdict(ask(train(), KIB)) == f"DOES NOT FIT: needs {need / 2**20:.3g} MiB of 1 KiB"


@pytest.mark.parametrize(
    ("micro_batch", "family", "tp", "change"),
    [
        (8, Family(), 1, {"micro_batch": 4}),
        (1, Family(zero=1), 1, {"zero": 1}),
        (1, Family(zero=3), 1, {"zero": 3}),
        (1, Family(sp=True), 2, {"tp": 2, "sp": True}),
    ],
)
def test_the_mildest_change_that_fits_is_named(
    ask: Callable[[Plan, float], Estimate], micro_batch: int, family: Family, tp: int, change: dict[str, object]
) -> None:
    """The memory is just what the changed plan needs, so milder changes do not fit."""
    asked = train(2, micro_batch)
    made = asked.under(family, {"tp": tp, "etp": None, "dp": None, "micro_batch": 4 if micro_batch == 8 else 1})
    then = ask(made, 1.0)
    found = find_remedies(ask(asked, then.metrics["peak_mem_bytes"]))
    # Of the same words the fastest counts.
    (same,) = [remedy for remedy in found if {*remedy.words} == {*change}]
    assert same.step_time_s is not None
    assert same.step_time_s <= then.metrics["step_time_s"]


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
@pytest.mark.parametrize("words", [{}, {"micro_batch": 4, "zero": 1}, {"tp": 2, "dp": 4}, {"pp": 2, "zero": 1}])
def test_each_remedy_is_what_an_estimate_with_its_flags_says(
    ask: Callable[[Plan, float], Estimate], made_up: System, words: dict[str, object], share: float
) -> None:
    """Remedies fit, stand in the order of their times, none contains another, and what is said of them is so."""
    asked = changed(PlanWords(), {"num_gpus": 8, "seq_len": 64, "global_batch": 32, **words})
    plan = plan_of(asked, made_up.stack)
    memory = share * ask(plan, 1.0).metrics["peak_mem_bytes"]
    found = find_remedies(ask(plan, memory), asked)
    times = [remedy.step_time_s for remedy in found if remedy.step_time_s is not None]
    assert times == sorted(times)
    assert not any({*a.words} < {*b.words} for a in found for b in found)
    for remedy in found:
        typed = plan_of(changed(asked, dict(remedy.words)), made_up.stack)
        assert typed == remedy.plan
        again = ask(typed, memory)
        assert again.fits is (remedy.step_time_s is not None)
        assert again.metrics["peak_mem_bytes"] == remedy.peak_mem_bytes
        assert remedy.step_time_s in (None, again.metrics["step_time_s"])


@pytest.mark.parametrize(("cp_ulysses", "family"), [(1, Family(cp="ring")), (2, Family(cp="ring", usp=True))])
def test_states_may_be_shared_by_the_ranks_of_a_sequence_too(
    ask: Callable[[Plan, float], Estimate], cp_ulysses: int, family: Family
) -> None:
    """One replica on four ranks: what ZeRO shards lies over all of them, however heads are exchanged."""
    asked = make_plan(num_gpus=4, cp=4, cp_ulysses=cp_ulysses, seq_len=64, family=family)
    enough = ask(asked.under(replace(family, zero=1)), 1.0).metrics["peak_mem_bytes"]
    assert any(advice.change.startswith("--zero ") for advice in find_advice(ask(asked, enough)))


def test_when_nothing_fits_the_nearest_is_named(ask: Callable[[Plan, float], Estimate]) -> None:
    (nearest,) = find_advice(ask(train(2), KIB))
    assert nearest.step_time_s is None
    assert "which comes nearest, and still needs" in nearest.line


def test_decode_may_only_grow_wider_or_hold_a_smaller_cache(traced: Traced, made_up: System) -> None:
    family = Family(workload=Workload.DECODE)
    asked, wider = (make_plan(num_gpus=2, tp=tp, seq_len=1, kv_len=512, family=family) for tp in (1, 2))
    graph = traced("tiny-llama.decode")
    enough = estimate(graph, made_up, wider).metrics["peak_mem_bytes"] - made_up.stack.memory_reserve_bytes
    found = find_remedies(estimate(graph, with_memory(made_up, enough), asked))
    assert [dict(remedy.words) for remedy in found] == [{"tp": 2}]


def test_more_gpus_are_tried_where_nothing_fits_on_those_of_the_plan(traced: Traced, made_up: System) -> None:
    graph = traced("tiny-llama.train")
    one, two = (make_plan(num_gpus=n, tp=n, seq_len=64, family=Family(sp=n > 1, recompute="full")) for n in (1, 2))
    enough = estimate(graph, with_memory(made_up, 1.0), two).metrics["peak_mem_bytes"]
    found = find_remedies(estimate(graph, with_memory(made_up, enough), one))
    assert {"num_gpus": 2, "tp": 2, "sp": True} in [dict(remedy.words) for remedy in found]


@pytest.mark.parametrize("family", [Family(zero=1), Family(zero=2), Family(recompute="full"), Family(zero=3)])
def test_weights_stay_as_they_are_unless_zero_shards_them(
    ask: Callable[[Plan, float], Estimate], family: Family
) -> None:
    """What needs no lowering rests on it: weights that are too large alone stay so."""
    now = ask(train(2), 1.0).memory_bytes["weights"]
    weights = ask(train(2).under(family), 1.0).memory_bytes["weights"]
    assert weights < now if family.zero == 3 else weights == now
