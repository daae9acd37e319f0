"""Recomputation against checkpoints of PyTorch: every product that a training step of two Llama-3.1-8B layers runs.

Checkpoints that are not reentrant stop a layer as soon as everything saved is there again (`early_stop`); reentrant
ones run all of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, cast

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from slipstick.frontend.record.adapter import DispatchMode
from slipstick.ir.graph import Graph
from slipstick.ir.ops import work_of
from slipstick.ir.sizes.expr import Expr
from slipstick.passes.manager import parse_pipeline

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("no_packed_sequences")]

SEQ = 2048
PRODUCTS_FORWARD = 15  # seven in each of two layers, and the head
ATTENTION = "attention"

# (m, n, k) of products, and forward calls of fused attention under one name.
Counts = Counter[tuple[int, int, int] | str]


class Recorder(DispatchMode):
    """Notes products of two matrices and calls of fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counts = Counter()

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        if str(func) == "aten.mm.default":
            left, right = cast("Sequence[torch.Tensor]", args)
            self.found[left.shape[0], right.shape[1], left.shape[1]] += 1
        elif "attention" in str(func) and "backward" not in str(func):
            self.found[ATTENTION] += 1


class Layer(Protocol):
    """What is wrapped of a layer."""

    forward: Callable[..., object]
    mlp: torch.nn.Module
    self_attn: torch.nn.Module
    input_layernorm: torch.nn.Module
    post_attention_layernorm: torch.nn.Module


Wrap = Callable[[Layer], None]
Contexts = Callable[[object], tuple[AbstractContextManager[object], AbstractContextManager[object]]]


def checkpointed(module: Layer | torch.nn.Module) -> None:
    module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def whole_attention(layer: Layer) -> None:
    checkpointed(layer.self_attn)


def mlp_and_attention(layer: Layer) -> None:
    checkpointed(layer.mlp)
    checkpointed(layer.self_attn)


def norms(layer: Layer) -> None:
    checkpointed(layer.input_layernorm)
    checkpointed(layer.post_attention_layernorm)


class EverySecondProduct:
    """A policy as torchtitan's: attention and every second product, beginning with the first, are kept."""

    def __init__(self) -> None:
        self.seen: Counter[bool] = Counter()

    def __call__(self, context: object, func: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        product = str(func) == "aten.mm.default"
        again = bool(getattr(context, "is_recompute"))  # noqa: B009 - untyped
        self.seen[again] += product
        kept = self.seen[again] % 2 == 1 if product else "attention" in str(func)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def by_ops(layer: Layer) -> None:
    contexts = cast("Contexts", create_selective_checkpoint_contexts)
    policies = partial(_contexts, contexts)
    layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, context_fn=policies)


def _contexts(make: Contexts) -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """Contexts of the forward phase and of its repetition, with counts of their own."""
    return make(EverySecondProduct())


def theirs(config_text: str, checkpoints: Mapping[str, bool] | None, wrap: Wrap | None = None) -> Counts:
    fields = cast("dict[str, object]", json.loads(config_text))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        if checkpoints is not None:
            model.activation_checkpointing_enable(dict(checkpoints))
        if wrap is not None:
            for layer in model.model.layers:
                wrap(layer)
        ids, positions = torch.zeros(1, SEQ, dtype=torch.int64), torch.arange(SEQ)[None]
        with Recorder() as recorder:
            logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
            torch.autograd.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten()))
    found: Counts = recorder.found
    return found


def ours(graph: Graph, recompute: str) -> Counts:
    found: Counts = Counter()
    lowered = parse_pipeline(f"shard,recompute{{{recompute}}}").run(graph)[0]
    for region in lowered.regions:
        for node in region.nodes:
            for gemm in work_of(region, node).gemms:
                shape = (number(gemm.batch * gemm.m), number(gemm.n), number(gemm.k))
                found[shape] += lowered.counts[region.name]
            if node.op == ATTENTION:
                found[ATTENTION] += lowered.counts[region.name]
    return found


def number(dim: Expr) -> int:
    return int(float(dim.evaluate({"mbs": 1.0, "seq": float(SEQ), "tp": 1.0, "dp": 1.0})))


@pytest.mark.parametrize(
    ("checkpoints", "recompute", "again"),
    [
        (None, 'policy="none"', 0),
        ({"use_reentrant": False}, 'policy="full"', 2 * 6),
        ({"use_reentrant": True}, 'policy="full", early_stop=false', 2 * 7),
    ],
)
def test_products_of_a_step(
    two_layers: str, two_layer_graph: Graph, checkpoints: Mapping[str, bool] | None, recompute: str, again: int
) -> None:
    found = theirs(two_layers, checkpoints)
    assert found[ATTENTION] == (2 if checkpoints is None else 4)
    assert found.total() - found[ATTENTION] == 3 * PRODUCTS_FORWARD + again
    assert ours(two_layer_graph, recompute) == found


@pytest.mark.parametrize(
    ("wrap", "recompute", "again"),
    [
        # Queries, keys and values; gate and up; of what a norm makes nothing is a product.
        (whole_attention, 'policy="selective", modules=["self_attn"]', {"products": 3, "attention": 1}),
        (lambda layer: checkpointed(layer.mlp), 'policy="selective", modules=["mlp"]', {"products": 2, "attention": 0}),
        (mlp_and_attention, 'policy="selective", modules=["mlp", "self_attn"]', {"products": 5, "attention": 1}),
        (norms, 'policy="selective", modules=["*norm"]', {"products": 0, "attention": 0}),
        # Of seven products the second, fourth and sixth.
        (by_ops, 'policy="ops"', {"products": 3, "attention": 0}),
    ],
)
def test_products_of_modules_and_ops(
    two_layers: str, two_layer_graph: Graph, wrap: Wrap, recompute: str, again: Mapping[str, int]
) -> None:
    found = theirs(two_layers, None, wrap)
    assert found[ATTENTION] == 2 * (1 + again["attention"])
    assert found.total() - found[ATTENTION] == 3 * PRODUCTS_FORWARD + 2 * again["products"]
    assert ours(two_layer_graph, recompute) == found
