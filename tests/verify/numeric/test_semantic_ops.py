"""References of semantic ops against torch's and transformers' own functions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from slipstick.ir.graph import NO_ATTRS, Attrs, Node, Value
from slipstick.ir.meaning import Meaning, OperatorCall
from slipstick.ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from slipstick.ir.ops.fused.experts import ExpertsAttrs, GroupedAttrs
from slipstick.ir.ops.fused.index_keys import IndexAttrs
from slipstick.ir.ops.fused.routing import RoutedAttrs
from slipstick.ir.ops.fused.scan import ScanAttrs
from slipstick.ir.ops.tensors.conv import ConvAttrs
from slipstick.ir.ops.tensors.normalize import DimAttrs, NormAttrs
from slipstick.ir.placement import EP, REPLICATE, TP, Shard
from slipstick.ir.types import DType, TensorType
from slipstick.verify.numeric.call import NotComputedError, RankCall, Reference
from slipstick.verify.numeric.ops import (
    attention as ops_attention,
)
from slipstick.verify.numeric.ops import attention as ops_loss
from slipstick.verify.numeric.ops import attention as ops_norm
from slipstick.verify.numeric.ops import (
    experts as ops_experts,
)
from slipstick.verify.numeric.ops import scan as ops_conv
from slipstick.verify.numeric.ops import (
    scan as ops_scan,
)

pytestmark = pytest.mark.oracle
TABLES: Mapping[str, Reference] = {
    k: v for m in (ops_attention, ops_conv, ops_experts, ops_loss, ops_norm, ops_scan) for k, v in m.REFERENCES.items()
}


def run(
    op: str, attrs: Attrs, *inputs: Tensor, dims: tuple[tuple[int, ...], ...] = (), outs: int = 1,
    said: Mapping[str, object] | None = None, operator: str = "slipstick.it", rank: Mapping[str, int] | None = None,
    degrees: Mapping[str, int] | None = None, sources: tuple[Value, ...] = (),
) -> tuple[Tensor, ...]:  # fmt: skip
    meaning = Meaning((OperatorCall(operator, tuple(said.items())),), ()) if said is not None else None  # type: ignore[arg-type]
    node = Node(op, tuple(range(len(inputs))), (99,), attrs, meaning=meaning)
    return TABLES[op](RankCall(node, inputs, dims or ((),) * outs, rank or {}, degrees or {}, sources))


def rand(*dims: int) -> Tensor:
    return torch.randn(*dims, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_attention_is_torchs() -> None:
    q, k, v = rand(2, 4, 6, 8), rand(2, 2, 6, 8), rand(2, 2, 6, 5)
    want = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
    out, lse = run("attention", AttentionAttrs(), q, k, v, outs=2)
    close(out, want)
    assert lse.shape == (2, 4, 6)
    bias = rand(1, 4, 6, 6)
    want = F.scaled_dot_product_attention(q, k, v, bias, scale=0.3, enable_gqa=True).transpose(1, 2)
    close(run("attention", AttentionAttrs(False, bias=True), q, k, v, bias, outs=2, said={"scale": 0.3})[0], want)
    mask = torch.rand(2, 1, 6, 6) > 0.3
    mask[..., 0] = True
    want = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(1, 2)
    close(run("attention", AttentionAttrs(False, bias=True), q, k, v, mask, outs=2)[0], want)


def test_windows_sinks_caps_chunks_and_chosen_keys() -> None:
    q, k, v = rand(1, 2, 5, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4)
    scores = q @ k.transpose(2, 3) / 2
    back = torch.arange(5)[:, None] - torch.arange(5)[None]

    def attend(s: Tensor, seen: Tensor) -> Tensor:
        return (s.masked_fill(~seen, -1e30).softmax(-1) @ v).transpose(1, 2)

    close(run("attention", AttentionAttrs(window=2), q, k, v, outs=2)[0], attend(scores, (back >= 0) & (back < 2)))
    capped = 3 * torch.tanh(scores / 3)
    close(run("attention", AttentionAttrs(softcap=3.0), q, k, v, outs=2)[0], attend(capped, back >= 0))
    same_chunk = torch.arange(5)[:, None] // 2 == torch.arange(5)[None] // 2
    said = {"chunk": 2}
    close(
        run("attention", AttentionAttrs(window=2), q, k, v, outs=2, said=said)[0],
        attend(scores, (back >= 0) & same_chunk),
    )
    sinks = rand(2)
    out, lse = run("attention", AttentionAttrs(sinks=True), q, k, v, sinks, outs=2)
    whole = torch.cat((scores.masked_fill(back < 0, -1e30), sinks.view(1, 2, 1, 1).expand(1, 2, 5, 1)), -1)
    close(out, (whole.softmax(-1)[..., :5] @ v).transpose(1, 2))
    close(lse, whole.logsumexp(-1))
    ids = torch.tensor([[[0, 1], [0, 1], [0, 2], [1, 3], [2, 4]]])
    chosen = torch.zeros(5, 5, dtype=torch.bool).scatter_(1, ids[0], True) & (back >= 0)
    close(run("attention", AttentionAttrs(keys=2), q, k, v, ids, outs=2)[0], attend(scores, chosen))


def test_gradients_of_attention() -> None:
    q, k, v, sinks = (t.requires_grad_() for t in (rand(2, 4, 6, 8), rand(2, 2, 6, 8), rand(2, 2, 6, 5), rand(4)))
    attrs = AttentionAttrs(sinks=True)
    out, lse = run("attention", attrs, q, k, v, sinks, outs=2)
    grad = torch.randn_like(out)
    want = torch.autograd.grad(out, (q, k, v, sinks), grad)
    given = tuple(t.detach() for t in (grad, q, k, v, out, lse, sinks))
    for a, b in zip(run("attention_bwd", attrs, *given, outs=4), want, strict=True):
        close(a, b)


def test_each_ranks_balanced_queries_see_the_keys_before_them() -> None:
    q, k, v = rand(1, 2, 8, 4), rand(1, 2, 8, 4), rand(1, 2, 8, 4)
    want = run("attention", AttentionAttrs(), q, k, v, outs=2)[0]
    dealt = torch.tensor([0, 1, 6, 7, 2, 3, 4, 5])
    for r in range(2):
        own = dealt[4 * r : 4 * r + 4]
        given = (q[:, :, own], k[:, :, dealt], v[:, :, dealt])
        attrs = AttentionAttrs(balanced=True)
        close(run("attention", attrs, *given, outs=2, rank={"cp": r}, degrees={"cp": 2})[0], want[:, own])


def test_keys_are_chosen_by_score_and_appended() -> None:
    q, k, w = rand(1, 3, 4, 2), rand(1, 1, 6, 2), rand(1, 4, 3)
    (ids,) = run("index_keys", IndexAttrs(2, False), q, k, w)
    scores = sum(w[0, :, h, None] * torch.relu(q[0, h] @ k[0, 0].t()) for h in range(3))
    assert isinstance(scores, Tensor)
    assert torch.equal(ids[0], scores.topk(2).indices)
    assert run("kv_append", KvAppendAttrs(2), k, k[:, :, :1])[0].shape == (1, 1, 7, 2)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms(kind: str) -> None:
    x, weight, bias = rand(3, 4, 6).requires_grad_(), rand(6).requires_grad_(), rand(6).requires_grad_()
    attrs, count = NormAttrs(kind), 2 if kind == "rms" else 3
    given = (weight,) if kind == "rms" else (weight, bias)
    y, *stats = run("norm", attrs, x, *given, outs=count)
    eps = 1e-6 if kind == "rms" else 1e-5
    want = F.rms_norm(x, (6,), weight, eps) if kind == "rms" else F.layer_norm(x, (6,), weight, bias, eps)
    close(y, want)
    grad = torch.randn_like(y)
    grads = torch.autograd.grad(want, (x, *given), grad)
    made = run("norm_bwd", attrs, grad, x.detach(), *(s.detach() for s in stats), weight.detach(), outs=len(grads))
    for a, b in zip(made, grads, strict=True):
        close(a, b)


def test_norms_of_other_kinds() -> None:
    x, weight = rand(3, 6), rand(6)
    shifted = run("norm", NormAttrs("rms"), x, weight, outs=2, said={"offset": 1.0, "eps": 1e-3})[0]
    close(shifted, F.rms_norm(x, (6,), 1 + weight, 1e-3))
    (unit, _) = run("norm", NormAttrs("rms"), x, outs=2, said={"eps": 0.0}, operator="slipstick.l2_norm")
    close(unit.norm(dim=-1), torch.ones(3, dtype=torch.float64))


def test_rotations_are_orthogonal_and_go_back() -> None:
    x, angle = rand(2, 3, 5, 8), rand(2, 1, 5, 4)
    turns = {"half": torch.cat((angle, angle), -1), "pairs": angle.repeat_interleave(2, -1), "half_narrow": angle}
    for style, table in turns.items():
        tables = (table.cos(), table.sin())
        (y,) = run("rope", NO_ATTRS, x, *tables, said={"style": style})
        close(y.norm(dim=-1), x.norm(dim=-1))
        close(run("rope_bwd", NO_ATTRS, y, *tables, said={"style": style})[0], x)


def test_softmax_and_its_logarithm() -> None:
    x, grad = rand(3, 5).requires_grad_(), rand(3, 5)
    for operator, function in (("aten._softmax", torch.softmax), ("aten._log_softmax", torch.log_softmax)):
        y = function(x, 1)
        close(run("softmax", DimAttrs(1), x, said={}, operator=operator)[0], y)
        made = run("softmax_bwd", DimAttrs(1), grad, y.detach(), said={}, operator=f"{operator}_backward_data")
        close(made[0], torch.autograd.grad(y, x, grad)[0])


def _value(dims: tuple[int, ...], shard: int | None) -> Value:
    lies = REPLICATE if shard is None else Shard(shard)
    return Value(0, TensorType(dims, DType.FP32), 0, placements=((TP, lies),))


def test_loss_and_its_gradient_whole_and_by_parts_of_the_vocabulary() -> None:
    logits, target = rand(2, 3, 8).requires_grad_(), torch.randint(0, 8, (2, 3))
    want = F.cross_entropy(logits.reshape(-1, 8), target.reshape(-1))
    loss, stats = run("cross_entropy", NO_ATTRS, logits, target, outs=2)
    close(loss, want)
    dlogits = torch.autograd.grad(want, logits, torch.tensor(2.0, dtype=torch.float64))[0]
    two = torch.tensor(2.0, dtype=torch.float64)
    close(run("cross_entropy_bwd", NO_ATTRS, two, logits.detach(), target, stats.detach())[0], dlogits)
    parts = []
    for r in range(2):
        source = (_value((2, 3, 4), 2), _value((2, 3), None))
        where = {"rank": {"tp": r}, "degrees": {"tp": 2}}
        part = logits.detach()[..., 4 * r : 4 * r + 4]
        parts.append(run("cross_entropy", NO_ATTRS, part, target, outs=2, sources=source, **where)[1])  # type: ignore[arg-type]
        sources = (_value((), None), *source, _value((2, 3, 3), None))
        made = run("cross_entropy_bwd", NO_ATTRS, two, part, target, stats.detach(), sources=sources, **where)  # type: ignore[arg-type]
        close(made[0], dlogits[..., 4 * r : 4 * r + 4])
    close(parts[0] + parts[1], stats.detach())


def test_loss_over_rows_of_several_ranks_is_a_summand() -> None:
    logits, target = rand(4, 8), torch.randint(0, 8, (4,))
    parts = []
    for r in range(2):
        source = (_value((2, 8), 0), _value((2,), 0))
        rows = slice(2 * r, 2 * r + 2)
        parts.append(run("cross_entropy", NO_ATTRS, logits[rows], target[rows], outs=2, sources=source,
                         rank={"tp": r}, degrees={"tp": 2})[0])  # fmt: skip
    close(parts[0] + parts[1], F.cross_entropy(logits, target))
    ignored = torch.tensor([-100, 3])
    close(run("cross_entropy", NO_ATTRS, logits[:2], ignored, outs=2)[0], F.cross_entropy(logits[:2], ignored))
    with pytest.raises(NotComputedError):
        run("cross_entropy", NO_ATTRS, logits[:2], ignored, outs=2, sources=(_value((2, 8), 0), _value((2,), 0)),
            degrees={"tp": 2})  # fmt: skip


def _bank(transposed: bool = False) -> tuple[Tensor, ...]:
    """Eight tokens, two of four experts each, as many tokens for each expert."""
    idx = torch.tensor([[0, 1], [2, 3], [1, 0], [3, 2], [0, 2], [1, 3], [2, 0], [3, 1]])
    up, down, up_bias, down_bias = rand(4, 12, 5), rand(4, 5, 6), rand(4, 12), rand(4, 5)
    up, down = (up.transpose(1, 2), down.transpose(1, 2)) if transposed else (up, down)
    return rand(8, 5), idx, rand(8, 2), up, down, up_bias, down_bias


@pytest.mark.parametrize("said", [{}, {"act": "gelu"}, {"act": "swiglu_oai", "interleaved": True, "limit": 1.0}])
@pytest.mark.parametrize("transposed", [False, True])
def test_experts_and_their_gradients(said: Mapping[str, object], transposed: bool) -> None:
    given = [t.requires_grad_(t.is_floating_point()) for t in _bank(transposed)]
    attrs = ExpertsAttrs(bias=True, transposed=transposed)
    out, *saved = run("experts", attrs, *given, outs=5, said=said)
    grad = torch.randn_like(out)
    x, idx, weights, up, down, *biases = given
    want = torch.autograd.grad(out, (x, weights, up, down, *biases), grad)
    inputs = (grad, x, idx, weights, up, down, *saved)
    for a, b in zip(run("experts_bwd", attrs, *(t.detach() for t in inputs), outs=6, said=said), want, strict=True):
        close(a, b)


def test_experts_token_by_token() -> None:
    x, idx, weights, up, down, *_ = _bank()
    out = run("experts", ExpertsAttrs(), x, idx, weights, up, down, outs=5)[0]
    for t in range(8):
        want = torch.zeros(5, dtype=torch.float64)
        for j in range(2):
            gate, other = (up[idx[t, j]] @ x[t]).chunk(2)
            want = want + weights[t, j] * (down[idx[t, j]] @ (F.silu(gate) * other))
        close(out[t], want)


def test_a_bank_taken_apart_is_the_bank() -> None:
    x, idx, weights, up, down, *biases = _bank()
    attrs = ExpertsAttrs(bias=True)
    out, *saved = run("experts", attrs, x, idx, weights, up, down, *biases, outs=5)
    (rows,) = run("dispatch", RoutedAttrs(), x, idx)
    made, up_out, act = run("expert_bank", attrs, rows, up, down, *biases, outs=3)
    close(run("combine", RoutedAttrs(), made, weights, idx)[0], out)
    grad = torch.randn_like(out)
    want = run("experts_bwd", attrs, grad, x, idx, weights, up, down, *saved, outs=6)
    d_rows, d_weights = run("combine_bwd", RoutedAttrs(), grad, made, weights, idx, outs=2)
    d_in, *bank = run("expert_bank_bwd", attrs, d_rows, rows, up, down, up_out, act, outs=5)
    (d_x,) = run("dispatch_bwd", RoutedAttrs(), d_in, idx)
    for a, b in zip((d_x, d_weights, *bank), want, strict=True):
        close(a, b)


def test_ranks_that_have_all_tokens_make_parts_of_the_sum() -> None:
    x, idx, weights, up, down, *_ = _bank()
    whole = run("experts", ExpertsAttrs(), x, idx, weights, up, down, outs=5)[0]
    parts = []
    for r in range(2):
        where = {"rank": {"ep": r}, "degrees": {"ep": 2}}
        (rows,) = run("dispatch", RoutedAttrs(own=EP.group), x, idx, **where)  # type: ignore[arg-type]
        own = slice(2 * r, 2 * r + 2)
        made = run("expert_bank", ExpertsAttrs(), rows, up[own], down[own], outs=3)[0]
        parts.append(run("combine", RoutedAttrs(own=EP.group), made, weights, idx, **where)[0])  # type: ignore[arg-type]
    close(parts[0] + parts[1], whole)


def test_uneven_rows_are_refused() -> None:
    idx = torch.tensor([[0], [0], [1]])
    with pytest.raises(NotComputedError, match="evenly"):
        run("dispatch", RoutedAttrs(), rand(3, 2), idx)


def test_grouped_products() -> None:
    a, b = rand(6, 3), rand(2, 3, 4)
    want = torch.cat((a[:2] @ b[0], a[2:] @ b[1]))
    close(run("grouped_matmul", GroupedAttrs(), a, b, torch.tensor([2, 6]))[0], want)
    close(run("grouped_matmul", GroupedAttrs(), a, b)[0], torch.cat((a[:3] @ b[0], a[3:] @ b[1])))
    dy = rand(6, 4)
    made = run("grouped_matmul", GroupedAttrs(True), a.t(), dy, torch.tensor([2, 6]), dims=((2, 3, 4),))
    close(made[0], torch.stack((a[:2].t() @ dy[:2], a[2:].t() @ dy[2:])))


def test_state_space_scans_are_those_of_transformers() -> None:
    from transformers.models.mamba import modeling_mamba as mamba
    from transformers.models.mamba2 import modeling_mamba2 as mamba2

    x, dt, z = (t.float() for t in (rand(2, 4, 6), rand(2, 4, 6), rand(2, 4, 6)))
    a, b, c, d, bias = (t.float() for t in (-rand(4, 3).exp(), rand(2, 3, 6), rand(2, 3, 6), rand(4), rand(4)))
    want = mamba.mamba_selective_scan(x, dt, a, b, c, d, z, bias, True)
    rows, shared = [t.transpose(1, 2) for t in (dt, z)], [t.transpose(1, 2).unsqueeze(2) for t in (c, b)]
    made = run("scan", ScanAttrs("selective"), x.transpose(1, 2).unsqueeze(-1), *shared, *rows, a, d, bias, outs=2)
    torch.testing.assert_close(made[0].reshape(2, 6, 4).transpose(1, 2), want, rtol=1e-4, atol=1e-5)

    x, dt, b, c = (t.float() for t in (rand(2, 6, 4, 5), rand(2, 6, 4), rand(2, 6, 2, 3), rand(2, 6, 2, 3)))
    a = a[:, 0]
    want, last = mamba2.mamba2_chunk_scan(x, dt, a, b, c, 4, d, bias, None, True, return_final_states=True)
    made = run("scan", ScanAttrs("ssd", 4), x, c, b, dt, a, d, bias, outs=2)
    torch.testing.assert_close(made[0], want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(made[1], last.transpose(2, 3), rtol=1e-4, atol=1e-5)


def test_delta_rules_and_linear_attention_are_those_of_transformers() -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen
    from transformers.models.rwkv import modeling_rwkv as rwkv

    q, k, v = (t.float() for t in (rand(2, 6, 2, 4), rand(2, 6, 2, 4), rand(2, 6, 4, 5)))
    g, beta = -rand(2, 6, 4).exp().float(), rand(2, 6, 4).sigmoid().float()
    want, last = qwen.torch_recurrent_gated_delta_rule(
        q, k, v, g, beta, None, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    made = run("scan", ScanAttrs("delta"), v, q, k, g, beta, outs=2)
    torch.testing.assert_close(made[0], want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(made[1], last, rtol=1e-4, atol=1e-5)
    key, value, decay, first = (t.float() for t in (rand(2, 6, 4), rand(2, 6, 4), rand(4), rand(4)))
    want = rwkv.rwkv_linear_attention_cpu(decay, first, key, value)[0]  # type: ignore[no-untyped-call]
    made = run("scan", ScanAttrs("linear"), value.unsqueeze(-1), key, decay, first, outs=2)
    torch.testing.assert_close(made[0].squeeze(-1), want, rtol=1e-4, atol=1e-5)


def test_gradients_of_a_scan_and_a_gated_recurrence() -> None:
    v, decay = rand(1, 5, 3, 1).requires_grad_(), rand(1, 5, 3).requires_grad_()
    y, state = run("scan", ScanAttrs("gated"), v, decay, outs=2)
    held = torch.zeros(1, 3, 1, dtype=torch.float64)
    for t in range(5):
        held = held * decay[:, t].unsqueeze(-1) + v[:, t]
        close(y[:, t], held)
    close(state[:, :, 0], held)
    grad = torch.randn_like(y)
    want = torch.autograd.grad(y, (v, decay), grad)
    for a, b in zip(run("scan_bwd", ScanAttrs("gated"), grad, v.detach(), decay.detach(), outs=2), want, strict=True):
        close(a, b)


def test_convolutions() -> None:
    x, weight, bias = rand(2, 4, 7).requires_grad_(), rand(4, 1, 3).requires_grad_(), rand(4).requires_grad_()
    attrs = ConvAttrs((1,), (0,), (1,), causal=True, activation="silu")
    want = F.silu(F.conv1d(F.pad(x, (2, 0)), weight, bias, groups=4))
    close(run("conv", attrs, x, weight, bias)[0], want)
    grad = torch.randn_like(want)
    grads = torch.autograd.grad(want, (x, weight, bias), grad)
    given = tuple(t.detach() for t in (grad, x, weight, bias))
    made = run("conv_bwd", attrs, *given, dims=((2, 4, 7), (4, 1, 3), (4,)))
    for a, b in zip(made, grads, strict=True):
        close(a, b)
    stepped = ConvAttrs((1,), (0,), (1,), causal=True, has_state=True)
    state, new = rand(2, 4, 3), rand(2, 4, 1)
    y, after = run("conv", stepped, new, weight.detach(), state, dims=((2, 4, 1), (2, 4, 3)))
    close(y, F.conv1d(torch.cat((state[..., 1:], new), 2), weight.detach(), groups=4))
    close(after, torch.cat((state, new), 2)[..., 1:])
    picture, kernel = rand(2, 3, 8, 8), rand(5, 3, 2, 2)
    made = run("conv", ConvAttrs((2, 2), (0, 0), (1, 1)), picture, kernel)
    close(made[0], F.conv2d(picture, kernel, stride=2))


def test_precision_and_updates_change_no_number() -> None:
    x, grad = rand(3), rand(3)
    assert run("quantise", NO_ATTRS, x, outs=2) == (x, x)
    assert run("optimizer_step", NO_ATTRS, x, grad) == (x,)
