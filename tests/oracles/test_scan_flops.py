"""Products of chunked scans against those that PyTorch counts in the reference code of transformers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest

from slipstick.ir.ops import OpCall, op_def
from slipstick.ir.ops.fused.scan import ScanAttrs
from slipstick.ir.types import DType, TensorType

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="its fallbacks of fused kernels are the reference")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

B, L, H, G, N, P, C = 2, 128, 4, 2, 16, 24, 32
TOKENS = B * L * H  # of all heads
ROWS, GATES = (B, L, H), (B, L, H, N)


def counted(run: Callable[[], object]) -> float:
    """FLOPs of all products, a token and head."""
    with FlopCounterMode(display=False) as mode:
        run()
    return float(mode.get_total_flops()) / TOKENS


def priced(kind: str, *others: tuple[int, ...]) -> float:
    """The same of the op: what matrix units do."""
    inputs = tuple(TensorType(dims, DType.BF16) for dims in ((*ROWS, P), *others))
    state = TensorType((B, H, N, P), DType.FP32)
    work = op_def("scan").work(OpCall("scan", ScanAttrs(kind, C), inputs, (inputs[0], state)))
    return float(work.tensor_flops.evaluate({})) / TOKENS


def reference(model_type: str, name: str) -> Callable[..., object]:
    file = import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    found: Callable[..., object] = getattr(file, name)
    return found


def delta(name: str, model_type: str, groups: int, decay: tuple[int, ...]) -> float:
    run = reference(model_type, name)
    q, k, v = torch.rand(B, L, groups, N), torch.rand(B, L, groups, N), torch.rand(*ROWS, P)
    g, beta = -torch.rand(*decay), torch.rand(*ROWS)
    return counted(lambda: run(q, k, v, g, beta, chunk_size=C, initial_state=None, output_final_state=True))


# Inverting the unit triangular matrix of a chunk, c^3 / 3 FLOPs: no product in the reference code.
INVERSE = C**2 / 3


def test_gated_delta_rule() -> None:
    """The reference solves two triangular systems where kernels multiply by the inverse: 2 c n + 2 c p."""
    found = delta("torch_chunk_gated_delta_rule", "qwen3_next", G, ROWS)
    assert found == 6 * N * P + 4 * C * N + 2 * C * P
    assert priced("delta", (B, L, G, N), (B, L, G, N), ROWS, ROWS) == pytest.approx(found + 2 * C * (N + P) + INVERSE)


def test_delta_rule_with_a_decay_a_channel() -> None:
    """The reference makes both matrices of scores, 2 c n each, element by element."""
    found = delta("chunk_kimi_delta_attention", "kimi_linear", H, GATES)
    assert found == 6 * N * P + 2 * C * N + 4 * C * P
    assert priced("delta", GATES, GATES, GATES, ROWS) == pytest.approx(found + 4 * C * N + INVERSE)


def test_lightning_attention() -> None:
    """Every product of the reference is one of the op."""
    hidden, dim = H * N, N
    config = reference("minimax", "MiniMaxConfig")(
        hidden_size=hidden, num_attention_heads=H, head_dim=dim, block_size=C, num_hidden_layers=2,
        layer_types=["linear_attention"] * 2,
    )  # fmt: skip
    module = reference("minimax", "MiniMaxLightningAttention")(config, 0)
    found = counted(lambda: module(torch.rand(B, L, hidden), None, None))  # type: ignore[operator]
    projections = 2 * hidden * (3 + 1 + 1) * hidden / H
    assert found - projections == 4 * N * dim + 2 * C * (N + dim)
    assert priced("linear", GATES, GATES, (H,)) == 4 * N * P + 2 * C * (N + P)


def test_matrix_memory_of_xlstm() -> None:
    """The reference keeps a normaliser beside the state: one product more, 2 n."""
    run = reference("xlstm", "mlstm_chunkwise_native_autograd")
    q, k, v = torch.rand(B, H, L, N), torch.rand(B, H, L, N), torch.rand(B, H, L, P)
    i, f = torch.rand(B, H, L), torch.rand(B, H, L)
    found = counted(
        lambda: run(q, k, v, i, f, return_last_states=True, chunk_size=C, autocast_kernel_dtype=torch.float32)
    )
    assert priced("linear", GATES, GATES, ROWS, ROWS) == found - 2 * N
