"""What is recorded of a run is the module as its class was written, at any wrapper, and the run keeps its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from slipstick.ir.errors import NotBuiltError
from slipstick.watch.bare import bare, recomputes

from .nets_watched import Bigram


def test_a_copy_has_the_sizes_and_no_data() -> None:
    net = Bigram()
    copy = bare(net)
    assert type(copy) is Bigram
    assert {n: p.shape for n, p in copy.named_parameters()} == {n: p.shape for n, p in net.named_parameters()}
    assert {p.device.type for p in copy.parameters()} == {"meta"}
    assert {p.device.type for p in net.parameters()} == {"cpu"}


def test_parameters_have_the_type_that_the_run_computes_in_and_the_rest_their_own() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    copy = bare(net, torch.bfloat16)
    assert {p.dtype for p in copy.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in copy.buffers()} == {torch.bfloat16, torch.int64}
    assert {b.dtype for b in bare(net, torch.bfloat16, keeps_buffers=True).buffers()} == {torch.float32, torch.int64}
    assert {p.dtype for p in net.parameters()} == {torch.float32}


def test_tied_weights_stay_tied_and_frozen_ones_frozen() -> None:
    net = Bigram()
    net.down = nn.Linear(16, 64)
    net.down.weight = net.embed.weight
    net.up.weight.requires_grad_(False)
    copy = bare(net)
    assert isinstance(copy, Bigram)
    assert copy.down.weight is copy.embed.weight
    assert [n for n, p in copy.named_parameters() if not p.requires_grad] == ["up.weight"]


def test_hooks_and_a_forward_that_a_trainer_has_put_there_are_left_out() -> None:
    net, calls = Bigram(), []
    net.register_forward_pre_hook(lambda *_: calls.append("hook"))
    net.up.register_forward_hook(lambda *_: calls.append("hook"))
    setattr(net, "forward", lambda ids: calls.append("forward"))  # noqa: B010 - a method is set, as accelerate does
    out = bare(net)(torch.zeros(2, 3, dtype=torch.int64, device="meta"))
    assert calls == []
    assert out.shape == (2, 3, 64)


def test_what_leads_to_a_module_leads_to_its_copy() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.parts = [self.inner]
            self.run = self.twice

        def twice(self, x: Tensor) -> Tensor:
            out: Tensor = self.parts[0](self.inner(x))
            return out

        def forward(self, x: Tensor) -> Tensor:
            return self.run(x)

    copy = bare(Held())
    assert copy(torch.zeros(2, 4, device="meta")).device.type == "meta"


def test_wrappers_are_unwrapped() -> None:
    net = Bigram()
    net.up = checkpoint_wrapper(net.up)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    assert recomputes(net)
    assert {n for n, _ in bare(cast(nn.Module, torch.compile(net, backend="eager"))).named_parameters()} == {
        n for n, _ in Bigram().named_parameters()
    }


def test_flags_of_gradient_checkpointing_are_seen_and_off_in_the_copy() -> None:
    net = Bigram()
    assert not recomputes(net)
    setattr(net.up, "gradient_checkpointing", True)  # noqa: B010 - as transformers sets it
    assert recomputes(net)
    assert not recomputes(bare(net))


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_sharded_parameters_have_their_whole_size() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = Bigram()
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(net.up, mesh=mesh)
    fully_shard(net, mesh=mesh)
    copy = bare(net)
    assert type(copy) is Bigram
    assert type(copy.up) is nn.Linear
    assert {n: p.shape for n, p in copy.named_parameters()} == {n: p.shape for n, p in Bigram().named_parameters()}
    assert copy(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 64)


def test_parameters_without_shapes_are_refused() -> None:
    held = nn.Module()
    held.add_module("_fsdp_wrapped_module", Bigram())
    with pytest.raises(NotBuiltError, match="fully_shard"):
        bare(held)
