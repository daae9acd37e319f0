"""What ran against what was read: products, attention and convolutions, forward and backward, by their FLOPs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

import slipstick
from slipstick.frontend.aten.fx_import import Importer
from slipstick.frontend.aten.table import HANDLERS
from slipstick.frontend.fold import trace as tracing
from slipstick.ir.errors import InternalError


class Everything(nn.Module):
    """Every kind of call that is counted: pictures of 8x8 to 16 tokens, attention among them, and back to pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.each = nn.Conv2d(3, 8, 2, 2), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.mix, self.back = nn.Linear(8, 24, bias=False), nn.ConvTranspose2d(8, 3, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.each(self.patch(x))
        q, k, v = self.mix(maps.flatten(2).transpose(1, 2)).reshape(x.shape[0], -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        made: Tensor = self.back(y.transpose(2, 3).reshape(maps.shape))
        return made


CALLS = (
    "aten.mm", "slipstick.attention", "slipstick.attention_bwd", "aten.convolution",
    "aten.convolution_backward",
)  # fmt: skip


def test_all_that_is_counted_is_read_as_it_ran() -> None:
    graph = slipstick.trace(Everything(), torch.zeros(2, 3, 8, 8))
    assert graph.num_parameters == sum(p.numel() for p in Everything().parameters())


@pytest.mark.parametrize("call", CALLS)
def test_a_rule_that_reads_a_call_twice_is_found(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = HANDLERS[call]

    def twice(im: Importer, node: fx.Node) -> None:
        rule(im, node)
        rule(im, node)

    monkeypatch.setattr(tracing, "HANDLERS", {**HANDLERS, call: twice})
    with pytest.raises(InternalError, match=r"are not read as they ran"):
        slipstick.trace(Everything(), torch.zeros(2, 3, 8, 8))


def test_attention_over_other_keys_than_ran_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that takes the queries for keys and values, as where fewer heads or other lengths were given."""
    rule = HANDLERS["slipstick.attention"]

    def other(im: Importer, node: fx.Node) -> None:
        q, k, v = (a for a in node.args[:3] if isinstance(a, fx.Node))
        im.ids[k] = im.ids[v] = im.ids[q]
        rule(im, node)

    class Crossed(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, y, y)

    given, dims = (torch.zeros(2, 4, 8, 16), torch.zeros(2, 4, 6, 16)), {"x": ("batch",), "y": ("batch",)}
    slipstick.trace(Crossed(), given, dims, phase="prefill")
    monkeypatch.setattr(tracing, "HANDLERS", {**HANDLERS, "slipstick.attention": other})
    with pytest.raises(InternalError, match=r"attentions of .* in forward are not read"):
        slipstick.trace(Crossed(), given, dims, phase="prefill")
