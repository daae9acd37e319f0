"""Profiles of serving engines: what a file may say, what holds on one chip, what a fit may move."""

import json
from pathlib import Path

import pytest

from slipstick.backends.machine.files.file_schemas import file_schema
from slipstick.backends.machine.load import load_system, stack_names
from slipstick.backends.machine.software.engine import Engine
from slipstick.backends.machine.software.engine_file import engine_names, engine_numbers, load_engine
from slipstick.backends.machine.software.engine_limits import ENGINE_MOVABLE, engine_moved
from slipstick.ir.errors import SystemFileError, UnknownNameError

MINE = """
name: mine
like: vllm
scheduler:
  block_tokens: {value: 32, source: set here}
overheads:
  step: {value: 2, unit: ms, source: measured here}
stack_numbers:
  kernel_slowdown:
    matmul: {value: 1.2, confidence: measured, source: fitted here}
chips:
  a100-sxm-80gb:
    overheads: {step: {value: 4, unit: ms, source: measured here}}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", engine_names())
def test_each_engine_says_where_its_numbers_come_from_and_runs_a_stack_that_there_is(name: str) -> None:
    engine = load_engine(name)
    assert engine.name == name
    assert engine.stack in stack_names()
    assert all(number.source for number in engine_numbers(name))
    overheads = ("step", "sequence", "prompt", "interference")
    assert {n.path for n in engine.sources} >= {f"overheads.{key}" for key in overheads}


def test_an_engine_has_the_rest_from_the_one_that_it_is_like(mine: Path) -> None:
    found, base = load_engine(mine), load_engine("vllm")
    assert (found.scheduler.block_tokens, base.scheduler.block_tokens) == (32, 16)
    assert found.scheduler.max_num_seqs == base.scheduler.max_num_seqs
    assert found.overheads.step_s == pytest.approx(2e-3)
    assert found.overheads.sequence_s == base.overheads.sequence_s


def test_what_holds_on_a_chip_goes_by_either_of_its_names(mine: Path) -> None:
    shown = load_system("dgx-a100-80gb").chip.name
    assert shown != "a100-sxm-80gb"
    times = [load_engine(mine, chip).overheads.step_s for chip in ("a100-sxm-80gb", shown, "h100-sxm-80gb", None)]
    assert times == pytest.approx([4e-3, 4e-3, 2e-3, 2e-3])


def test_large_devices_but_the_a100_take_larger_steps_under_vllm() -> None:
    limits = [load_engine("vllm", chip).scheduler for chip in ("h100-sxm-80gb", "a100-sxm-80gb")]
    assert [(at.max_num_seqs, at.max_batched_tokens) for at in limits] == [(1024, 8192), (256, 2048)]


def test_numbers_of_the_stack_that_an_engine_was_fitted_with_replace_those_of_the_stack(mine: Path) -> None:
    plain = load_system("dgx-h100")
    system = load_engine(mine).under(plain)
    assert system.stack.kernel_slowdown.matmul == 1.2
    assert system.stack.kernel_slowdown.attention == plain.stack.kernel_slowdown.attention
    told = [n for n in system.sources if n.path == "stack.kernel_slowdown.matmul"]
    assert [n.source for n in told] == ["fitted here"]
    assert load_engine("vllm").under(plain) is plain


def test_a_number_set_by_hand_says_so() -> None:
    engine = load_engine("vllm", None, ["overheads.step=1ms", "scheduler.max_num_seqs=8"])
    assert (engine.overheads.step_s, engine.scheduler.max_num_seqs) == (1e-3, 8)
    assert {n.path for n in engine.sources if n.source == "--set"} == {"overheads.step", "scheduler.max_num_seqs"}


def test_all_faults_of_a_file_are_told_with_what_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: bad\nlike: vllm\n"
        "scheduler: {max_num_seq: {value: 3, source: x}, mixed: maybe}\n"
        "overheads: {step: {value: 3, source: x}}\n"
        "fit: {data_sets: [a], free: [overheads.stp]}\n",
        encoding="utf-8",
    )
    with pytest.raises(SystemFileError, match="4 faults") as error:
        load_engine(path)
    for words in ("did you mean 'max_num_seqs'", "missing unit of '3'", "did you mean 'overheads.step'", "not 'maybe'"):
        assert words in str(error.value)


def test_a_name_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'vllm'"):
        load_engine("vlm")


@pytest.mark.parametrize("path", ENGINE_MOVABLE)
def test_a_fit_moves_one_number_at_a_time(path: str) -> None:
    number, engine = ENGINE_MOVABLE[path], Engine()
    value = (number.low + number.high) / 2
    moved = engine_moved(engine, {path: value})
    if path.startswith("stack_numbers."):
        assert number.of(moved.on(load_system("dgx-h100").stack)) == value
    else:
        assert number.of(moved) == value
    assert engine_moved(moved, {path: value}) == moved != engine


def test_the_schema_knows_every_key_that_the_catalogue_uses() -> None:
    schema = json.loads(json.dumps(file_schema("engine")))
    assert {"like", "chips", "scheduler", "overheads", "stack_numbers", "fit"} <= set(schema["properties"])
    assert set(schema["properties"]["chips"]["additionalProperties"]["properties"]) == set(schema["properties"]) - {
        "like", "chips",
    }  # fmt: skip


def test_an_engine_says_how_near_it_came_where_it_was_fitted(tmp_path: Path) -> None:
    """Numbers of the record that stands beside the fit; a chip of the same die has those of the other."""
    path = tmp_path / "mine.yaml"
    record = (
        "{table: inference, data_sets: [a], free: [overheads.step], "
        "fitted: {rows: 9, median: 0.01}, judged: {rows: 7, median: 0.1, p90: 0.2}}"
    )
    chips = f"{{h100-sxm-80gb: {{fit: {record}}}, gh200-96gb: {{like: h100-sxm-80gb}}}}"
    path.write_text(f"name: mine\nchips: {chips}\n", encoding="utf-8")
    found = load_engine(path, "h100-sxm-80gb").accuracy
    assert found is not None
    assert (found.engine, found.num_rows, found.median, found.p90, found.judged) == ("mine", 7, 0.1, 0.2, True)
    assert load_engine(path, "gh200-96gb").accuracy == found
    assert load_engine(path, "mi300x").accuracy is None
    assert load_engine(path).accuracy is None
