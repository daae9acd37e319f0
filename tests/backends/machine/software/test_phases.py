"""Software runs the phases that its file says: servers train nothing, trainers serve nothing."""

from __future__ import annotations

import pytest

from slipstick import GraphCache, load, load_system, make_plan
from slipstick.backends.machine.load import load_stack, stack_names
from slipstick.backends.machine.software.engine_file import engine_names, load_engine
from slipstick.backends.machine.software.phases import PHASES, check_phase, running
from slipstick.driver.estimate import estimate
from slipstick.ir.errors import UsageError
from slipstick.ir.plan import Defaults
from slipstick.ir.plan.words import PHASES as OF_PLANS


def test_a_stack_trains_or_serves_but_for_the_pure_machine() -> None:
    kinds = {load_stack(name).phases for name in stack_names() if name != "default"}
    assert kinds == {("train",), ("prefill", "decode", "serve")}
    assert load_stack("default").phases == load_engine("ideal").phases == PHASES == OF_PLANS
    assert {load_engine(name).phases for name in engine_names() if name != "ideal"} == {PHASES[1:]}


@pytest.mark.parametrize("engine", engine_names())
def test_an_engine_runs_on_a_stack_that_runs_its_phases(engine: str) -> None:
    found = load_engine(engine)
    assert set(found.phases) <= set(load_stack(found.stack).phases)


def test_another_phase_is_refused_with_the_software_that_runs_it() -> None:
    with pytest.raises(UsageError, match=r"stack 'vllm' runs prefill, decode, serve, not train: .* megatron-core,"):
        check_phase(load_stack("vllm"), "train")
    with pytest.raises(UsageError, match=r"engine 'vllm' runs .* not train: leave --engine out"):
        check_phase(load_engine("vllm"), "train", "engine")
    assert "vllm" in running("decode", "stack")
    assert "nanotron" not in running("decode", "stack")


def test_what_is_priced_in_code_is_refused_too() -> None:
    graph, system = load("gpt2", cache=GraphCache.default()), load_system("dgx-h100", stack="vllm")
    plan = make_plan(num_gpus=8, seq_len=512, family=Defaults(stack=system.stack))
    with pytest.raises(UsageError, match="stack 'vllm' runs prefill, decode, serve, not train"):
        estimate(graph, system, plan)
