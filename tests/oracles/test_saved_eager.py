"""What unfused code keeps for the backward phase, against autograd's own hooks on transformers as it comes.

Nothing of ours is in the way of the model that the hooks watch: its norms, rotary embeddings and activations are the
Python code of transformers, its attention is torch's fused call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.frontend.cache import GraphCache
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.passes.manager import parse_pipeline

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
pytestmark = pytest.mark.oracle

BATCH, SEQ = 2, 256
SIZES: Mapping[str, object] = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 64,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 2048, "tie_word_embeddings": False,
    "pad_token_id": 0,
}  # fmt: skip
TYPES: Mapping[str, Mapping[str, object]] = {
    "llama": {}, "mistral": {"sliding_window": None}, "gemma": {}, "qwen2": {}, "olmo2": {}, "phi3": {}, "granite": {},
    "phi": {"num_key_value_heads": 4},
}  # fmt: skip


def config_of(kind: str) -> dict[str, object]:
    return {**SIZES, **TYPES[kind], "model_type": kind}


def config_file(kind: str, folder: Path) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(config_of(kind)), encoding="utf-8")
    return str(file)


def kept_by_autograd(kind: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of all storages that hooks see in a forward pass, parameters and buffers left out."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    # It reads the data of positions, of which fake tensors have none.
    monkeypatch.setattr(transformers.masking_utils, "find_packed_sequence_indices", lambda position_ids: None)
    fields = config_of(kind)
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with FakeTensorMode(allow_non_fake_inputs=True):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        model.train()
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
        ids = torch.zeros(BATCH, SEQ, dtype=torch.int64)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            logits = model(input_ids=ids, position_ids=torch.arange(SEQ)[None], use_cache=False).logits
            torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    return sum(t.untyped_storage().nbytes() for place, t in kept.items() if place not in own)


@pytest.mark.parametrize("kind", TYPES)
def test_spelled_out_code_keeps_what_autograd_keeps(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load(config_file(kind, tmp_path), spelled_out=True)
    ours = graph.saved_bytes.evaluate({"batch": BATCH, "seq": SEQ})
    assert ours == pytest.approx(kept_by_autograd(kind, monkeypatch), rel=0.02)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Graph]:
    """Llama with fused norms, rotary embeddings and activations, and as it spells them out."""
    config = config_file("llama", tmp_path_factory.mktemp("eager"))
    return load(config), load(config, spelled_out=True)


def test_an_rms_norm_in_python_keeps_its_input_in_full_precision(both: tuple[Graph, Graph]) -> None:
    """A fused norm keeps its input in bf16 (2 h) and a statistic.

    `LlamaRMSNorm` keeps the input in fp32 instead (4 h; for the square, and the product with the statistic) and the
    normed input in bf16 that the weight multiplies (2 h): two norms a layer. Rotary embeddings keep nothing more.
    """
    fused, spelled = (g.region("block0").saved_bytes.evaluate({"batch": 1, "seq": 1}) for g in both)
    assert spelled - fused == 2 * (4 + 2 - 2) * 256


def test_the_cache_tells_both_ways_apart(tmp_path: Path) -> None:
    config, cache = config_file("llama", tmp_path), GraphCache(tmp_path / "cache")
    first = load(config, cache=cache, spelled_out=True)
    again = load(config, cache=cache, spelled_out=True)
    assert print_graph(again) == print_graph(first)
    assert not load(config, cache=cache).spelled_out


def test_the_text_of_a_graph_says_how_it_is_recorded(both: tuple[Graph, Graph]) -> None:
    assert [parse_graph(print_graph(g)).spelled_out for g in both] == [False, True]


@pytest.mark.parametrize("kernels", ["plain", "torch", "merged", "compiled", "fused"])
def test_other_kernels_are_not_those_of_spelled_out_code(both: tuple[Graph, Graph], kernels: str) -> None:
    with pytest.raises(PlanError, match=f"kernels={kernels}: .* is recorded with norms"):
        lower(both[1], Family(kernels=kernels))


def test_kernels_that_a_graph_does_not_hold_are_said(both: tuple[Graph, Graph]) -> None:
    notes = [lower(g, Family(kernels="eager")).graph.notes for g in both]
    assert [any("count as one kernel each" in n for n in ns) for ns in notes] == [True, False]


def test_more_kernels_take_longer(both: tuple[Graph, Graph]) -> None:
    system = load_system("dgx-h100")
    fused, spelled = (
        estimate(g, system, make_plan(num_gpus=8, seq_len=4096, global_batch=8, family=Family(kernels=kernels)))
        for g, kernels in zip(both, ("plain", "eager"), strict=True)
    )

    kinds = ("compute.elementwise", "compute.norm", "compute.reduction", "compute.data")
    sums = [sum(a.breakdown_s.get(k, 0.0) for k in kinds) for a in (fused, spelled)]
    assert sums[1] > sums[0]


def test_norms_that_are_spelled_out_are_recomputed_by_name(both: tuple[Graph, Graph]) -> None:
    """The full-precision input and what the weight multiplies are made again: neither is kept."""
    for graph in both:
        after = parse_pipeline('shard,recompute{policy="selective", modules=["layernorm"]}').run(graph)[0]
        saved = after.region("block0").saved_bytes.evaluate({"mbs": 1, "seq": 1, "dp": 1, "tp": 1})
        fused = both[0].region("block0").saved_bytes.evaluate({"batch": 1, "seq": 1})
        # Two normed results of 2 h bytes less, and two statistics.
        assert saved == pytest.approx(fused - 2 * (2 * 256 + 4), abs=16)
