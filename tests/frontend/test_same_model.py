"""One Llama of two layers, by every road into the compiler: the same work, the same parameters, the same operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from slipstick.frontend.dynamo import backend, capture
from slipstick.frontend.exported import load_pt2
from slipstick.frontend.loading import load_config
from slipstick.frontend.models import read_config
from slipstick.ir.expr import Expr, total
from slipstick.ir.graph import Graph, Phase, Role, Workload
from slipstick.ir.ops import work_of

CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=256, max_position_embeddings=512,
)  # fmt: skip
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
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Workload, Graph]:
    path = tmp_path_factory.mktemp("llama") / "config.json"
    path.write_text(CONFIG.to_json_string(use_diff=False))
    return {w: load_config(read_config(str(path)), w) for w in (Workload.TRAIN, Workload.PREFILL)}


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


# A road is a workload and a folder to write into, to the graph.
ROADS: Mapping[str, Callable[[Workload, Path], Graph]] = MappingProxyType({"exported": exported, "compiled": compiled})


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
    road: str, workload: Workload, recorded: Mapping[Workload, Graph], tmp_path: Path
) -> None:
    given, expected = ROADS[road](workload, tmp_path), recorded[workload]
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert flops(given, phase) == flops(expected, phase)
    assert given.num_parameters == expected.num_parameters
    assert parameter_bytes(given) == parameter_bytes(expected)
    assert kinds(given) == kinds(expected)
    assert given.saved_bytes == expected.saved_bytes
    assert [r.count for r in given.schedule] == [1, 2, 1]
