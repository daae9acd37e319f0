"""What the forward phase keeps for the backward phase, against the tensors that autograd itself saves."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
import torch

from slipstick.frontend import load
from slipstick.frontend.fold.blocks import Identity
from slipstick.frontend.fold.trace import trace
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.frontend.runs.factories import run_from_factory
from slipstick.ir.graph import Workload
from slipstick.ir.sizes.expr import Expr, as_expr, symbol, total
from slipstick.ir.types import DType

pytestmark = pytest.mark.oracle

NETS = Path(__file__).parents[1] / "data" / "nets.py"

# Layers that are enough for every kind of layer to appear at least twice.
CASES = {
    "llama-3.1-8b": ("num_hidden_layers", 4),
    "gpt2-xl": ("n_layer", 4),
    "mixtral-8x7b": ("num_hidden_layers", 4),
    "deepseek-v3": ("num_hidden_layers", 5),
    "gpt-oss-20b": ("num_hidden_layers", 4),
}


def never_read(name: str, tokens: Expr) -> Expr:
    """Bytes that autograd saves for gradients nobody asks for.

    DeepSeek-V3 chooses experts by scores that are not detached: for the choice alone, each of its two MoE layers here
    saves the indices of the two best experts in each of 8 groups and of the 4 best groups (int64), and the mask over
    256 experts (one byte each). The choice has no gradient, so no backward operator reads them.
    """
    return tokens * (2 * (8 * 2 * 8 + 4 * 8 + 256)) if name == "deepseek-v3" else as_expr(0)


def shortened_config(name: str) -> str:
    """The catalogue's config with few layers."""
    fields = cast("dict[str, object]", json.loads(read_config(name).text))
    key, num_layers = CASES[name]
    fields[key] = num_layers
    if isinstance(types := fields.get("layer_types"), list):
        fields["layer_types"] = types[:num_layers]
    return json.dumps(fields)


def saved_by_autograd(module: torch.nn.Module, is_transformers: bool) -> Expr:
    """Bytes of all storages that autograd saves in one training step of every layer, parameters left out."""
    from slipstick.frontend.huggingface.runs import plan_run
    from slipstick.frontend.record.adapter import FakeWorld, make_fake, storage_id
    from slipstick.frontend.record.record import kept_mode, record
    from slipstick.frontend.semantic.lift import lifted

    world = FakeWorld()
    make_fake(module, world)
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.setdefault(storage_id(tensor), tensor)
        return tensor

    with ExitStack() as scope:
        if is_transformers:
            from slipstick.frontend.huggingface.recording import patched

            scope.enter_context(patched(module))
        scope.enter_context(kept_mode(module, True))
        run = plan_run(module, world, Workload.TRAIN, is_transformers)
        scope.enter_context(world.mode)
        scope.enter_context(lifted(module))
        scope.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor))
        record(module, run.inputs, run.call, world, True)
    for constant in (*module.parameters(), *module.buffers()):
        saved.pop(storage_id(constant), None)
    return total(world.dim(tensor.untyped_storage().nbytes()) for tensor in saved.values())


@pytest.mark.parametrize("name", CASES)
def test_saved_bytes_are_those_of_autograd(name: str) -> None:
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    from slipstick.frontend.huggingface.configs.building import build

    config, identity = shortened_config(name), Identity(name, Workload.TRAIN, DType.BF16)
    graph = trace(build(config, DType.BF16), identity, is_transformers=True)
    theirs = saved_by_autograd(build(config, DType.BF16), is_transformers=True)
    assert graph.saved_bytes + never_read(name, symbol("batch") * symbol("seq")) == theirs


@pytest.mark.parametrize("factory", ["gpt", "llama", "with_loss", "in_place", "by_operator", "mixed"])
def test_saved_bytes_of_a_users_module_are_those_of_autograd(factory: str) -> None:
    spec = f"{NETS}:{factory}"
    theirs = saved_by_autograd(run_from_factory(spec, DType.BF16).module, is_transformers=False)
    assert load(spec).saved_bytes == theirs
