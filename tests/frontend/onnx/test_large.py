"""A model of 405B parameters without its weights: small files, little memory; `make bench` has the time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstick.benchmarks.onnx_model import FFN, HIDDEN, LAYERS, VOCABULARY, write

PROGRAM = """
import sys
from slipstick import Family, load, load_system, make_plan
from slipstick.driver.estimate import estimate
graph = load(sys.argv[1], "decode")
plan = make_plan(num_gpus=8, tp=8, kv_len=8192, seq_len=1, family=Family(workload=graph.workload))
answer = estimate(graph, load_system("dgx-h100"), plan)
loaded = sorted({"torch", "transformers"} & sys.modules.keys())
rss = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) // 1024
print(rss, loaded, answer.memory_bytes["weights"])
"""


@pytest.mark.slow
def test_a_405b_model_without_weights_is_estimated_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "llama-405b.onnx"
    write(path)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) < 500
    assert "[]" in done.stdout
    layer = HIDDEN * HIDDEN * 2 + HIDDEN * HIDDEN // 16 * 2 + 3 * HIDDEN * FFN
    table = HIDDEN * VOCABULARY * 2
    per_element = 0.5 + 2 / 32
    gains = (2 * LAYERS + 1) * HIDDEN * 2
    weights = (LAYERS * layer * per_element + 2 * table) / 8 + gains
    assert float(done.stdout.split()[-1]) == pytest.approx(weights, rel=1e-9)
