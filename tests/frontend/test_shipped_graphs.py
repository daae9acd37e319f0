"""The package has the graphs of the catalogue: a model is answered without torch, as a recording would answer."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.benchmarks.graphs import RECORDED, TESTS, VARIANTS, Shipped, shipped
from slipstick.frontend import GraphCache, config_of, load, load_config
from slipstick.frontend.cache import SHIPPED, shipped_graph
from slipstick.frontend.huggingface.configs.models import Config, names, read_config
from slipstick.ir.graph import Graph, Workload
from slipstick.validation.rows.tables import read_table
from slipstick.validation.training.machine_shop import MachineShop
from slipstick.validation.training.outcomes import read_cases

# Of each architecture the model that is recorded soonest, and of llama one without groups of queries, too.
EACH = ("gpt2", "llama-2-7b", "llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b")
COLD = """
import sys
from slipstick.cli import run
code = run(sys.argv[1:])
loaded = {"torch", "transformers"} & set(sys.modules)
sys.exit(code or len(loaded))
"""


def test_the_package_has_these_graphs_and_no_others() -> None:
    assert {path.name for path in SHIPPED.iterdir()} == {one.path.name for one in shipped()}
    assert len(list(shipped())) == len(VARIANTS) * len(names())


def test_the_graphs_are_small() -> None:
    sizes = [path.stat().st_size for path in SHIPPED.iterdir()]
    assert max(sizes) < 10_000
    assert sum(sizes) < 300_000


@pytest.mark.parametrize(
    "name", [name if name in EACH else pytest.param(name, marks=pytest.mark.deep) for name in names()]
)
def test_a_graph_of_the_package_is_what_is_recorded_today(name: str) -> None:
    pytest.importorskip("transformers", reason="recording builds the model; install slipstick[hf]")
    for one in shipped([name]):
        assert shipped_graph(one.path) == one.recorded(), f"{one.path.name}: python -m benchmarks.graphs --write {name}"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_graphs_of_tables_that_tests_start_with_are_what_is_recorded_today(kind: str) -> None:
    # Those of other architectures are in the catalogue, which is recorded anew above; with --deep all of them are.
    pytest.importorskip("transformers", reason="recording builds the model; install slipstick[hf]")
    cases, _ = read_cases(read_table(TESTS / "validation" / "training_step.csv", []), MachineShop(), [])
    case = next(case for case in cases.values() if json.loads(case.config)["model_type"] == kind)
    config = config_of(case.row.text("model"), json.loads(case.config))
    said: list[str] = []
    kept = load_config(config, element=case.dtype, cache=GraphCache(RECORDED), report=said.append)
    assert said == [], "python -m benchmarks.graphs --tables"
    assert kept == load_config(config, element=case.dtype)


def test_a_model_of_the_catalogue_is_answered_without_torch(tmp_path: Path) -> None:
    words = ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--tp", "8", "--format", "json"]
    environment = {"SLIPSTICK_CACHE": str(tmp_path / "cache"), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", COLD, *words], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["metrics"]["step_time_s"] > 0
    assert not list((tmp_path / "cache").rglob("*.graph*"))


def test_a_cache_does_not_stand_before_the_package(tmp_path: Path) -> None:
    said: list[str] = []
    found = load("gpt2", cache=GraphCache(tmp_path), report=said.append)
    assert said == []
    assert found == shipped_graph(Shipped(read_config("gpt2"), Workload.TRAIN, False).path)


def test_without_a_cache_a_model_of_the_catalogue_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[str] = []
    graph = shipped_graph(next(iter(shipped(["gpt2"]))).path)

    def record(config: Config, *rest: object) -> Graph | None:
        recorded.append(config.name)
        return graph

    monkeypatch.setattr("slipstick.frontend.loading._record_config", record)
    load("gpt2")
    assert recorded == ["gpt2"]


def test_a_config_that_was_changed_finds_no_graph(tmp_path: Path) -> None:
    config = read_config("gpt2")
    changed = replace(config, text=config.text.replace('"n_layer":12', '"n_layer":13'))
    assert changed != config
    assert not Shipped(changed, Workload.TRAIN, False).path.exists()
    pytest.importorskip("transformers", reason="recording builds the model; install slipstick[hf]")
    assert load_config(changed, cache=GraphCache(tmp_path)) != load_config(config, cache=GraphCache(tmp_path))
