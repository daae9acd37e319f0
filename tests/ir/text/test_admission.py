"""What passes count on is asked of a graph of a file; every graph of the package has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.ir.errors import ParseError
from slipstick.ir.text.admission import MOST_SIZE, admission_problems
from slipstick.ir.text.files import load_graph

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
LLAMA = (GOLDEN / "tiny-llama.train.graph").read_text(encoding="utf-8")
SHIPPED = sorted((ROOT / "frontend" / "catalogue" / "graphs").glob("*.graph.gz"))


def line(start: str, text: str = LLAMA) -> str:
    """Return the first line that starts so, behind spaces."""
    return next(line for line in text.splitlines() if line.strip().startswith(start))


SCHEDULE = line("schedule ")


def test_a_graph_whose_order_makes_no_sense_is_refused_at_the_door(tmp_path: Path) -> None:
    path = tmp_path / "a.graph"
    path.write_text(LLAMA.replace(SCHEDULE, "schedule epilogue | block0 x2 | prologue"), encoding="utf-8")
    with pytest.raises(ParseError, match=r"a\.graph"):
        load_graph(path)


def test_a_dim_beyond_any_model_is_a_problem() -> None:
    graph = load_graph(GOLDEN / "tiny-llama.train.graph")
    assert list(admission_problems(graph)) == []
    first = graph.regions[0]
    value = next(value for value in first.values if value.type.dims)
    wide = replace(value, type=replace(value.type, dims=(MOST_SIZE + 1, *value.type.dims[1:])))
    region = replace(first, values=tuple(wide if one is value else one for one in first.values))
    told = " ".join(admission_problems(graph.with_regions((region, *graph.regions[1:]))))
    assert f"%{value.id} has a dim of {MOST_SIZE + 1}; 0 to {MOST_SIZE:,} are allowed" in told


@pytest.mark.parametrize("path", [*SHIPPED[::9], *sorted(GOLDEN.glob("*.graph"))], ids=lambda path: path.name)
def test_the_graphs_of_the_package_are_let_in(path: Path) -> None:
    assert load_graph(path).origin == str(path)
    assert load_graph(path, verified=True).origin == ""
    assert load_graph(path) == load_graph(path, verified=True)
