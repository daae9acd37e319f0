"""Sizes that code makes plain numbers: what is recorded, what is said of it, and which plans the graph is for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import sympy  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from sympy.parsing.sympy_parser import parse_expr  # type: ignore[import-untyped]
from torch.utils._sympy.functions import PythonMod

import slipstick
from slipstick.frontend.loading import load, load_model
from slipstick.frontend.runs.guards import MOST, GuardRanges, SizeGuard
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.errors import TraceError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, LengthBound, Phase
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.sizes.fixed_sizes import check_sizes
from slipstick.ir.text.files import load_graph, save_graph

from .. import described_nets as nets
from ..sums import flops

V, H, B = nets.VOCAB, nets.HIDDEN, {"batch": 4}
FILE = Path(nets.__file__)


def place(text: str) -> str:
    (number,) = (n for n, line in enumerate(FILE.read_text(encoding="utf-8").splitlines(), 1) if text in line)
    return f"{FILE}:{number}"


def at(name: str, seq: int, *fixed: str) -> Graph:
    """Load a factory for plans of a length, for a forward pass."""
    return load_model(
        f"{FILE}:{name}", "prefill", options=TraceOptions(fixed=fixed, sizes={"seq": seq, "kv": seq, "batch": 1})
    )


def check(graph: Graph, seq: int) -> None:
    check_sizes(graph, slipstick.make_plan(num_gpus=1, seq_len=seq, family=slipstick.Family(workload=graph.workload)))


def forward(graph: Graph) -> float:
    return float(flops(graph, Phase.FORWARD).evaluate(B))


def test_a_length_that_the_code_names_is_taken_whatever_was_asked() -> None:
    graph = at("OneLength", 2048)
    line = place("the line that names 512")
    assert graph.bounds == (LengthBound("seq", 512, 512, where=line),)
    assert graph.notes == (f"seq is fixed at 512: {line} works at that size alone",)
    assert forward(graph) == 4 * 512 * 2 * H * V
    check(graph, 512)
    with pytest.raises(
        UsageError, match=r"is recorded for seq = 512 .* not for 2048: give --seq 512.*--fixed seq=2048"
    ):
        check(graph, 2048)


def test_a_length_that_is_made_a_number_is_that_of_the_plan() -> None:
    graph = at("AsNumber", 96)
    line = place("the line that makes a number")
    assert graph.bounds == (LengthBound("seq", 96, 96, where=line),)
    assert line in graph.notes[0]
    assert forward(graph) == 4 * (2 * 96 * 96 * H + 96 * 2 * H * V)
    with pytest.raises(UsageError, match="is recorded for seq = 96"):
        check(graph, 48)


def test_the_int_of_a_size_is_that_size_and_stays_open() -> None:
    graph = at("AsInt", 96)
    assert (graph.bounds, graph.notes) == ((), ())
    seq = symbol("seq")
    assert flops(graph, Phase.FORWARD) == symbol("batch") * (2 * seq * seq * H + seq * 2 * H * V)
    assert "int" not in vars(nets)


def test_without_a_plan_the_length_must_be_said() -> None:
    with pytest.raises(TraceError, match=r"uses the size of seq as a plain number.*--fixed seq=LENGTH"):
        load(f"{FILE}:AsNumber", "prefill")
    assert load_model(f"{FILE}:AsNumber", "prefill", options=TraceOptions(fixed=("seq=64",))).bounds == (
        LengthBound("seq", 64, 64),
    )
    with pytest.raises(UnknownNameError, match="did you mean 'seq'"):
        load_model(f"{FILE}:AsNumber", "prefill", options=TraceOptions(fixed=("sec=64",)))
    with pytest.raises(UsageError, match="SIZE=NUMBER"):
        load_model(f"{FILE}:AsNumber", "prefill", options=TraceOptions(fixed=("seq=long",)))


def test_code_that_decides_by_the_length_is_recorded_for_that_of_the_plan() -> None:
    """Beyond 1000 positions there are two products more; both graphs stay open within their side."""
    short, long = at("Decides", 512), at("Decides", 2048)
    assert [b.legal for b in (*short.bounds, *long.bounds)] == ["2 to 1000", "1001 or more"]
    assert (short.notes, len(long.notes)) == ((), 1)
    assert place("the line that decides") in long.notes[0]
    sizes = {**B, "seq": 4096}
    assert flops(long).evaluate(sizes) == 3 * 4 * 4096 * 2 * H * V
    with pytest.raises(UsageError, match="is recorded for seq = 1001 or more"):
        check(long, 512)


def test_pieces_of_the_sequence_are_as_many_as_the_plan_has() -> None:
    graph = at("Chunks", 128)
    (bound,) = graph.bounds
    assert bound.holds(128)
    assert not bound.holds(112)
    assert not bound.holds(129)
    tanh = [n for r in graph.regions for n in r.nodes if "'tanh'" in str(getattr(n.attrs, "fns", ""))]
    assert len(tanh) == 8


def test_a_table_of_positions_is_the_longest_length() -> None:
    for seq in (256, 1024):
        graph = at("AtMost", seq)
        assert [(b.name, b.legal) for b in graph.bounds] == [("seq", "2 to 512")]
        assert graph.notes == ()
        with pytest.raises(UsageError, match="is recorded for seq = 2 to 512"):
            check(graph, 1024)


def test_a_module_in_hand_is_of_the_length_of_its_example() -> None:
    ids = torch.zeros(2, 24, dtype=torch.int64)
    graph = slipstick.trace(nets.AsNumber(), ids, phase="prefill")
    assert [b.legal for b in graph.bounds] == ["24"]
    assert slipstick.trace(nets.AsNumber(), ids, phase="prefill", fixed={"seq": 32}).bounds == (
        LengthBound("seq", 32, 32),
    )
    with pytest.raises(UnknownNameError, match="allowed: batch, seq"):
        slipstick.trace(nets.AsNumber(), ids, fixed={"kv": 32})


@pytest.mark.parametrize("net", [nets.LongKernel, nets.AsNumber, nets.AsInt, nets.Decides, nets.Chunks, nets.AtMost])
@pytest.mark.parametrize(("batch", "seq"), [(2, 64), (1, 32), (48, 48)])
def test_a_graph_holds_at_the_sizes_of_its_example(net: type[torch.nn.Module], batch: int, seq: int) -> None:
    graph = slipstick.trace(net(), torch.zeros(batch, seq, dtype=torch.int64), phase="prefill")
    assert all(b.holds({"batch": batch, "seq": seq}[b.name]) for b in graph.bounds)


def test_a_length_that_cannot_stay_open_is_that_of_the_plan_then_of_the_example() -> None:
    ids = torch.zeros(2, 64, dtype=torch.int64)
    assert [b.legal for b in slipstick.trace(nets.LongKernel(), ids, phase="prefill").bounds] == ["64"]
    options = TraceOptions(sizes={"seq": 32, "kv": 32, "batch": 1})
    assert [b.legal for b in load_model(f"{FILE}:LongKernel", "prefill", "fp32", options=options).bounds] == ["32"]
    with pytest.raises(TraceError, match="a Fourier transform over an open size"):
        load(f"{FILE}:LongKernel", "prefill", "fp32")  # nobody said a length, and the code names none


def test_features_that_were_taken_for_a_length_are_none() -> None:
    """Rows [batch, features] without a word on their dims: the code names the number of features."""
    graph = slipstick.trace(torch.nn.Linear(20, 30), torch.zeros(2, 20), phase="prefill")
    assert graph.bounds == ()
    assert flops(graph) == 2 * 20 * 30 * symbol("batch")


def test_what_dynamo_and_export_asked_of_the_length_holds_for_their_graphs() -> None:
    ids = torch.zeros(2, 48, dtype=torch.int64)
    torch._dynamo.mark_dynamic(ids, (0, 1))
    with slipstick.capture() as captured:
        torch.compile(nets.Decides(), backend=slipstick.backend)(ids)
    assert [(b.name, b.legal) for b in captured.graph().bounds] == [("seq", "2 to 1000")]
    open_dims = {"ids": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    program = torch.export.export(nets.AtMost(), (torch.zeros(2, 48, dtype=torch.int64),), dynamic_shapes=open_dims)
    assert [(b.name, b.legal) for b in slipstick.load_exported(program).bounds] == [("seq", "2 to 512")]


def test_bounds_are_part_of_the_text_of_a_graph(tmp_path: Path) -> None:
    graph = at("Chunks", 128)
    save_graph(graph, tmp_path / "chunks.graph")
    assert load_graph(tmp_path / "chunks.graph").bounds == graph.bounds


def test_a_condition_is_looked_at_once_and_far_only_where_near_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    look = SizeGuard.at

    def counted(self: SizeGuard, name: str, values: NDArray[np.int64], others: Mapping[str, int]) -> NDArray[np.bool_]:
        lengths.append(len(values))
        return look(self, name, values, others)

    monkeypatch.setattr(SizeGuard, "at", counted)
    ranges, seq = GuardRanges({"seq": 48}), sympy.Symbol("seq", integer=True, positive=True)
    for condition, looks in ((seq <= 1000, [4097]), (seq >= 20, [4097, MOST + 1])):
        lengths.clear()
        for _ in range(2):
            ranges.bounds([SizeGuard(condition, "here")])
        assert lengths == looks


@pytest.mark.parametrize(
    ("text", "recorded", "legal"),
    [
        ("Eq(Mod(seq, 16), 0)", 48, "16 or more in steps of 16"),
        ("Eq(Mod(seq, 10000), 48)", 48, "48 or more in steps of 10000"),  # the next one is not near
        ("seq <= 1000", 48, "2 to 1000"),
        ("seq <= 600000", 48, "2 to 600000"),
        ("Ne(seq, 100)", 48, "2 or more but 100"),
        ("Eq(seq, 48)", 48, "48"),
    ],
)
def test_a_range_is_the_same_near_and_far(text: str, recorded: int, legal: str) -> None:
    seq = sympy.Symbol("seq", integer=True, positive=True)
    expr = parse_expr(text, local_dict={"seq": seq, "Mod": PythonMod})
    (bound,) = GuardRanges({"seq": recorded}).bounds([SizeGuard(expr, "here")])
    assert bound.legal == legal
