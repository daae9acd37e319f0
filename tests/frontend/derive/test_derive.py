"""The derived backward pass is the recorder's: the same calls and work, gradients and saved bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from slipstick.frontend import derive
from slipstick.frontend.aten.flat import Flat
from slipstick.frontend.fold.blocks import Identity
from slipstick.frontend.fold.layered import whole
from slipstick.frontend.huggingface.configs.building import build
from slipstick.frontend.recognise import recognise
from slipstick.frontend.runs.factories import run_from_factory
from slipstick.ir.errors import TraceError, UnsupportedOpError
from slipstick.ir.graph import Graph, Phase, Workload
from slipstick.ir.ops import OpClass, op_def, work_of
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.sizes.expr import Expr, as_expr
from slipstick.ir.types import DType
from slipstick.ir.verify import verify

from .. import pieces
from ..flats import lines, recorded
from ..pieces import Piece, Step, built, fused_attention, softmax_attention

Work = tuple[Expr, Expr, Expr]


def folded(flat: Flat) -> Graph:
    graph = whole(flat, Identity("m", Workload.TRAIN, DType.BF16))
    verify(graph)
    return graph


def backward_work(flat: Flat) -> dict[tuple[str, tuple[str, ...]], tuple[int, Work]]:
    """Calls, FLOPs of either unit and bytes of each op (and function) of the backward phase, views apart."""
    region = folded(flat).regions[0]
    calls: Counter[tuple[str, tuple[str, ...]]] = Counter()
    sums: dict[tuple[str, tuple[str, ...]], Work] = {}
    for node in region.nodes:
        if node.phase is Phase.BACKWARD and op_def(node.op).kind is not OpClass.FREE:
            key = (node.op, node.attrs.fns if isinstance(node.attrs, ElementwiseAttrs) else ())
            work = work_of(region, node)
            a, b, c = sums.get(key, (as_expr(0),) * 3)
            calls[key] += 1
            sums[key] = (a + work.tensor_flops, b + work.vector_flops, c + work.num_bytes)
    return {key: (calls[key], sums[key]) for key in calls}


def gradients(flat: Flat) -> dict[str, str]:
    return {flat.values[p].name: str(flat.values[g].type) for p, g in flat.grads.items()}


def assert_same_backward(found: Flat, derived: Flat, but: tuple[str, ...] = ()) -> None:
    want, have = backward_work(found), backward_work(derived)
    assert {k: v for k, v in have.items() if k[0] not in but} == {k: v for k, v in want.items() if k[0] not in but}
    assert gradients(derived) == gradients(found)
    assert folded(derived).saved_bytes == folded(found).saved_bytes


@pytest.mark.parametrize("name", ["gpt2", "gpt-oss"])
def test_backward_of_a_model_is_the_recorders(name: str, configs: Path) -> None:
    model = build((configs / f"tiny-{name}.json").read_text(), DType.BF16)
    flat = recorded(model, Workload.TRAIN, is_transformers=True)
    assert_same_backward(flat, derive.training(derive.forward_of(flat)))


def test_latent_attention_differs_by_the_copies_of_gradients_that_eager_pytorch_lays_out_anew(configs: Path) -> None:
    model = build((configs / "tiny-deepseek.json").read_text(), DType.BF16)
    flat = recorded(model, Workload.TRAIN, is_transformers=True)
    assert_same_backward(flat, derive.training(derive.forward_of(flat)), but=("copy",))


def test_a_module_that_returns_its_loss_keeps_it(nets: str) -> None:
    flat = recorded(run_from_factory(f"{nets}:with_loss", DType.BF16).module, Workload.TRAIN)
    assert_same_backward(flat, derive.training(derive.forward_of(flat)))


def test_a_model_in_single_steps_trains_as_one_in_library_calls() -> None:
    """Recognised, then derived: what the recorder writes of the same model in calls that it knows."""
    source = str(Path(__file__).parents[1] / "spelled_llama.py")
    steps, calls = (run_from_factory(f"{source}:{name}", DType.BF16).module for name in ("in_steps", "by_calls"))
    fused = recognise(recorded(steps))
    assert lines(fused) == lines(recorded(calls))
    found, derived = recorded(calls, Workload.TRAIN), derive.training(fused)
    assert_same_backward(found, derived)
    assert lines(derive.forward_of(derived)) == lines(derive.forward_of(found))


STEPS: dict[str, tuple[Step, ...]] = {
    "arithmetic": (
        lambda x, p: x + p.weight,
        lambda x, p: x - p.weight,
        lambda x, p: 1.0 - x,
        lambda x, p: x * p.weight,
        lambda x, p: x * x,
        lambda x, p: torch.square(x),
        lambda x, p: x / p.weight,
        lambda x, p: 1.0 / x,
        lambda x, p: torch.addcmul(x, x.exp(), x.tanh(), value=0.5),
        lambda x, p: x.remainder(0.3) + x.detach() // 0.3,
        lambda x, p: x.pow(3),
        lambda x, p: x.float() * p.weight,
    ),
    "functions": (
        lambda x, p: x.exp().log(),
        lambda x, p: x.sqrt().rsqrt(),
        lambda x, p: x.sin().cos(),
        lambda x, p: -x.erf().abs(),
        lambda x, p: F.silu(F.gelu(F.relu(x.tanh().sigmoid()))),
        lambda x, p: F.softplus(x),
        lambda x, p: F.dropout(x, 0.1),
    ),
    "choices": (
        lambda x, p: x.masked_fill(x > 0, 0.0),
        lambda x, p: x.clamp(min=0.1),
        lambda x, p: torch.maximum(x, p.weight),
        lambda x, p: x.tril(),
        lambda x, p: x.topk(8, -1).values.repeat_interleave(8, -1),
        lambda x, p: x.gather(-1, x.argmax(-1, keepdim=True)).expand(-1, -1, 64),
    ),
    "rows": (
        lambda x, p: x * x.sum(-1, keepdim=True) + x.sum(1)[:, None],
        lambda x, p: x - x.mean(-1, keepdim=True),
        lambda x, p: x * x.var(-1, keepdim=True),
        lambda x, p: x - x.amax(-1, keepdim=True),
        lambda x, p: x - x.logsumexp(-1, keepdim=True),
        lambda x, p: x - torch.linalg.vector_norm(x, dim=-1, keepdim=True),
        lambda x, p: x.cumsum(-1),
        lambda x, p: x.softmax(-1).log_softmax(-1),
        lambda x, p: F.layer_norm(x, x.shape[-1:], p.weight, p.bias),
        lambda x, p: F.layer_norm(x, x.shape[-1:]),
        lambda x, p: F.rms_norm(x, x.shape[-1:], p.weight),
    ),
    "moves": (
        lambda x, p: torch.cat(x.chunk(2, -1)[::-1], -1),
        lambda x, p: torch.cat((x[..., :40] + x[..., 8:48], x[..., 40:]), -1),
        lambda x, p: torch.stack(x.reshape(*x.shape[:2], 32, 2).unbind(-1), -1).flatten(2),
        lambda x, p: x[..., :32].reshape(*x.shape[:2], 2, 16).repeat_interleave(2, 2).flatten(2),
        lambda x, p: x[..., :32, None].expand(-1, -1, -1, 2).flatten(2),
    ),
    "products": (
        lambda x, p: x @ x.transpose(1, 2) @ x,
        lambda x, p: F.linear(x, p.square, p.bias).transpose(1, 2).tanh().transpose(1, 2),
        fused_attention(causal=True, kv_heads=2),
        fused_attention(causal=True, sinks=True),
        fused_attention(biased=True),
    ),
    "recurrences": (pieces.scanned, pieces.convolved),
}


def all_of(steps: tuple[Step, ...]) -> Step:
    def step(x: Tensor, piece: Piece) -> Tensor:
        return torch.cat([s(x, piece) for s in steps], -1)

    return step


@pytest.mark.parametrize("name", STEPS)
def test_backward_of_steps_is_the_recorders(name: str) -> None:
    flat = recorded(built(all_of(STEPS[name])), Workload.TRAIN)
    assert_same_backward(flat, derive.training(derive.forward_of(flat)))


def test_attention_in_single_steps_has_the_products_of_the_recorder() -> None:
    flat = recorded(built(softmax_attention(pieces.by_window, pieces.repeated_by_expand)), Workload.TRAIN)
    assert_same_backward(flat, derive.training(derive.forward_of(flat)), but=("copy",))


def test_halves_of_a_tensor_give_one_concat_where_eager_pytorch_pads_each() -> None:
    flat = recorded(built(lambda x, p: pieces.joined(pieces.turned_by_copy(x, p))), Workload.TRAIN)
    have = backward_work(derive.training(derive.forward_of(flat)))
    assert ("concat", ()) in have
    assert ("pad", ()) not in have


def test_a_graph_is_derived_once() -> None:
    flat = recorded(built(lambda x, p: x), Workload.TRAIN)
    with pytest.raises(TraceError, match="backward nodes already"):
        derive.training(flat)


def test_an_op_without_a_rule_is_named_with_its_module() -> None:
    flat = recorded(built(lambda x, p: x.prod(-1, keepdim=True).expand(-1, -1, 4)), Workload.PREFILL)
    with pytest.raises(UnsupportedOpError, match="no backward rule for 'prod'"):
        derive.training(flat)


def test_a_graph_without_parameters_has_nothing_to_train() -> None:
    flat = recorded(nn.Identity(), Workload.PREFILL)
    with pytest.raises(TraceError, match="logits"):
        derive.training(flat)
