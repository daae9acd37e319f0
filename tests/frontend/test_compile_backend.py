"""`torch.compile(model, backend="slipstick")`: the model runs as it did, and what was handed over can be estimated."""

from __future__ import annotations

import logging
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import slipstick
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Phase
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.text.files import load_graph

from .nets_traced import IDS, LAYERS, VOCAB, Net
from .sums import flops, num_ops


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def test_results_and_gradients_are_those_of_the_model() -> None:
    torch.manual_seed(0)
    net, ids = Net(), torch.randint(VOCAB, (2, 16))
    plain = net(ids)
    plain.sum().backward()
    grads = [p.grad for p in net.parameters()]
    net.zero_grad()
    with slipstick.capture():
        compiled = torch.compile(net, backend=slipstick.backend)(ids)
    compiled.sum().backward()
    assert torch.equal(compiled, plain)
    for parameter, expected in zip(net.parameters(), grads, strict=True):
        assert parameter.grad is not None
        assert expected is not None
        assert torch.equal(parameter.grad, expected)


def test_fixed_sizes_stay_and_a_second_call_opens_them() -> None:
    compiled = torch.compile(Net(), backend=slipstick.backend)
    with slipstick.capture("net") as captured:
        compiled(IDS)
        fixed = captured.graph()
        compiled(torch.zeros(3, 24, dtype=torch.int64))
        opened = captured.graph("train")
    assert fixed.name == "net"
    assert "the sizes are fixed: ids is [2, 16]" in fixed.notes[0]
    assert not flops(fixed).symbols
    assert "compiled 2 times, the last is taken" in opened.notes
    assert flops(opened).symbols == {"batch", "seq"}
    assert flops(opened).evaluate({"batch": 2.0, "seq": 16.0}) == flops(fixed)
    assert [r.count for r in opened.schedule] == [1, LAYERS, 1]


def test_numbers_that_a_module_holds_are_numbers_in_a_graph_of_open_sizes() -> None:
    """With every size open Dynamo hands over the floats of modules, as the `eps` of a norm, as tensors."""
    module = nn.Sequential(nn.LayerNorm(32, eps=1e-3), nn.Linear(32, 16, bias=False)).eval()
    with slipstick.capture() as captured, torch.no_grad():
        torch.compile(module, backend=slipstick.backend, dynamic=True)(torch.zeros(2, 8, 32))
    graph = captured.graph("prefill")
    assert graph.num_parameters == 32 + 32 + 32 * 16
    assert flops(graph).evaluate({"batch": 2.0, "seq": 8.0}) == 2 * 2 * 8 * 32 * 16


class Broken(nn.Module):
    """A model that Dynamo breaks in two."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 64, bias=False), nn.Linear(64, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        torch._dynamo.graph_break()
        out: Tensor = self.second(h)
        return out


# Dynamo looks at `.grad` of what the first part made, and torch warns of it.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_a_broken_model_gives_its_parts_in_order() -> None:
    with slipstick.capture() as captured:
        torch.compile(Broken(), backend=slipstick.backend)(torch.zeros(8, 32, requires_grad=True))
    first, second = captured.graphs("train")
    assert first.notes[0] == "graph 1 of 2 that torch.compile broke the model into"
    assert first.num_parameters == 32 * 64
    assert second.num_parameters == 64 * 16
    # forward once, backward twice: for the weight and for what came in
    assert flops(first, Phase.BACKWARD) == 2 * flops(first) == 2 * 2 * 8 * 32 * 64
    assert flops(second, Phase.BACKWARD) == 2 * flops(second) == 2 * 2 * 8 * 64 * 16
    with pytest.raises(UsageError, match="broken into 2 graphs"):
        captured.graph()


def test_nothing_captured_is_said() -> None:
    with slipstick.capture() as captured:
        pass
    with pytest.raises(UsageError, match="nothing was captured"):
        captured.graph()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_without_a_capture_a_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="slipstick.capture"):
        torch.compile(Broken(), backend=slipstick.backend)(torch.zeros(8, 32))
    lines = [r.getMessage() for r in caplog.records if r.name == "slipstick.capture"]
    assert len(lines) == 2
    assert "not kept: no capture is active" in lines[0]


def test_a_folder_in_the_environment_gets_the_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTICK_CAPTURE", str(tmp_path))
    torch.compile(Net(), backend=slipstick.backend)(IDS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["compiled-0.prefill.graph", "compiled-0.train.graph"]
    assert num_ops(load_graph(tmp_path / "compiled-0.train.graph"), Phase.BACKWARD)["attention_bwd"] == LAYERS


class Flex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, 64), nn.Linear(64, VOCAB)
        self.mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 100), None, None, 256, 256, "cpu")

    def forward(self, ids: Tensor) -> Tensor:
        b, t = ids.shape
        x = self.embed(ids).view(b, t, 4, 16).transpose(1, 2)
        y = flex_attention(x, x, x, block_mask=self.mask)
        assert isinstance(y, Tensor)
        out: Tensor = self.head(y.transpose(1, 2).reshape(b, t, 64))
        return F.relu(out)


def test_flex_attention_says_what_its_mask_lets_through() -> None:
    with slipstick.capture() as captured, torch.no_grad():
        torch.compile(Flex(), backend=slipstick.backend, fullgraph=True)(torch.zeros(1, 256, dtype=torch.int64))
    graph = captured.graph()
    attention = next(n for r in graph.regions for n in r.nodes if n.op == "attention")
    assert isinstance(attention.attrs, AttentionAttrs)
    assert (attention.attrs.causal, attention.attrs.window) == (True, 100)


def test_the_backend_is_registered_under_its_name() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    given = project["entry-points"]["torch_dynamo_backends"]["slipstick"]
    assert EntryPoint("slipstick", given, "torch_dynamo_backends").load() is slipstick.backend
