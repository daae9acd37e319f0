"""One Llama of two layers, by every road into the compiler: the same work, the same parameters, the same operators."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from slipstick.frontend.dynamo import backend, capture
from slipstick.frontend.exported import load_pt2
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.frontend.loading import load_config
from slipstick.frontend.onnx import load_onnx
from slipstick.ir.graph import Graph, Phase, Role, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.sizes.expr import Expr, total
from slipstick.ir.types import DType

DATA = Path(__file__).parents[3] / "data"
CONFIG = LlamaConfig(**json.loads((DATA / "configs" / "tiny-llama.json").read_text()))
IDS = torch.zeros(3, 32, dtype=torch.int64)
# Which of these a graph has is a matter of how a road writes the same tensor; they move nothing.
VIEWS = ("reshape", "permute", "slice", "expand")


class Step(nn.Module):
    """What is exported: ids to logits; in prefill the logits of the last position, and the cache."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.workload = workload
        self.model = LlamaForCausalLM._from_config(CONFIG, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        if self.workload is Workload.TRAIN:
            return (self.model(input_ids=ids, use_cache=False).logits,)
        cache = DynamicCache(config=CONFIG)
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return (out.logits, *(t for layer in cache.layers for t in (layer.keys, layer.values)))  # type: ignore[union-attr,arg-type]


@pytest.fixture(scope="module")
def recorded() -> Callable[[Workload, DType], Graph]:
    config = read_config(str(DATA / "configs" / "tiny-llama.json"))
    return cache(lambda workload, dtype: load_config(config, workload, dtype))


def exported(workload: Workload, folder: Path) -> Graph:
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", min=2, max=512)}
    program = torch.export.export(Step(workload), (IDS,), dynamic_shapes={"ids": dims})
    torch.export.save(program, folder / "llama.pt2")
    return load_pt2(folder / "llama.pt2", workload)


def compiled(workload: Workload, folder: Path) -> Graph:
    ids = IDS.clone()
    torch._dynamo.mark_dynamic(ids, (0, 1))
    with capture() as captured:
        torch.compile(Step(workload), backend=backend, fullgraph=True)(ids)
    return captured.graph(workload)


def as_onnx(workload: Workload, folder: Path) -> Graph:
    """Files written by `torch.onnx.export`; the one for training has no cache and all logits, as training has."""
    name = "tiny-llama" if workload is Workload.TRAIN else "tiny-llama-prefill"
    return load_onnx(DATA / "onnx" / f"{name}.onnx", workload)


Road = Callable[[Workload, Path], Graph]
# A road is a workload and a folder to write into, to the graph; and the type of its weights.
ROADS: Mapping[str, tuple[Road, DType]] = MappingProxyType(
    {"exported": (exported, DType.BF16), "compiled": (compiled, DType.BF16), "onnx": (as_onnx, DType.FP32)}
)


def flops(graph: Graph, phase: Phase) -> Expr:
    return total(
        work_of(region, node).tensor_flops * graph.counts[region.name]
        for region in graph.regions
        for node in region.nodes
        if node.phase is phase
    )


def kinds(graph: Graph) -> Counter[tuple[str, Phase]]:
    counted: Counter[tuple[str, Phase]] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            if node.op not in VIEWS:
                counted[node.op, node.phase] += graph.counts[region.name]
    return counted


def parameter_bytes(graph: Graph) -> Expr:
    return total(
        v.type.num_bytes * graph.counts[region.name] for region in graph.regions for v in region.of_role(Role.PARAM)
    )


@pytest.mark.parametrize("workload", [Workload.TRAIN, Workload.PREFILL])
@pytest.mark.parametrize("road", ROADS)
def test_every_road_gives_the_same_graph(
    road: str, workload: Workload, recorded: Callable[[Workload, DType], Graph], tmp_path: Path
) -> None:
    run, dtype = ROADS[road]
    given, expected = run(workload, tmp_path), recorded(workload, dtype)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert flops(given, phase) == flops(expected, phase)
    assert given.num_parameters == expected.num_parameters
    assert parameter_bytes(given) == parameter_bytes(expected)
    assert kinds(given) == kinds(expected)
    assert given.saved_bytes == expected.saved_bytes
    assert [r.count for r in given.schedule] == [1, 2, 1]
