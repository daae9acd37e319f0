"""Python says what the command line says: the same document for the same words, and the same refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import slipstick
from slipstick.ir.errors import UnknownNameError, UsageError
from slipstick.report.results.result import Result

Cli = Callable[..., CompletedProcess[str]]
Words = Mapping[str, object]


@dataclass(frozen=True)
class Case:
    """One question, as a function with words and as a command line behind MODEL."""

    function: str
    words: Words
    line: str
    system: str | None = "dgx-h100"
    model: str | None = "tiny-llama"
    verb: str = ""

    def __str__(self) -> str:
        return f"{self.function} {self.line}"


SHORT: Words = {"isl": 64, "osl": 16}
CASES = (
    Case("estimate", {"seq": 128}, "--seq 128"),
    Case("estimate", {"gpus": 8, "tp": 2, "seq": 128, "gbs": 32}, "--gpus 8 --tp 2 --seq 128 --gbs 32"),
    Case("estimate", {"gpus": 8, "pp": 2, "vpp": 1, "seq": 128, "gbs": 16, "schedule": "gpipe"},
         "--gpus 8 --pp 2 --vpp 1 --seq 128 --gbs 16 --schedule gpipe"),
    Case("estimate", {"gpus": 4, "zero": 3, "seq": 128, "recompute": "full", "offload": ["optimizer"]},
         "--gpus 4 --zero 3 --seq 128 --recompute full --offload optimizer"),
    Case("estimate", {"gpus": 2, "tp": 2, "sp": False, "seq": 128, "fuse": False, "cuda_graph": True},
         "--gpus 2 --tp 2 --no-sp --seq 128 --no-fuse --cuda-graph"),
    Case("estimate", {"phase": "decode", "seq": 256, "mbs": 8, "kv_dtype": "fp8"},
         "--phase decode --seq 256 --mbs 8 --kv-dtype fp8"),
    Case("estimate", {"phase": "prefill", "seq": 256, "stack": "vllm", "precision_of": {"lm_head": "fp8"}},
         "--phase prefill --seq 256 --stack vllm --precision-of lm_head=fp8"),
    Case("estimate", {"seq": 128, "tokens": 1e9, "mtbf": "1000h", "checkpoint_bandwidth": "1GB/s",
                      "set": {"chip.memory.hbm.bandwidth": "4.8TB/s"}},
         "--seq 128 --tokens 1e9 --mtbf 1000h --checkpoint-bandwidth 1GB/s --set chip.memory.hbm.bandwidth=4.8TB/s"),
    Case("estimate", {"seq": 128, "rent": True, "sensitivity": True}, "--seq 128 --rent --sensitivity",
         system="dgx-a100-80gb"),
    Case("estimate", {"gpus": 8, "ep": 4, "seq": 128, "expert_imbalance": 1.5},
         "--gpus 8 --ep 4 --seq 128 --expert-imbalance 1.5", model="tiny-mixtral"),
    Case("serve", SHORT, "--phase serve --isl 64 --osl 16", verb="estimate"),
    Case("serve", {**SHORT, "tp": 2, "request_rate": 2.5, "ttft": "500ms", "engine": "sglang"},
         "--phase serve --isl 64 --osl 16 --tp 2 --request-rate 2.5 --ttft 500ms --engine sglang", verb="estimate"),
    Case("serve", {**SHORT, "serve": "poisson:20,n=20", "cut": 0.1},
         "--phase serve --isl 64 --osl 16 --serve poisson:20,n=20 --cut 0.1", verb="estimate"),
    Case("size", {**SHORT, "target_rps": 10, "top": 2}, "--target-rps 10 --top 2 --isl 64 --osl 16"),
    Case("cost", {"gpus": 1024, "basis": "build"}, "--gpus 1024 --basis build", model=None),
    Case("search", {"gpus": 4, "tp": 2, "pp": 1, "cp": 1, "seq": 128, "gbs": 8,
                    "vary": {"precision": ["none", "fp8"]}, "fix": "recompute=none", "constraint": "mfu>=0"},
         "--gpus 4 --tp 2 --pp 1 --cp 1 --seq 128 --gbs 8 --vary precision=none,fp8 --fix recompute=none "
         "--constraint mfu>=0 --no-ledger"),
    Case("sweep", {"die_area": "400,800mm2", "power": "500W"}, "--die-area 400,800mm2 --power 500W", None, "none"),
    Case("optimise", {"node": "N5", "area": "400mm2", "power": "500W", "gpus": 8, "tp": 2, "gbs": 8, "seq": 128},
         "--node N5 --area 400mm2 --power 500W --gpus 8 --tp 2 --gbs 8 --seq 128", None, verb="design optimise"),
    Case("compile", {"seq": 128, "tp": 2}, "--seq 128 --tp 2 --emit report"),
    Case("operators", {"seq": 128, "coverage": True}, "--seq 128 --coverage", None, verb="trace"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_python_and_the_command_line_write_the_same_document(case: Case, cli: Cli, data: Path) -> None:
    configs = {None: "", "none": "none"}
    config = configs.get(case.model, str(data / "configs" / f"{case.model}.json"))
    given = [one for one in (config, case.system) if one]
    ends = given[:1]
    flags = [f"--system={name}" for name in given[1:]]
    form = [] if case.function == "compile" else ["--format", "json"]
    quiet = [] if case.function == "cost" else ["--quiet"]
    done = cli(*(case.verb or case.function).split(), *ends, *flags, *case.line.split(), *form, *quiet)
    assert done.returncode == 0, done.stderr
    found = getattr(slipstick, case.function)(*given, **case.words)
    assert found.to_dict() == json.loads(done.stdout)


@pytest.fixture
def tiny_config(data: Path) -> str:
    return str(data / "configs" / "tiny-llama.json")


def test_what_an_estimate_says_of_itself_is_short(tiny_config: str) -> None:
    found = slipstick.estimate(tiny_config, "dgx-h100", gpus=8, tp=2, seq=128)
    lines = repr(found).splitlines()
    assert 3 <= len(lines) <= 6
    assert len(repr(found)) < 700
    assert lines[0].startswith("tiny-llama  train in bf16")
    assert all(word in repr(found) for word in ("8 x H100", "tp2 dp4", "MFU", "GiB a GPU", "$"))
    assert len(repr(found.answer)) < 700


def test_what_a_server_says_of_itself_is_short(tiny_config: str) -> None:
    found = slipstick.serve(tiny_config, "dgx-h100", isl=64, osl=16)
    assert 3 <= len(repr(found).splitlines()) <= 6
    assert len(repr(found)) < 700
    assert len(repr(found.answer)) < 700


def test_an_estimate_that_does_not_fit_is_an_answer(data: Path) -> None:
    found = slipstick.estimate("llama-2-70b", "dgx-h100", seq=128)
    assert not found.fits
    assert "DOES NOT FIT" in repr(found)


def test_the_money_is_there_without_asking(tiny_config: str) -> None:
    found = slipstick.estimate(tiny_config, "dgx-h100", seq=128)
    assert found.money is not None
    assert found.metrics["usd_per_step"] > 0.0


def test_the_command_of_an_answer_gives_the_same(tiny_config: str, cli: Cli) -> None:
    import shlex

    found = slipstick.estimate(tiny_config, "dgx-h100", gpus=8, tp=2, seq=128)
    done = cli(*shlex.split(found.command)[1:], "--format", "json")
    assert json.loads(done.stdout) == found.to_dict()


def test_graphs_and_systems_may_be_objects(tiny_config: str) -> None:
    named = slipstick.estimate(tiny_config, "dgx-h100", gpus=8, tp=2, seq=128, stack="none")
    graph = slipstick.operators(tiny_config).graph
    given = slipstick.estimate(graph, slipstick.load_system("dgx-h100"), gpus=8, tp=2, seq=128)
    assert given.to_dict() == named.to_dict()
    assert given.command == ""


def test_a_module_is_traced_where_a_name_stands() -> None:
    from torch import nn

    net = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 100))
    found = slipstick.estimate(net, "dgx-h100", phase="prefill", seq=128)
    assert found.answer.table.lowered.source == slipstick.trace(net, phase="prefill")


def test_a_graph_of_another_phase_is_refused(tiny_config: str) -> None:
    graph = slipstick.operators(tiny_config, phase="decode").graph
    with pytest.raises(UsageError, match="phase=train: graph 'tiny-llama' is of decode"):
        slipstick.estimate(graph, "dgx-h100", phase="train")


def test_a_plan_is_estimated_by_the_driver(tiny_config: str) -> None:
    graph, system = slipstick.load(tiny_config), slipstick.load_system("dgx-h100")
    plan = slipstick.make_plan(num_gpus=2, tp=2, seq_len=128, family=slipstick.Defaults(system.stack))
    with pytest.raises(UsageError, match=r"words by name; .* slipstick\.driver\.estimate\.estimate"):
        slipstick.estimate(graph, system, plan)  # type: ignore[call-arg,arg-type]  # pyright: ignore


def test_two_answers_are_compared(tiny_config: str) -> None:
    one, two = (slipstick.estimate(tiny_config, "dgx-h100", gpus=8, tp=tp, seq=128) for tp in (1, 2))
    found = slipstick.compare(one, two.to_dict(), fail_on=["step_time_s>+0%"])
    change = found.found.metrics["step_time_s"]
    assert (change.before, change.after) == (one.metrics["step_time_s"], two.metrics["step_time_s"])
    assert found.gates[0].failed == (change.after > change.before)


def test_an_answer_is_explained(tiny_config: str) -> None:
    found = slipstick.estimate(tiny_config, "dgx-h100", seq=128)
    assert slipstick.explain(found, "step_time_s").startswith("step_time_s = ")
    assert "chip defects" in slipstick.explain(slipstick.cost("dgx-h100", basis="build"), "chip defects")


@dataclass(frozen=True)
class Refusal:
    """Words that are refused, and what is said of them."""

    words: Words
    kind: type[Exception]
    told: str
    system: object = field(default="dgx-h100")


REFUSALS = (
    Refusal({"tpp": 2}, UnknownNameError, "estimate has no word 'tpp'; did you mean '.*'"),
    Refusal({"tp": "two"}, UsageError, "'two' is not a valid integer"),
    Refusal({"tp": [1, 2]}, UsageError, "one value, not 2"),
    Refusal({"sp": 1}, UsageError, "sp=1: True or False"),
    Refusal({"schedule": "gpip"}, UsageError, "'gpip' is not allowed; did you mean 'gpipe'"),
    Refusal({"phase": "serve"}, UsageError, r"serve\(...\) takes the same words"),
    Refusal({"isl": 64}, UnknownNameError, r"estimate has no word 'isl'; serve\(...\) has it"),
    Refusal({}, UnknownNameError, "unknown system 'dgx-h10'; did you mean 'dgx-h100'", "dgx-h10"),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.told)
def test_errors_are_those_of_the_house(case: Refusal, tiny_config: str) -> None:
    with pytest.raises(case.kind, match=case.told):
        slipstick.estimate(tiny_config, case.system, **case.words)  # type: ignore[arg-type]


def test_a_system_as_an_object_is_as_it_is(tiny_config: str) -> None:
    system = slipstick.load_system("dgx-h100")
    with pytest.raises(UsageError, match="was given as an object, which is as it is: name it"):
        slipstick.estimate(tiny_config, system, stack="fsdp2", seq=128)
    with pytest.raises(UsageError, match="serve: a system as an object"):
        slipstick.serve(tiny_config, system)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_python_leaves_no_run_on_the_disk(tiny_config: str, tmp_path: Path) -> None:
    found = slipstick.search(tiny_config, "dgx-h100", gpus=2, tp=2, seq=128, gbs=4, runs=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(found, Result)
    slipstick.search(tiny_config, "dgx-h100", gpus=2, tp=2, seq=128, gbs=4, runs=tmp_path, ledger=True)
    assert len(list(tmp_path.iterdir())) >= 1
