"""A folder with what hostile files stand beside: a model, a graph, a report and a ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstick.benchmarks.fuzz.seeds import prepare


@pytest.fixture(scope="package")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder, before = tmp_path_factory.mktemp("fuzz"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPSTICK_CACHE", str(folder / "cache"))
        patch.setenv("SLIPSTICK_RUNS", str(folder / "runs"))
        os.chdir(folder)
        prepare(folder)
        yield folder
        os.chdir(before)
