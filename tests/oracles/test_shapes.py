"""Symbolic dims, evaluated at one size, against every matrix product that a real training step runs at that size."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from slipstick.frontend import load
from slipstick.frontend.record.adapter import DispatchMode
from slipstick.ir.graph import Graph
from slipstick.ir.ops import work_of

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = pytest.mark.oracle

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
BATCH, SEQ = 2, 128

Gemm = tuple[int, int, int]


class Products(DispatchMode):
    """Notes (m, n, k) of every product of two matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[Gemm] = Counter()

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        if str(func) in ("aten.mm.default", "aten.addmm.default"):
            left, right = args[-2:]
            assert isinstance(left, torch.Tensor)
            assert isinstance(right, torch.Tensor)
            self.found[left.shape[0], right.shape[1], left.shape[1]] += 1


def products_run(config_file: Path) -> Counter[Gemm]:
    """Train one step on real numbers."""
    fields = json.loads(config_file.read_text(encoding="utf-8"))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    ids = torch.zeros(BATCH, SEQ, dtype=torch.int64)
    with Products() as products:
        logits = model(input_ids=ids, use_cache=False).logits
        torch.autograd.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten()))
    return Counter(products.found)


def products_recorded(graph: Graph) -> Counter[Gemm]:
    """Evaluate the sizes of every product of the graph, as often as its region runs."""
    env = {"batch": float(BATCH), "seq": float(SEQ)}
    found: Counter[Gemm] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            if node.op != "matmul":
                continue
            for gemm in work_of(region, node).gemms:
                assert gemm.batch.evaluate(env) == 1
                m, n, k = (int(float(size.evaluate(env))) for size in (gemm.m, gemm.n, gemm.k))
                found[m, n, k] += graph.counts[region.name]
    return found


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2"])
def test_every_product_has_the_size_it_has_in_a_real_run(name: str) -> None:
    file = CONFIGS / f"{name}.json"
    assert products_recorded(load(str(file))) == products_run(file)
