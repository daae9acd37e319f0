"""Context parallelism against PyTorch: what crosses the ranks for one attention of Llama-3.1-8B, both phases.

Ulysses and all-gather are DTensor's own redistribution of q, k and v (from shards of the sequence to shards of the
heads, or whole) on a fake process group of four ranks. The ring is PyTorch's own ring attention. Its gradients of keys
and values differ on purpose: they are in fp32 and take c steps, the last of which brings them home; ours are in the
type of the keys and take c - 1, as a backward pass does that starts where the forward pass ended (Transformer Engine).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest
import torch
import torch.distributed as dist
import torch.distributed.tensor._collective_utils as collective_utils
import torch.distributed.tensor.experimental._context_parallel._attention as ring_attention
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.frontend.record.adapter import DispatchMode
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.sizes.expr import Expr
from slipstick.passes.manager import parse_pipeline

pytestmark = pytest.mark.oracle

CP, BATCH, SEQ = 4, 1, 2048
HEADS, KV_HEADS, HEAD_DIM, BF16 = 32, 8, 128, 2
QUERY_BYTES = BATCH * HEADS * SEQ * HEAD_DIM * BF16
KEY_BYTES = BATCH * KV_HEADS * SEQ * HEAD_DIM * BF16

Crossing = Counter[tuple[str, int]]


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=CP)
    try:
        yield init_device_mesh("cpu", (CP,), mesh_dim_names=("cp",))
    finally:
        dist.destroy_process_group()


_KINDS = {
    "_dtensor.shard_dim_alltoall.default": "all_to_all",
    "_c10d_functional.all_to_all_single.default": "pass_on",
    "_c10d_functional.all_gather_into_tensor.default": "all_gather",
    "_c10d_functional.reduce_scatter_tensor.default": "reduce_scatter",
}


class Recorder(DispatchMode):
    """Notes the collectives: the larger of what goes in and what comes out, which for an exchange are the same."""

    wrappers = (DTensor,)

    def __init__(self) -> None:
        super().__init__()
        self.found: Crossing = Counter()

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        if str(func) in _KINDS:
            self.found[_KINDS[str(func)], max(_num_bytes(args[0]), _num_bytes(out))] += 1


def _num_bytes(t: object) -> int:
    assert isinstance(t, torch.Tensor)
    return int(t.numel() * t.element_size())


def theirs(mesh: DeviceMesh, inside: tuple[Placement, Placement]) -> tuple[Crossing, Crossing]:
    """Attention with queries as `inside[0]` and keys as `inside[1]` says; outside all lies over the sequence."""
    along, (query, key) = Shard(2), inside
    with FakeTensorMode(allow_non_fake_inputs=True):
        local = [
            torch.empty(BATCH, heads, SEQ // CP, HEAD_DIM, dtype=torch.bfloat16, requires_grad=True)
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        ]
        with Recorder() as forward:
            q, k, v = (
                _laid(DTensor.from_local(t, mesh, [along], run_check=False), p)
                for t, p in zip(local, (query, key, key), strict=True)
            )
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            laid = DTensor.from_local(out, mesh, [query], run_check=False).redistribute(placements=[along])
        with Recorder() as backward:
            torch.autograd.backward(laid.to_local().sum())
    return forward.found, backward.found


def _laid(t: DTensor, placement: Placement) -> Tensor:
    """Whole keys meet only the rank's queries, so their gradient is a part of the sum."""
    grad = Partial() if isinstance(placement, Replicate) else placement
    return t.redistribute(placements=[placement]).to_local(grad_placements=[grad])


def ours(graph: Graph, method: str, phase: Phase) -> Crossing:
    """What crosses `cp` in one of the layers."""
    region = parse_pipeline(f'shard{{cp="{method}"}}').run(graph)[0].region("block0")
    found: Crossing = Counter()
    for node in region.nodes:
        if isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis == "cp" and node.phase is phase:
            found[node.op, number(message_bytes(call_of(region, node)))] += 1
    return found


def number(dim: Expr) -> int:
    return int(float(dim.evaluate({"mbs": BATCH, "seq": SEQ, "tp": 1, "dp": 1, "cp": CP})))


def test_ulysses(two_layer_graph: Graph, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    # On the CPU, DTensor gathers instead of exchanging, unless it believes that tensors are simulated.
    monkeypatch.setattr(collective_utils, "local_tensor_mode", lambda: True)
    forward, backward = theirs(mesh, (Shard(1), Shard(1)))
    # q, k and v in, the result out; and back again for the gradients.
    exchanges = {("all_to_all", QUERY_BYTES // CP): 2, ("all_to_all", KEY_BYTES // CP): 2}
    assert forward == backward == exchanges
    assert ours(two_layer_graph, "ulysses", Phase.FORWARD) == forward
    assert ours(two_layer_graph, "ulysses", Phase.BACKWARD) == backward


def test_keys_and_values_gathered(two_layer_graph: Graph, mesh: DeviceMesh) -> None:
    forward, backward = theirs(mesh, (Shard(2), Replicate()))
    assert forward == {("all_gather", KEY_BYTES): 2}
    assert backward == {("reduce_scatter", KEY_BYTES): 2}
    assert ours(two_layer_graph, "allgather", Phase.FORWARD) == forward
    # We do not keep the whole keys and values between the phases: they are gathered again.
    assert ours(two_layer_graph, "allgather", Phase.BACKWARD) == backward + forward


def _attention(query: Tensor, key: Tensor, value: Tensor, **options: object) -> tuple[Tensor, ...]:
    out: tuple[Tensor, ...] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, options["is_causal"]
    )
    return out


def _attention_bwd(query: Tensor, key: Tensor, value: Tensor, **options: object) -> tuple[Tensor, ...]:
    grads: tuple[Tensor, ...] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        options["grad_out"], query, key, value, options["out"], options["logsumexp"], 0.0, options["is_causal"]
    )
    return grads


def test_ring(two_layer_graph: Graph, mesh: DeviceMesh) -> None:
    ring_attention.set_rotate_method("alltoall")
    group = mesh.get_group()
    with FakeTensorMode(allow_non_fake_inputs=True):
        q, k, v = (torch.empty(BATCH, KV_HEADS, SEQ // CP, HEAD_DIM, dtype=torch.bfloat16) for _ in range(3))
        with Recorder() as forward:
            out, lse = ring_attention._templated_ring_attention(group, 2, _attention, q, k, v, is_causal=True)[:2]
        with Recorder() as backward:
            ring_attention._templated_ring_attention_backward(
                group, 2, _attention_bwd, out, "grad_out", q, k, v, out, lse, is_causal=True
            )
    step_bytes = 2 * KEY_BYTES // CP
    assert forward.found == {("pass_on", step_bytes): CP - 1}
    assert backward.found == {("pass_on", step_bytes): CP - 1, ("pass_on", 2 * step_bytes): CP}
    assert _steps(ours(two_layer_graph, "ring", Phase.FORWARD)) == forward.found
    assert _steps(ours(two_layer_graph, "ring", Phase.BACKWARD)) == {("pass_on", step_bytes): 2 * (CP - 1)}


def _steps(found: Crossing) -> Crossing:
    """A ring of message S takes c - 1 steps of S/c."""
    steps: Crossing = Counter()
    for (_, num_bytes), count in found.items():
        steps["pass_on", num_bytes // CP] += count * (CP - 1)
    return steps
