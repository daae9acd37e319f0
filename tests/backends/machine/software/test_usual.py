"""The software that usually runs a plan: every row of the table, over all systems of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.backends.machine.chip import maker_of
from slipstick.backends.machine.load import load_stack, load_system, stack_names, system_names
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.backends.machine.software.usual import (
    choose_stack,
    engine_of_stack,
    usual_engine,
    usual_rows,
    usual_stack,
)
from slipstick.ir.plan.words import PlanWords

SPLIT = [PlanWords(tp=2), PlanWords(pp=2), PlanWords(cp=2), PlanWords(ep=2)]


def test_every_row_names_a_stack_and_the_last_holds_for_all() -> None:
    rows = usual_rows()
    assert {row.stack for row in rows} <= {*stack_names(), "none"}
    last = rows[-1]
    assert (last.phases, last.makers, last.split, last.own_module, last.stack) == ((), (), (), None, "none")


@pytest.mark.parametrize("words", SPLIT)
def test_nvidia_trains_what_is_split_with_megatron_core_and_own_code_with_fsdp2(words: PlanWords) -> None:
    assert choose_stack("train", "H100-SXM5-80GB", words) == "megatron-core"
    assert choose_stack("train", "H100-SXM5-80GB", words, own_module=True) == "fsdp2"


@pytest.mark.parametrize(("gpus", "own"), [(1, True), (1, False), (64, True), (64, False)])
def test_nvidia_trains_data_parallel_with_fsdp2(gpus: int, own: bool) -> None:
    assert choose_stack("train", "B200-SXM-180GB", PlanWords(num_gpus=gpus), own) == "fsdp2"


@pytest.mark.parametrize("phase", ["serve", "prefill", "decode"])
def test_vllm_serves_everywhere_and_its_engine_has_its_stack(phase: str) -> None:
    for system in system_names():
        assert usual_stack(system, PlanWords(phase=phase, tp=2)) == "vllm", system
    assert usual_engine() == engine_of_stack("vllm") == "vllm"
    assert load_engine("vllm").stack == "vllm"


def test_systems_train_as_their_makers_have_it() -> None:
    for system in system_names():
        maker = maker_of(load_system(system).chip.name)
        split, whole = (usual_stack(system, words) for words in (PlanWords(tp=2), PlanWords()))
        assert (split, whole) == (("megatron-core", "fsdp2") if maker == "NVIDIA" else ("none", "none")), system


def test_a_system_whose_file_names_its_software_keeps_it(tmp_path: Path) -> None:
    text = (Path(__file__).parents[4] / "backends/systems/dgx-h100.yaml").read_text(encoding="utf-8")
    own = tmp_path / "own.yaml"
    own.write_text(f"{text}\nstack: nanotron\n", encoding="utf-8")
    assert usual_stack(own, PlanWords(tp=2)) is None
    assert load_system(own).stack.name == "nanotron"


def test_none_is_the_pure_machine() -> None:
    assert load_stack("none") == load_stack("default")
    assert load_system("dgx-h100", stack="none") == load_system("dgx-h100")


def test_other_platforms_have_no_all_reduce_of_one_kernel() -> None:
    has = {name: load_system(name, stack="vllm").stack.custom_all_reduce for name in system_names()}
    makers = {name: maker_of(load_system(name).chip.name) for name in system_names()}
    assert {makers[name] for name, custom in has.items() if custom} == {"NVIDIA", "AMD", "AWS"}
    assert [name for name, custom in has.items() if custom and makers[name] == "AWS"] == ["trn2-ultraserver"]
