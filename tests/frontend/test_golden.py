"""Small models, recorded and folded, as text: what changes here must be meant to change.

`pytest tests/frontend --update-golden` writes the files anew; read the difference before it is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [
    ("tiny-llama", "train"), ("tiny-gpt2", "train"), ("tiny-mixtral", "train"), ("tiny-llama", "decode"),
    ("tiny-mamba2", "train"), ("tiny-bamba", "decode"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "workload"), CASES)
def test_the_graph_is_the_golden_one(name: str, workload: str, configs: Path, request: pytest.FixtureRequest) -> None:
    graph = load(str(configs / f"{name}.json"), workload)
    file = GOLDEN / f"{name}.{workload}.graph"
    if request.config.getoption("--update-golden", default=False):
        file.write_text(print_graph(graph), encoding="utf-8")
    assert print_graph(graph) == file.read_text(encoding="utf-8")
    assert parse_graph(file.read_text(encoding="utf-8")) == graph


def test_no_golden_file_is_left_over() -> None:
    assert {file.name for file in GOLDEN.iterdir()} == {f"{name}.{workload}.graph" for name, workload in CASES}


PRINT = """
import sys
from slipstick.frontend import load
from slipstick.ir.text.printer import print_graph
for file in sys.argv[1:]:
    print(*(print_graph(load(file, workload)) for workload in ("train", "decode")))
"""


@pytest.mark.slow
def test_a_graph_is_the_same_in_every_run_of_python(configs: Path) -> None:
    # Sets of texts are in another order under another seed, "full_attention" and "sliding_attention" among them.
    # Steps that train and have a golden graph are compared with it in every run, each of another seed.
    golden = {name for name, workload in CASES if workload == "train"}
    files = sorted(str(file) for file in configs.glob("tiny-*.json") if file.stem not in golden)
    # This run has a seed of its own.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    with subprocess.Popen(
        [sys.executable, "-c", PRINT, *files],
        env=os.environ | {"PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        graphs = [[print_graph(load(file, workload)) for workload in ("train", "decode")] for file in files]
        other = run.communicate()[0]
    one = "".join(" ".join(two) + "\n" for two in graphs)
    assert one.count("graph ") >= 2 * len(files)
    assert one == other
