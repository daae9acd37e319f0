"""FLOPs and parameters of the recorded graph against torch's own counter on the real model at full depth.

Fake tensors on the CPU: no weight exists and nothing is computed, torch counts from the shapes that it dispatches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from slipstick.frontend import load
from slipstick.frontend.huggingface.configs.models import index, read_config
from slipstick.frontend.record.adapter import swapped
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import work_of

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = pytest.mark.oracle

SEQ = 2048
# Both sides count products alike, so nothing but rounding may differ.
TOLERANCE = 1e-9

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """Tensor FLOPs of one pass, and the parameters of the model."""

    forward_flops: float
    backward_flops: float
    num_parameters: int


def ours(graph: Graph, own_recomputation: bool = True) -> Count:
    """Sum the work of every node times the count of its region; optionally without scores that a kernel redoes."""
    phases = {Phase.FORWARD: 0.0, Phase.BACKWARD: 0.0}
    env = {"batch": 1.0, "seq": float(SEQ)}
    for region in graph.regions:
        for node in region.nodes:
            work = work_of(region, node)
            share = 1.0 if own_recomputation else work.model_share
            phases[node.phase] += graph.counts[region.name] * share * float(work.tensor_flops.evaluate(env))
    return Count(phases[Phase.FORWARD], phases[Phase.BACKWARD], int(float(graph.num_parameters.evaluate({}))))


def _grouped_mm_flops(a: Shape, b: Shape, *_: object, out_shape: object = None, **__: object) -> int:
    """A row of [rows, k] meets one matrix of [groups, k, n]; in [m, rows] x [rows, n] it meets one row."""
    return 2 * a[0] * a[1] * b[-1]


def _sdpa_flops(q: Shape, k: Shape, v: Shape, *_: object, out_shape: object = None, **__: object) -> int:
    """Two products over all pairs, by torch's own formula; keys and values may have fewer heads."""
    return int(sdpa_flop_count(q, k, v))  # type: ignore[no-untyped-call]


def _sdpa_backward_flops(
    grad: Shape, q: Shape, k: Shape, v: Shape, *_: object, out_shape: object = None, **__: object
) -> int:
    """Five products, by torch's own formula: the scores once more, then four for the gradients."""
    return int(sdpa_backward_flop_count(grad, q, k, v))  # type: ignore[no-untyped-call]


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Fake tensors, and no look for packed sequences in data that is not there."""
    masking = transformers.masking_utils
    packed = swapped(masking, "find_packed_sequence_indices", lambda position_ids: None)
    with packed, FakeTensorMode(allow_non_fake_inputs=True):
        yield


def counter() -> FlopCounterMode:
    """Torch's counter, with formulas for the kernels that it silently counts as nothing on the CPU."""
    aten = torch.ops.aten
    holes = {
        aten._grouped_mm: _grouped_mm_flops,
        aten._scaled_dot_product_flash_attention_for_cpu: _sdpa_flops,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _sdpa_backward_flops,
    }
    return FlopCounterMode(display=False, custom_mapping=holes)


def torch_counts(name: str, backward: bool = True, attention: str = "sdpa") -> Count:
    """Count a forward and a backward pass of the model as transformers builds it."""
    fields = cast("dict[str, object]", json.loads(read_config(name).text))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with fake_tensors():
        # Evaluation mode: dropout costs no product, and with dropout the CPU has no fused attention.
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation=attention
        ).eval()
        ids = torch.zeros(1, SEQ, dtype=torch.int64)
        with counter() as counted, torch.set_grad_enabled(backward):
            logits = model(input_ids=ids, use_cache=False).logits
            forward = counted.get_total_flops()
            if backward:
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
                torch.autograd.backward(loss)
        num_parameters = sum(p.numel() for p in model.parameters())
    return Count(forward, counted.get_total_flops() - forward, num_parameters)


@pytest.mark.parametrize(
    ("name", "fused"),
    [
        ("gpt2-xl", True),
        ("llama-3.1-8b", True),
        ("mixtral-8x7b", True),
        # The CPU has no fused attention for heads whose keys and values differ in size: torch takes it apart into two
        # products forward and four backward, where a fused backward computes the scores a second time.
        pytest.param("deepseek-v3", False, marks=pytest.mark.slow),
    ],
)
def test_flops_of_a_training_step_are_those_torch_counts(name: str, fused: bool) -> None:
    theirs, mine = torch_counts(name), ours(load(name), own_recomputation=fused)
    assert mine.forward_flops == pytest.approx(theirs.forward_flops, rel=TOLERANCE)
    assert mine.backward_flops == pytest.approx(theirs.backward_flops, rel=TOLERANCE)
    assert mine.num_parameters == theirs.num_parameters == index()[name].num_parameters


def test_sinks_and_windows_cost_what_torch_counts_for_all_pairs() -> None:
    # Attention with sinks exists in transformers as plain products only; windows are masks there, as in our FLOPs.
    theirs, mine = torch_counts("gpt-oss-20b", attention="eager"), ours(load("gpt-oss-20b"), own_recomputation=False)
    assert mine.forward_flops == pytest.approx(theirs.forward_flops, rel=TOLERANCE)
    assert mine.backward_flops == pytest.approx(theirs.backward_flops, rel=TOLERANCE)


def test_flops_of_the_largest_dense_model_forward() -> None:
    name = "llama-3.1-405b"
    theirs, mine = torch_counts(name, backward=False), ours(load(name))
    assert mine.forward_flops == pytest.approx(theirs.forward_flops, rel=TOLERANCE)
    assert mine.num_parameters == theirs.num_parameters == index()[name].num_parameters
    assert ours(load(name, "prefill")).forward_flops == pytest.approx(
        # a prefill needs the logits of the last position only
        theirs.forward_flops - 2 * 16384 * 128256 * (SEQ - 1),
        rel=TOLERANCE,
    )
