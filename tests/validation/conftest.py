"""The shipped tables, judged once; graphs cached for the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.frontend import GraphCache
from slipstick.validation.memory import MEMORY_COLUMNS, MemoryJudge, Verdict
from slipstick.validation.rows import Row, read_rows

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> MemoryJudge:
    return MemoryJudge(GraphCache(tmp_path_factory.mktemp("graphs")))


@pytest.fixture(scope="session")
def memory(judge: MemoryJudge) -> list[Verdict]:
    return judge.judge(read_rows(HERE / "memory.csv", MEMORY_COLUMNS))


@pytest.fixture(scope="session")
def fits(judge: MemoryJudge) -> list[Verdict]:
    return judge.judge(read_rows(HERE / "fits.csv", MEMORY_COLUMNS))


@pytest.fixture
def row() -> Callable[..., Row]:
    """A complete row of a small Llama, with other cells on top."""
    cells = {
        "id": "one", "dataset": "mine", "accelerator": "H100-80GB", "layers": "2", "hidden": "64", "heads": "4",
        "ffn_hidden": "96", "vocab": "160", "seq_len": "64", "tp": "1", "pp": "1", "dp": "2", "micro_batch": "1",
        "global_batch": "4", "peak_allocated_bytes": "1e6",
    }  # fmt: skip
    return lambda **other: Row({**cells, **other})
