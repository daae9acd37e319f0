"""What an estimate of a recorded model does without: libraries that take as long to load as the estimate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
