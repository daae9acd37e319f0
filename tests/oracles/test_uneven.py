"""A vocabulary that no degree divides, GPT-2's 50257, against DTensor: what each rank holds, and what rank 0 works on.

The process group is fake and plays one rank after the other. DTensor distributes as `torch.chunk` does: shares of the
size rounded up, the rest to the last rank. Ours is the largest share, which rank 0 holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.frontend import load
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.ir.graph import Graph, Node, Region, Role
from slipstick.ir.sizes.expr import as_expr
from slipstick.ir.sizes.shares import smallest_share
from slipstick.passes.manager import parse_pipeline

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("no_packed_sequences")]

VOCABULARY, HIDDEN, SEQ = 50257, 768, 16
Shape = tuple[int, ...]


@pytest.fixture(scope="module")
def sharded() -> Graph:
    return parse_pipeline("shard").run(load("gpt2"))[0]


@contextmanager
def mesh(tp: int, rank: int) -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=tp)
    try:
        yield init_device_mesh("cpu", (tp,), mesh_dim_names=("tp",))
    finally:
        dist.destroy_process_group()


def ours(region: Region, value: int, tp: int) -> Shape:
    sizes = {"mbs": 1.0, "seq": float(SEQ), "dp": 1.0, "tp": float(tp)}
    return tuple(int(float(as_expr(d).evaluate(sizes))) for d in region.by_id[value].type.dims)


def the(region: Region, op: str, scope: str) -> Node:
    (node,) = (n for n in region.nodes if (n.op, n.scope, str(n.phase)) == (op, scope, "forward"))
    return node


@pytest.mark.parametrize("tp", [2, 3, 4, 12])
def test_ranks_hold_what_dtensor_gives_them(sharded: Graph, tp: int) -> None:
    held: list[Shape] = []
    for rank in range(tp):
        with mesh(tp, rank) as group, FakeTensorMode():
            table = distribute_tensor(torch.empty(VOCABULARY, HIDDEN), group, [Shard(0)], src_data_rank=None)
            held.append(tuple(table.to_local().shape))
    region = sharded.region("prologue")
    (table_value,) = (v for v in region.of_role(Role.PARAM) if v.name == "transformer.wte.weight")
    assert ours(region, table_value.id, tp) == held[0] == max(held)
    assert smallest_share(VOCABULARY, tp) == held[-1][0] == min(held)[0]
    assert sum(rows for rows, _ in held) == VOCABULARY


@pytest.mark.parametrize("tp", [2, 4])
def test_rank_0_works_on_the_largest_share(sharded: Graph, tp: int) -> None:
    fields = cast("dict[str, object]", json.loads(read_config("gpt2").text)) | {"n_layer": 1}
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with mesh(tp, 0) as group, FakeTensorMode(allow_non_fake_inputs=True):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        whole = Replicate()
        plan = {
            "transformer.wte": RowwiseParallel(input_layouts=whole, output_layouts=whole),
            "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        }
        parallelize_module(model, group, plan)
        logits = model(input_ids=torch.zeros(1, SEQ, dtype=torch.int64), use_cache=False).logits
        assert isinstance(logits, DTensor)
        theirs = tuple(logits.to_local().shape)
        weight = tuple(model.lm_head.weight.to_local().shape)
    region = sharded.region("epilogue")
    node = the(region, "matmul", "lm_head")
    assert ours(region, node.key, tp) == theirs == (1, SEQ, -(-VOCABULARY // tp))
    assert ours(region, node.inputs[1], tp) == weight
