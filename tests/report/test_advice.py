"""What a plan lacks in memory, and the first change that fits."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.backends.machine.system import System
from slipstick.driver import Estimate, estimate
from slipstick.driver.lowering import compiled
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.report.advice import shortage

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
    assert shortage(ask(train(), 2.0**30)) is None


def test_the_message_has_need_limit_shares_and_a_next_step(ask: Callable[[Plan, float], Estimate]) -> None:
    need = ask(train(), 1.0).metrics["peak_mem_bytes"]
    lacking = str(shortage(ask(train(), KIB)))
    assert re.search(rf"a GPU needs {need / 2**20:.3g} MiB and has 1 KiB \(optimizer \d+%, ", lacking)


@pytest.mark.parametrize(
    ("micro_batch", "family", "tp", "flags"),
    [
        (8, Family(), 1, "--mbs 4"),
        (1, Family(zero=1), 1, "--zero 1"),
        (1, Family(zero=3), 1, "--zero 3"),
        (1, Family(sp=True), 2, "--tp 2 --dp 1 --sp"),
    ],
)
def test_the_mildest_change_that_fits_is_named(
    ask: Callable[[Plan, float], Estimate], micro_batch: int, family: Family, tp: int, flags: str
) -> None:
    """The memory is just what the changed plan needs, so milder changes do not fit."""
    asked = train(2, micro_batch)
    changed = asked.under(family, {"tp": tp, "etp": None, "dp": None, "micro_batch": 4 if micro_batch == 8 else 1})
    message = shortage(ask(asked, ask(changed, 1.0).metrics["peak_mem_bytes"]))
    assert message is not None
    assert message.rpartition("Try ")[2] == flags


@pytest.mark.parametrize(("cp_ulysses", "family"), [(1, Family(cp="ring")), (2, Family(cp="ring", usp=True))])
def test_states_may_be_shared_by_the_ranks_of_a_sequence_too(
    ask: Callable[[Plan, float], Estimate], cp_ulysses: int, family: Family
) -> None:
    """One replica on four ranks: what ZeRO shards lies over all of them, however heads are exchanged."""
    asked = make_plan(num_gpus=4, cp=4, cp_ulysses=cp_ulysses, seq_len=64, family=family)
    enough = ask(asked.under(replace(family, zero=1)), 1.0).metrics["peak_mem_bytes"]
    message = shortage(ask(asked, enough))
    assert message is not None
    assert message.endswith("Try --zero 1")


def test_when_nothing_fits_the_nearest_is_named(ask: Callable[[Plan, float], Estimate]) -> None:
    message = shortage(ask(train(2), KIB))
    assert message is not None
    assert "Nothing fits with --gpus 2: " in message
    assert " still needs " in message


def test_decode_may_only_grow_wider(traced: Traced, made_up: System) -> None:
    family = Family(workload=Workload.DECODE)
    asked, wider = (make_plan(num_gpus=2, tp=tp, seq_len=1, kv_len=512, family=family) for tp in (1, 2))
    graph = traced("tiny-llama.decode")
    enough = estimate(graph, made_up, wider).metrics["peak_mem_bytes"] - made_up.stack.memory_reserve_bytes
    message = shortage(estimate(graph, with_memory(made_up, enough), asked))
    assert message is not None
    assert message.endswith("Try --tp 2 --dp 1")


def test_a_plan_without_neighbours_says_so(traced: Traced, made_up: System) -> None:
    plan = make_plan(num_gpus=1, seq_len=1, kv_len=512, family=Family(workload=Workload.DECODE))
    message = shortage(estimate(traced("tiny-llama.decode"), with_memory(made_up, KIB), plan))
    assert message is not None
    assert "No other plan is legal with --gpus 1" in message


@pytest.mark.parametrize("family", [Family(zero=1), Family(zero=2), Family(recompute="full"), Family(zero=3)])
def test_weights_stay_as_they_are_unless_zero_shards_them(
    ask: Callable[[Plan, float], Estimate], family: Family
) -> None:
    """What needs no lowering rests on it: weights that are too large alone stay so."""
    now = ask(train(2), 1.0).memory_bytes["weights"]
    weights = ask(train(2).under(family), 1.0).memory_bytes["weights"]
    assert weights < now if family.zero == 3 else weights == now


def test_what_cannot_fit_is_lowered_only_where_nothing_else_fits(
    ask: Callable[[Plan, float], Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, wider = train(2), train(2).under(Family(sp=True), {"tp": 2, "etp": None, "dp": None})
    weights = ask(asked, 1.0).memory_bytes["weights"]
    enough = ask(wider, 1.0).metrics["peak_mem_bytes"]
    assert enough > weights  # so that nothing is hopeless at first
    lowered: list[Family] = []

    def counted(graph: Graph, family: Family, *rest: object) -> object:
        lowered.append(family)
        return compiled(graph, family, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("slipstick.report.advice.compiled", counted)
    message = shortage(ask(asked, weights / 2))
    assert message is not None
    assert [f.zero for f in lowered if f.zero < 3 and not f.sp and f.recompute == "none"][-1:] == [1]
    assert lowered.index(Family(zero=1)) > lowered.index(Family(zero=3))
