"""A schedule that is one more file is known everywhere: help, schema, plan files, estimates, searches, exports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from slipstick.ir.graph import Graph, Run
from slipstick.ir.text.printer import print_graph

# The example of the documentation: Looped BFS (Lamy-Poirier, arXiv 2211.05953; PyTorch's `ScheduleLoopedBFS`).
PAGE = Path(__file__).parents[3] / "docs" / "parallelism.md"
FILE = PAGE.read_text(encoding="utf-8").split("### One more schedule")[1].split("```text\n")[1].split("```")[0]
# Reads the room's folder and this one, then runs each line of stdin and prints what it says as JSON.
SCRIPT = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from slipstick.ir.schedules import known
known.__path__.append(sys.argv[1])
from slipstick.cli import run
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(line.split())
    print(json.dumps([line.strip(), [code, out.getvalue(), err.getvalue()]]))
import numpy as np
from slipstick.cost.schedules.happens_before import order_faults
from slipstick.cost.schedules.simulate import simulate
from slipstick.cost.schedules.tasks import StageTimes
part = np.ones((4, 2)) / 2
done = simulate("looped-bfs", StageTimes.of(part, part, part), 8)
found = [done.step_s, list(order_faults(done.schedule)), done.peak_in_flight.tolist()]
print(json.dumps(["simulate", [0, json.dumps(found), ""]]))
"""
SIZES = "--gpus 4 --pp 4 --gbs 8 --seq 128"
PLAN = f"{SIZES} --vpp 2 --schedule looped-bfs"
COMMANDS = {
    "help": "estimate --help-all",
    "schema": "schema plan",
    "estimate": f"estimate GRAPH --system dgx-h100 {PLAN} --format json",
    "read": "estimate GRAPH --plan FOLDER/plan.yaml --system dgx-h100 --format json",
    "torchtitan": f"export GRAPH {PLAN} --to torchtitan",
    "megatron": f"export GRAPH {PLAN} --to megatron",
    "search": f"search GRAPH --system dgx-h100 {SIZES} --schedule looped-bfs --no-ledger",
    "refused": f"estimate GRAPH --system dgx-h100 {SIZES} --vpp 2 --schedule gpipe",
}
Said = tuple[int, str, str]


@pytest.fixture(scope="module")
def said(traced: Callable[[str], Graph], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Said]:
    """Exit code, output and errors of each command where the file lies beside the others."""
    folder = tmp_path_factory.mktemp("new")
    (folder / "looped_bfs.py").write_text(FILE, encoding="utf-8")
    graph = traced("tiny-llama.train")
    runs = tuple(Run(run.regions, 16) if run.count > 1 else run for run in graph.schedule)
    deep = Graph(graph.name, graph.workload, graph.dtype, graph.regions, runs)
    (folder / "deep.graph").write_text(print_graph(deep), encoding="utf-8")
    said = dict(zip((word.strip("-") for word in PLAN.split()[::2]), PLAN.split()[1::2], strict=True))
    (folder / "plan.yaml").write_text("".join(f"{name}: {value}\n" for name, value in said.items()), encoding="utf-8")
    lines = [c.replace("GRAPH", f"{folder}/deep.graph").replace("FOLDER", str(folder)) for c in COMMANDS.values()]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    answers = [json.loads(line)[1] for line in done.stdout.splitlines()]
    return dict(zip((*COMMANDS, "simulate"), map(tuple, answers), strict=True))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("help", "looped-bfs (forward through all chunks first)"),
        ("schema", '"looped-bfs"'),
        ("estimate", '"schedule": "looped-bfs"'),
        ("read", '"schedule": "looped-bfs"'),
        ("torchtitan", "--parallelism.pipeline-parallel-schedule LoopedBFS"),
        ("megatron", "schedule looped-bfs: Megatron-LM runs 1F1B, interleaved with virtual stages"),
        ("search", "looped-bfs"),
    ],
)
def test_every_command_knows_it(said: Mapping[str, Said], command: str, words: str) -> None:
    code, out, err = said[command]
    assert code == 0, err
    assert words in " ".join(out.split())


def test_a_plan_file_says_what_flags_do(said: Mapping[str, Said]) -> None:
    told, read = (json.loads(said[command][1]) for command in ("estimate", "read"))
    assert told["metrics"] == read["metrics"]


def test_messages_name_it_among_what_is_legal(said: Mapping[str, Said]) -> None:
    code, _, err = said["refused"]
    assert code == 2
    assert "interleaves the schedules 1f1b and looped-bfs and zb-h1, not gpipe" in err


def test_its_tasks_run_as_its_paper_says(said: Mapping[str, Said]) -> None:
    """Equation 4 there: (p - 1)(tF + tB)/v on top of m (tF + tB); every stage holds all micro-batches."""
    assert json.loads(said["simulate"][1]) == [pytest.approx((8 + 3 / 2) * 3.0), [], [8.0] * 4]
