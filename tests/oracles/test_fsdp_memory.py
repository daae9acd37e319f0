"""What parameters and gradients take while they are whole, against FSDP2 as PyTorch's own memory tracker sees it.

Three layers of Llama-3.1-8B, with a vocabulary too small to matter, run on fake tensors as units of FSDP2; the process
group is fake and plays rank 0 of eight. Compared is the layer in the middle: the bytes of parameters, gradients and
messages that are not sharded, at the end of its forward and of its backward phase. Ours are the temporaries of a layer
for batches of no sequence, which have no activations.

In the forward phase FSDP2 holds the message in which a layer's own parameters came, and on a GPU has the next one on
the way; ours counts the next. Both are one layer beside the one that runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.cost.memory.moments import moments
from slipstick.driver.estimate import pipeline_for
from slipstick.frontend import load
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family
from slipstick.ir.types import DType

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("no_packed_sequences")]

RANKS, SEQ, BF16 = 8, 8, 2
LAYER = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096
ROOT = 0.01  # table, head and norm, in layers: they stay gathered
# In the tracker's words: what is whole on every rank, and the messages that make it so or reduce it.
WHOLE = ("Unsharded Param", "All Gather", "Unsharded Grad", "Reduce Scatter")


@pytest.fixture(scope="module")
def three_layers(two_layers: str) -> str:
    fields = cast("dict[str, object]", json.loads(two_layers))
    return json.dumps(fields | {"num_hidden_layers": 3, "vocab_size": 128})


@pytest.fixture(scope="module")
def three_layer_graph(three_layers: str, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(three_layers, encoding="utf-8")
    return load(str(path))


def theirs(config_text: str, reduced: torch.dtype | None) -> Mapping[str, float]:
    """Bytes that are whole in each state of the middle layer, in layers of bf16."""
    fields = cast("dict[str, object]", json.loads(config_text))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        mesh = init_device_mesh("cpu", (RANKS,))
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            for unit in (*model.model.layers, model):
                fully_shard(unit, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=reduced))
            tracker = FSDPMemTracker(model)
            with tracker:
                step(model)
                tracker.reset_mod_stats()
                step(model)
        return whole_bytes(tracker, model.model.layers[1])
    finally:
        dist.destroy_process_group()


def step(model: nn.Module) -> None:
    ids, positions = torch.zeros(1, SEQ, dtype=torch.int64), torch.arange(SEQ)[None]
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    torch.autograd.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()))


def whole_bytes(tracker: FSDPMemTracker, unit: nn.Module) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for state, seen in tracker.memory_tracking[unit].snapshots.items():
        (by_kind,) = seen[-1].values()
        sizes = (size for kind, size in by_kind.items() if getattr(kind, "value", "") in WHOLE)
        found[state.name] = sum(sizes) / (LAYER * BF16)
    return found


def ours(graph: Graph, reduced: DType | None) -> float:
    """The largest temporaries, in layers of bf16."""
    lowered = pipeline_for(Family(zero=3, reduce_dtype=reduced)).run(graph)[0]
    at = {"mbs": 0.0, "seq": float(SEQ), "tp": 1.0, "dp": float(RANKS)}
    return max(float(e.evaluate(at)) for _, _, e in moments(lowered)) / (LAYER * BF16)


@pytest.mark.parametrize(("width", "layers"), [("bf16", 4.0), ("fp32", 5.0)])
def test_two_layers_of_weights_and_two_of_gradients_are_whole_at_once(
    three_layers: str, three_layer_graph: Graph, width: str, layers: float
) -> None:
    # The layer's parameters and gradients, the next one's parameters and the last one's gradients on their way.
    wide = width == "fp32"
    found = theirs(three_layers, torch.float32 if wide else None)
    assert found["BEF_POST_FW"] == pytest.approx(2.0, abs=ROOT)
    assert found["BEF_POST_BW"] == pytest.approx(layers, abs=ROOT)
    assert ours(three_layer_graph, DType.FP32 if wide else None) == pytest.approx(layers, abs=ROOT)
