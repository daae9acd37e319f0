"""What an estimate of a recorded model does without: libraries that take as long to load as the estimate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = """torch transformers yaml networkx jinja2 onnx tree_sitter scipy pandas duckdb sqlite3 ray altair matplotlib
multiprocessing asyncio unittest logging subprocess socket http email"""
# Floors that an estimate of one plan has no use for.
IDLE = ("slipstick.explore", "slipstick.validation", "slipstick.measured", "slipstick.watch")


def test_an_estimate_of_a_recorded_model_loads_nothing_heavy(tmp_path: Path) -> None:
    words = ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "8", "--tp", "8", "--gbs", "8", "-q"]
    code = f"import sys; from slipstick.cli import run; run({words!r}); sys.stderr.write('\\n'.join(sys.modules))"
    # The first one keeps what it reads of the catalogue.
    kept = {**os.environ, "SLIPSTICK_CACHE": str(tmp_path)}
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept).stderr
        for _ in range(2)
    ]
    loaded = said[1].split()
    assert "slipstick.driver.estimate" in loaded
    assert [name for name in loaded if name in HEAVY.split() or name.startswith(IDLE)] == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no list of threads")
@pytest.mark.parametrize(("verb", "is_alone"), [("estimate", True), ("calibrate", False)])
def test_a_command_starts_no_threads_of_linear_algebra(verb: str, is_alone: bool) -> None:
    code = f"""
import os
from slipstick import cli

def run(args):
    import numpy
    print(len(os.listdir("/proc/self/task")))
    return 0

cli.run = run
cli.main([{verb!r}])
"""
    given = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=given)
    threads = len(os.sched_getaffinity(0))
    assert int(ran.stdout) == (1 if is_alone else threads)
