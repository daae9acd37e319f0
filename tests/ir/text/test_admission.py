"""What passes count on is asked of a graph of a file; every graph of the package has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.ir.errors import ParseError
from slipstick.ir.text.admission import MOST_SIZE, admission_problems
from slipstick.ir.text.files import graph_head, load_graph

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


@pytest.mark.parametrize("name", ["tiny-llama.train", "tiny-gpt2.train", "tiny-llama.decode"])
def test_no_line_of_a_graph_takes_the_place_of_another(name: str, tmp_path: Path) -> None:
    """A line that is given twice is refused, or changes nothing but what is said of the graph."""
    path, known = tmp_path / "a.graph", load_graph(GOLDEN / f"{name}.graph", verified=True)
    lines = (GOLDEN / f"{name}.graph").read_text(encoding="utf-8").splitlines()
    refused = 0
    for number, text in enumerate(lines):
        path.write_text("\n".join([*lines[: number + 1], text, *lines[number + 1 :]]), encoding="utf-8")
        try:
            graph = load_graph(path)
        except ParseError:
            refused += 1
        else:
            assert replace(graph, notes=known.notes, constraints=known.constraints, origin="") == known, text
    assert refused > 0.9 * len(lines)


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("schedule prologue | block0 x2499 | epilogue", "run more than 2,500 times; SLIPSTICK_LIMITS=N raises"),
        (f"schedule {' | '.join(['block0 x2'] * 1300)}", "run more than 2,500 times; SLIPSTICK_LIMITS=N raises"),
        (f"schedule prologue | block0 x{'9' * 5000} | epilogue", "line"),
        ("schedule prologue | block0 x0 | epilogue", "runs 'block0' no time"),
        ("schedule prologue | epilogue", "runs no region 'block0'"),
    ],
    ids=["runs", "parts", "digits", "none", "left out"],
)
def test_a_schedule_runs_each_region_and_no_more_than_any_model(schedule: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "a.graph"
    path.write_text(LLAMA.replace(SCHEDULE, schedule), encoding="utf-8")
    with pytest.raises(ParseError, match=told):
        load_graph(path)


def test_a_parameter_has_one_type_and_a_file_one_kind_of_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.graph"
    path.write_text(LLAMA.replace("self_attn.k_proj", "self_attn.q_proj"), encoding="utf-8")
    with pytest.raises(ParseError, match=r"'model\.layers\.\*\.self_attn\.q_proj\.weight' has several types"):
        load_graph(path)
    path.write_bytes(LLAMA.replace("\n", "\r\n").encode())
    assert graph_head(path) == graph_head(GOLDEN / "tiny-llama.train.graph") != ("", 0)


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
