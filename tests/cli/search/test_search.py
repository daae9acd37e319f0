"""`slipstick search` on a Llama of two layers: what is searched, what comes out, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from slipstick.app.search.space_file import space_of, space_schema, space_yaml

from ..conftest import Cli

GRAPH = "tests/golden/tiny-llama.train.graph"
FIRST = ("--system", "dgx-h100", "--gpus", "4", "--seq", "256", "--gbs", "8")
# One family of three meshes.
SMALL = (*FIRST, "--sp", "--tp", "2", "--pp", "1", "--zero", "1", "--fix", "recompute=none", "--fix", "cp-method=ring")


@pytest.fixture
def search(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Search plans of the graph; runs are kept in a folder of the test."""
    monkeypatch.setenv("SLIPSTICK_RUNS", str(tmp_path / "runs"))
    return lambda *words: cli("search", GRAPH, *words)


@pytest.fixture
def answer(search: Cli) -> Callable[..., dict[str, object]]:
    """The JSON of a search that succeeds."""

    def call(*words: str) -> dict[str, object]:
        done = search(*words, "--format", "json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    return call


def rows(answer: dict[str, object]) -> list[dict[str, float]]:
    found = answer["best"]
    assert isinstance(found, list)
    return found


def test_what_is_typed_is_what_every_plan_has_and_the_rest_is_free(answer: Callable[..., dict[str, object]]) -> None:
    found = rows(answer(*SMALL, "--top", "100"))
    # gbs 8 on dp 2 is four sequences a replica: one, two or four at once; on cp 2 it is eight, of one replica.
    assert {(r["tp"], r["pp"], r["cp"], r["dp"]) for r in found} == {(2, 1, 1, 2), (2, 1, 2, 1)}
    assert sorted((r["cp"], r["mbs"]) for r in found) == [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (2, 8)]
    assert [r["step_time_s"] for r in found] == sorted(r["step_time_s"] for r in found)


def test_the_best_plan_is_a_file_whose_estimate_is_the_same_bit_for_bit(search: Cli, cli: Cli, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    done = search(*SMALL, "--format", "json", "--best-plan", str(best))
    first = rows(json.loads(done.stdout))[0]
    report = json.loads(cli("estimate", "--plan", str(best), "--format", "json").stdout)
    assert {name: report["metrics"][name] for name in ("step_time_s", "mfu", "peak_mem_bytes")} == {
        name: first[name] for name in ("step_time_s", "mfu", "peak_mem_bytes")
    }
    assert yaml.safe_load(best.read_text())["system"] == "dgx-h100"


def test_the_table_says_what_was_left_out_and_why_the_best_wins(search: Cli) -> None:
    done = search(*FIRST, "--tp", "4", "--pp", "1", "--zero", "1", "--fix", "recompute=none")
    assert done.returncode == 0, done.stderr
    assert "legal by divisibility" in done.stdout
    assert "against" in done.stdout
    assert "step time" in done.stdout.split("against")[1]
    assert search(*SMALL, "--no-why").stdout.count("against") == 0


def test_several_systems_and_several_values_of_a_number_are_all_tried(answer: Callable[..., dict[str, object]]) -> None:
    found = rows(
        answer(*SMALL, "--vary", "system.hbm.bandwidth=2TB/s:4TB/s:3", "--system", "dgx-h100,dgx-b200", "--top", "99")
    )
    systems = {str(row["system"]) for row in found}
    assert len(systems) == 6
    assert "dgx-b200 chip.memory.hbm.bandwidth=3TB/s" in systems


def test_what_a_machine_costs_that_nobody_described_is_said(search: Cli) -> None:
    """dgx-h100 with memory of another rate: what it is bought for, and its stacks, are of another machine."""
    words = (*SMALL, "--vary", "system.hbm.bandwidth=3350GB/s,8TB/s", "--objective", "usd_per_mtok")
    done = search(*words, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    machine = "dgx-h100 chip.memory.hbm.bandwidth=8TB/s"
    assert list(found["money"]) == [machine]
    assert found["money"][machine]["standing"] == "not of this machine"
    assert found["money"][machine]["unpriced"] == []
    assert {line.partition(":")[0] for line in found["money"][machine]["outdated"]} == {
        "server.price", "memory of chip.package",
    }  # fmt: skip
    marks = {row["system"]: row.get("money") for row in found["best"]}
    assert marks == {machine: "not of this machine", "dgx-h100 chip.memory.hbm.bandwidth=3350GB/s": None}
    text = search(*words, "--no-ledger").stdout
    assert f"{machine}: no sum is of this machine" in text
    assert "  not of this machine: server.price: of a machine with another chip.memory.hbm.bandwidth" in text


def test_a_file_of_a_space_asks_for_the_same_as_its_flags(
    cli: Cli, answer: Callable[..., dict[str, object]], tmp_path: Path
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        f"model: {GRAPH}\nsystem: dgx-h100\ngpus: 4\nseq: 256\ngbs: 8\nsp: true\ntp: 2\npp: 1\nzero: 1\n"
        "recompute: none\ncp-method: ring\nobjectives: [step_time_s]\n"
    )
    done = cli("search", "--space", str(space), "--no-ledger", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"] == answer(*SMALL)["best"]


def test_a_space_as_yaml_reads_back_as_itself() -> None:
    text = (
        "schema: slipstick/space/1\nmodel: gpt2\nsystem: [dgx-h100, dgx-b200]\ntp: [1, 2]\nsp: [true, false]\n"
        "offload: [none, optimizer+params]\nset: [chip.power.tdp=500W]\n"
        "vary: {chip.memory.hbm.bandwidth: [2TB/s, 3TB/s]}\nobjectives: [mfu]\nconstraints: [mem<=0.9]\n"
        "block_rows: 64\n"
    )
    assert space_yaml(space_of(text, "it")) == text


def test_what_a_model_reads_is_one_value_of_a_space_each_with_all_its_texts() -> None:
    text = (
        "schema: slipstick/space/1\nmodel: net.py:net\nimages: 2\n"
        "inputs: ['ids:int64[batch,seq]', 'mask:bf16[batch,seq]']\nfixed: ['seq=64']\nloss: net.py:loss\n"
    )
    asked = space_of(text, "it")
    assert asked.flags["inputs"] == (("ids:int64[batch,seq]", "mask:bf16[batch,seq]"),)
    assert (asked.flags["images"], asked.flags["fixed"], asked.flags["loss"]) == (
        (2,),
        (("seq=64",),),
        ("net.py:loss",),
    )
    again = space_of(space_yaml(asked), "it")
    assert again == asked
    assert set(yaml.safe_load(text)) <= set(space_schema()["properties"])  # type: ignore[call-overload]


def test_a_run_goes_on_and_refuses_another_search(search: Cli, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search(*SMALL, "--format", "json")
    assert "run tiny-llama.train-1" in first.stderr
    again = cli("search", "--resume", "tiny-llama.train-1", "--format", "json")
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert "were kept before" in again.stderr
    other = search("--resume", "tiny-llama.train-1", "--fix", "mbs=1")
    assert other.returncode == 2
    assert "another search" in other.stderr
    monkeypatch.setattr("slipstick.explore.runs.tool.tool_version", lambda: "9.9+other")
    old = cli("search", "--resume", "tiny-llama.train-1")
    assert old.returncode == 2
    assert "9.9+other" in old.stderr


@pytest.mark.parametrize("ending", ["svg", "html", "json", "txt"])
def test_the_front_is_written_in_the_form_that_its_name_says(search: Cli, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"front.{ending}"
    done = search(*SMALL, "--objective", "step_time_s,mem", "--front", str(path))
    assert done.returncode == 0, done.stderr
    starts = {"svg": "<svg", "html": "<!doctype html>", "json": "{", "txt": ""}
    assert path.read_text().lower().lstrip().startswith(starts[ending])


def test_decode_is_searched_too(cli: Cli) -> None:
    done = cli(
        "search", "tests/golden/tiny-llama.decode.graph", "--phase", "decode", "--system", "dgx-h100", "--gpus", "4",
        "--seq", "256", "--objective", "tokens_per_s_per_gpu,tpot", "--constraint", "tpot<=10ms", "--no-ledger",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "TPOT" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fix", "tp=3"), "the space is empty"),
        (("--fix", "tp=2", "--fix", "tp=4"), "said twice"),
        (("--tp", "2", "--fix", "tp=4"), "said twice"),
        (("--fix", "tp=2,4"), "--vary tp=2,4"),
        (("--vary", "tpp=2"), "did you mean 'tp'"),
        (("--vary", "schedule=1f1b,gpip"), "did you mean 'gpipe'"),
        (("--vary", "chip.nothing=1,2"), "nothing"),
        (("--vary", "system.bandwidthh=1,2"), "bandwidthh"),
        (("--vary", "tp"), "KEY=VALUE"),
        (("--constraint", "mfuu>=0.1"), "did you mean 'mfu'"),
        (("--constraint", "step_time<=20"), "--constraint step_time<=20: missing unit of '20': give 20000ms or 20s"),
        (("--constraint", "mfu"), "<= >= < >"),
        (("--objective", "speed"), "unknown metric"),
        (("--objective", "mfu,mfu"), "twice"),
        (("--front", "front.doc"), ".svg"),
        (("--max-memory", "1MiB"), "at least"),
        (("--zero", "1", "--vary", "offload=params"), "contradicts"),
        (("--resume", "none-1"), "unknown run"),
        (("--resume", "none-1", "--no-ledger"), "--no-ledger"),
        (("--tokens", "1T"), "--tokens"),
        (("--executor", "local", "--address", "here:1"), "address"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(search: Cli, words: tuple[str, ...], told: str) -> None:
    done = search(*FIRST, *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_training_needs_a_batch_and_every_search_gpus(search: Cli, cli: Cli) -> None:
    assert "--gbs" in search("--system", "dgx-h100", "--gpus", "4").stderr
    assert "--gpus" in search("--system", "dgx-h100", "--gbs", "4").stderr
    assert cli("search", "--gpus", "4", "--gbs", "4").returncode == 2


def test_nothing_that_is_good_enough_is_exit_code_3_with_the_reasons(search: Cli) -> None:
    done = search(*SMALL, "--constraint", "mfu>=0.99")
    assert done.returncode == 3
    assert "breaks mfu>=0.99" in done.stderr


def test_servers_of_an_engine_are_those_that_it_runs_and_what_is_typed_stays(cli: Cli, data: Path) -> None:
    """vLLM shards whole experts over all ranks of tensor and data parallelism, or splits them."""
    words = ("--phase", "serve", "--system", "dgx-h100", "--gpus", "4", "--engine", "vllm", "--isl", "64", "--osl", "8",
             "--mbs", "1", "--no-ledger", "--top", "100", "--format", "json")  # fmt: skip
    config = str(data / "configs" / "tiny-mixtral.json")
    free, typed = (
        json.loads(cli("search", config, *words, *more, "--pools", "off").stdout) for more in ((), ("--ep", "2"))
    )
    assert all(r["ep"] in (1, r["tp"] * r["dp"]) for r in free["best"])
    assert "not run by its software" in free["pruned"]
    assert {r["ep"] for r in typed["best"]} == {2}


def test_all_placements_are_those_that_the_network_has(answer: Callable[..., dict[str, object]], cli: Cli) -> None:
    plan = ("--gpus", "64", "--seq", "256", "--gbs", "32", "--tp", "2", "--no-sp", "--zero", "1")
    fixed = ("--fix", "cp=1", "--fix", "pp=1", "--fix", "recompute=none", "--fix", "mbs=1", "--vary", "placement=all")
    found = {str(row["base"]): row["step_time_s"] for row in rows(answer("--system", "tpu-v4-pod", *plan, *fixed))}
    for word in ("ranks", "blocks", "closed"):
        alone = cli("estimate", GRAPH, "--system", "tpu-v4-pod", *plan, "--placement", word, "--format", "json")
        assert found.pop(f"placement={word}") == json.loads(alone.stdout)["metrics"]["step_time_s"]
    assert not found
    assert len(rows(answer("--system", "dgx-h100", *plan, *fixed))) == 1
