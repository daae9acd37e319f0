"""Operators without a rule, kept on request: typed, named, counted by their bytes, sharded and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.cautions import unpriced_byte_share
from slipstick.driver.estimate import estimate
from slipstick.frontend import GraphCache, load
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import call_of, op_def, work_of
from slipstick.ir.ops.unpriced import UnpricedAttrs, unpriced_calls
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

BATCH, SEQ = symbol("batch"), symbol("seq")
H, V = 64, 160
NET = """
import torch
from torch import Tensor, nn


class MaxNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(160, 64)
        self.lm_head = nn.Linear(64, 160, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(torch.cummax(self.embed_tokens(ids), dim=1).values)
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("unpriced") / "maxnet.py"
    path.write_text(NET, encoding="utf-8")
    return f"{path}:MaxNet"


@pytest.fixture(scope="module")
def graph(net: str) -> Graph:
    return load(net, allow_unpriced=True)


def test_the_operator_is_a_node_with_its_name_and_its_bytes(graph: Graph) -> None:
    region = graph.region("prologue")
    (node,) = (n for n in region.nodes if n.op == "unpriced")
    assert node.attrs == UnpricedAttrs("aten.cummax")
    assert node.phase is Phase.FORWARD
    work = work_of(region, node)
    assert work.read_bytes == BATCH * SEQ * H * 2
    assert work.write_bytes == BATCH * SEQ * H * (2 + 8)  # values in bf16, places in int64
    assert work.tensor_flops == work.vector_flops == 0


def test_gradients_go_through_it(graph: Graph) -> None:
    region = graph.region("prologue")
    assert {region.by_id[p].name for p, _ in region.grads} == {"embed_tokens.weight", "lm_head.weight"}


def test_the_graph_says_so_and_reads_back(graph: Graph) -> None:
    assert unpriced_calls(graph) == {"aten.cummax": 1}
    assert graph.notes == (
        "only the bytes of operators without a rule are counted, not what they compute: aten.cummax (1 call)",
    )
    assert parse_graph(print_graph(graph)) == graph


def test_a_name_is_needed(graph: Graph) -> None:
    region = graph.region("prologue")
    (node,) = (n for n in region.nodes if n.op == "unpriced")
    call = call_of(region, node)
    assert list(op_def("unpriced").complaints(call)) == []
    nameless = type(call)(call.op, UnpricedAttrs(""), call.inputs, call.outputs)
    assert list(op_def("unpriced").complaints(nameless)) == ["an operator without a rule needs its name"]


def test_the_share_of_bytes_is_that_of_a_sum_by_hand(net: str) -> None:
    prefill = load(net, "prefill", allow_unpriced=True)
    rows = 2.0 * 32.0
    unpriced = rows * H * (2 + 2 + 8)
    lookup = rows * (8 + H * 2 + H * 2)
    product = rows * (H + V) * 2 + H * V * 2
    share = unpriced_byte_share(prefill, {"batch": 2.0, "seq": 32.0})
    assert share == pytest.approx(unpriced / (unpriced + lookup + product))


def test_replicas_run_it_on_their_own_sequences(graph: Graph) -> None:
    answer = estimate(graph, load_system("dgx-h100"), make_plan(num_gpus=2, dp=2, seq_len=64, family=Family()))
    region = answer.table.lowered.graph.region("prologue")
    (node,) = (n for n in region.nodes if n.op == "unpriced")
    assert not any("unpriced" in str(n.attrs) for n in region.nodes if n.op == "all_gather")
    assert call_of(region, node).inputs[0].dims[0] == symbol("mbs")
    assert answer.breakdown_s["compute.unpriced"] > 0
    assert any("operators without a rule move" in w for w in answer.warnings)
    assert any("aten.cummax (1 call)" in w for w in answer.warnings)


def test_other_axes_run_it_whole(graph: Graph) -> None:
    answer = estimate(graph, load_system("dgx-h100"), make_plan(num_gpus=2, tp=2, seq_len=64, family=Family()))
    region = answer.table.lowered.graph.region("prologue")
    (node,) = (n for n in region.nodes if n.op == "unpriced")
    assert call_of(region, node).inputs[0].dims == (symbol("mbs"), SEQ, H)


def test_an_operator_that_its_handler_does_not_understand_is_kept_too(nets: str) -> None:
    assert set(unpriced_calls(load(f"{nets}:unusual", "prefill", allow_unpriced=True))) == {
        "aten.cummax",
        "aten.cummin",
    }


def test_graphs_with_and_without_are_cached_apart(tmp_path: Path, configs: Path) -> None:
    cache, said = GraphCache(tmp_path), list[str]()
    model = str(configs / "tiny-llama.json")
    first = load(model, "prefill", cache=cache, report=said.append)
    again = load(model, "prefill", cache=cache, report=said.append, allow_unpriced=True)
    assert first == again
    assert len(said) == 1  # nothing is unpriced in it, so the graph is the same
