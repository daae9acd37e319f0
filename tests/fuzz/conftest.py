"""A folder with what hostile files stand beside: a model, a graph, a report and a ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.benchmarks.fuzz.seeds import prepare


@pytest.fixture(scope="package")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        _enter(folder, patch)
        prepare(folder)
    return folder


@pytest.fixture
def prepared(seeds: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in the folder for one test: workers of pytest run tests of other folders in between."""
    _enter(seeds, monkeypatch)
    return seeds


def _enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("SLIPSTICK_CACHE", str(folder / "cache"))
    patch.setenv("SLIPSTICK_RUNS", str(folder / "runs"))
    patch.chdir(folder)
