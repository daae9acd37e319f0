"""The shipped tables, judged once; graphs cached for the session; and a toy kernel whose constants are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.kernels.gemm import GemmConstants
from slipstick.backends.machine.system import System
from slipstick.frontend import GraphCache
from slipstick.validation import kinds
from slipstick.validation.memory import MemoryJudge, Verdict
from slipstick.validation.rows.cases import Array, Case
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import read_table

HERE = Path(__file__).parent
TOY_SYSTEMS = {"H100": "dgx-h100", "A100": "dgx-a100-80gb", "X1": "no-such-system"}
TOY_HEADER = "id,dataset,accelerator,library,name,n_elements,time_us"


@dataclass(frozen=True, slots=True)
class ToyJudge:
    """T = overhead + (bytes + 10 x prologue x sqrt(bytes)) / (memory x bandwidth), with constants of products."""

    name: str = "toy"
    columns: tuple[str, ...] = ("id", "dataset", "accelerator", "library", "name", "n_elements", "time_us")

    def case(self, row: Row) -> Case[float]:
        given = row.text("accelerator")
        if given not in TOY_SYSTEMS:
            raise NotJudged(f"no system is a '{given}'")
        outlier = "slow by hand" if row.id.startswith("bad") else ""
        seconds = (row.measured("time_us") or 0.0) * 1e-6
        sizes = float(row.number("n_elements"))
        return Case(
            row, TOY_SYSTEMS[given], row.text("library"), "gemm", "bf16", row.text("name"), sizes, seconds, outlier
        )

    def seconds(self, cases: Sequence[Case[float]], system: System, constants: object) -> Array:
        assert isinstance(constants, GemmConstants)
        num_bytes = np.asarray([c.sizes for c in cases])
        moved = num_bytes + 10 * constants.prologue * np.sqrt(num_bytes)
        return np.asarray(constants.overhead_s + moved / (constants.memory * system.chip.hbm_bytes_per_s))

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        return tuple(f.name for f in fields(GemmConstants) if f.name not in ("overhead_s", "memory", "prologue"))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Sequence[str]], Path]:
    """Make the toy the only kernel there is; a function that writes a table of it."""
    monkeypatch.setattr(kinds, "kernel_judges", lambda: {"toy": ToyJudge()})

    def write(lines: Sequence[str], name: str = "toy.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join([TOY_HEADER, *lines]) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def judge(graph_folder: Path) -> MemoryJudge:
    return MemoryJudge(GraphCache(graph_folder))


@pytest.fixture(scope="session")
def memory(judge: MemoryJudge) -> list[Verdict]:
    return judge.judge(read_table(HERE / "memory.csv", []).rows)


@pytest.fixture(scope="session")
def fits(judge: MemoryJudge) -> list[Verdict]:
    return judge.judge(read_table(HERE / "fits.csv", []).rows)


@pytest.fixture
def row() -> Callable[..., Row]:
    """A complete row of a small Llama, with other cells on top."""
    cells = {
        "id": "one", "dataset": "mine", "accelerator": "H100-80GB", "layers": "2", "hidden": "64", "heads": "4",
        "ffn_hidden": "96", "vocab": "160", "seq_len": "64", "tp": "1", "pp": "1", "dp": "2", "micro_batch": "1",
        "global_batch": "4", "peak_allocated_bytes": "1e6",
    }  # fmt: skip
    return lambda **other: Row({**cells, **other})
