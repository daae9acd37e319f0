"""Regions on pipeline stages: what each stage runs, and which stages are alike."""

from collections.abc import Callable

import pytest

from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Region, Run, Workload
from slipstick.ir.layers import num_layers
from slipstick.ir.plan.layout.stages import StageLayout, chunk_rows, lay_stages
from slipstick.ir.types import DType


def sizes(layout: StageLayout) -> dict[int, tuple[tuple[int, ...], int]]:
    return {c.first: (c.counts, c.number) for c in layout.classes}


def test_ends_stand_on_the_end_stages(twelve: Graph) -> None:
    assert num_layers(twelve) == 12
    # Regions are prologue, block0, epilogue.
    assert sizes(lay_stages(twelve, "even", 4)) == {0: ((1, 3, 0), 1), 1: ((0, 3, 0), 2), 3: ((0, 3, 1), 1)}
    assert sizes(lay_stages(twelve, "even", 1)) == {0: ((1, 12, 1), 1)}


def test_chunks_of_a_stage_are_dealt_out_in_turn(twelve: Graph) -> None:
    layout = lay_stages(twelve, "1,2,3,1,2,3", 3, 2)
    assert sizes(layout) == {0: ((1, 2, 0), 1), 1: ((0, 4, 0), 1), 2: ((0, 6, 1), 1)}
    assert str(layout) == "1+1, 2+2, 3+3"


def test_auto_balances_only_what_does_not_divide(twelve: Graph) -> None:
    costs = [0.0, 1.0, 2.0]
    assert lay_stages(twelve, "auto", 4, costs=costs).blocks == (3, 3, 3, 3)
    assert lay_stages(twelve, "auto", 5, costs=costs).blocks == lay_stages(twelve, "balanced", 5, costs=costs).blocks
    assert lay_stages(twelve, "balanced", 5, costs=costs).blocks[-1] == 1


def test_layouts_print_equal_neighbours_once(twelve: Graph) -> None:
    assert str(lay_stages(twelve, "even", 4)) == "3 (x4)"
    assert str(lay_stages(twelve, "3,3,4,2", 4)) == "3 (x2), 4, 2"


@pytest.mark.parametrize(
    ("policy", "pp", "vpp", "said"),
    [
        ("auto", 13, 1, "pp=13 x vpp=1 = 13 stages are more than the 12 layers"),
        ("even", 5, 3, "pp=5 x vpp=3 = 15 stages are more than the 12 layers"),
        ("6,6", 4, 1, "pp=4 x vpp=1 needs 4 parts of 12 layers together"),
        ("6,7", 2, 1, "2 parts of 13 layers together"),
    ],
)
def test_stages_without_layers_are_refused(twelve: Graph, policy: str, pp: int, vpp: int, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        lay_stages(twelve, policy, pp, vpp)
    assert said in str(caught.value)


def test_chunks_hold_the_ends_and_layers_in_the_form_that_recomputes() -> None:
    names = ("start", "layer", "layer_recomputed", "end")
    runs = (Run(("start",)), Run(("layer",), 4), Run(("end",)))
    graph = Graph("g", Workload.TRAIN, DType.BF16, tuple(Region(n, (), ()) for n in names), runs)
    two = lay_stages(graph, "even", 2)
    assert chunk_rows(graph, two) == [("start", "layer", "layer"), ("layer", "layer", "end")]
    # The first layer of each chunk recomputes; without stages layers stay as the graph has them.
    again = [("start", names[2], "layer"), (names[2], "layer", "end")]
    assert chunk_rows(graph, two, 1) == again
    assert chunk_rows(graph, lay_stages(graph, "even", 1), 1) == [("start", *["layer"] * 4, "end")]
    uneven = lay_stages(graph, "3,1", 2)
    assert chunk_rows(graph, uneven) == [("start", "layer", "layer", "layer"), ("layer", "end")]


@pytest.fixture
def sixteen(traced: Callable[[str], Graph]) -> Graph:
    """The small Llama with sixteen layers: regions are prologue, block0, epilogue."""
    graph = traced("tiny-llama.train")
    runs = tuple(Run(r.regions, 16) if r.count > 1 else r for r in graph.schedule)
    return Graph(graph.name, graph.workload, graph.dtype, graph.regions, runs)


def test_a_v_has_both_ends_of_the_model_on_its_first_stage(sixteen: Graph) -> None:
    layout = lay_stages(sixteen, "1,2,3,2,2,3,2,1", 4, 2, schedule="zb-v")
    assert [c.counts for c in layout.classes] == [(1, 2, 1), (0, 4, 0), (0, 6, 0)]
    assert layout.stages == (0, 1, 2, 1)
    assert str(layout) == "1+1, 2+2, 3+3, 2+2"
    assert layout.copies == 1


def test_two_copies_have_both_ends_on_both_end_stages(sixteen: Graph) -> None:
    layout = lay_stages(sixteen, "even", 4, schedule="dualpipe")
    assert [(c.counts, c.first, c.number) for c in layout.classes] == [((1, 8, 1), 0, 2), ((0, 8, 0), 1, 2)]
    assert layout.stages == (0, 1, 1, 0)
    assert layout.copies == 2


def test_stages_of_a_row_know_their_class(sixteen: Graph) -> None:
    assert lay_stages(sixteen, "even", 4).stages == (0, 1, 1, 2)
    assert lay_stages(sixteen, "4,3,4,5", 4).stages == (0, 1, 2, 3)
