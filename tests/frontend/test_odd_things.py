"""Modules as people bring them: each is recorded as it is, or refused with the place and what to write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import slipstick
from slipstick.frontend import load
from slipstick.ir.errors import SlipstickError, UsageError
from slipstick.ir.graph import Phase, Role
from slipstick.ir.types import DType

from .sums import flops

FILE = Path(__file__).parents[1] / "data" / "odd_nets.py"
V, H = 64, 32


class Cast(nn.Module):
    """A gate that its own forward pass casts, as routers of mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.gate = nn.Embedding(V, H, dtype=torch.bfloat16), nn.Linear(H, V, dtype=torch.bfloat16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.gate = self.gate.to(torch.float32)
        scores: torch.Tensor = self.gate(self.table(ids).float())
        return scores


class Logs(nn.Module):
    """A layer that reads a number of its result while it is trained, to log it and to scale by it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(H, H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        if self.training:
            self.seen = y.mean().item()
            y = y / (2 * y.detach().abs().max().item() + 1)
        return x + y


@pytest.mark.parametrize("phase", ["train", "prefill"])
def test_a_number_that_is_read_while_training_is_of_no_matter(phase: str) -> None:
    net = nn.Sequential(nn.Embedding(V, H), *(Logs() for _ in range(3)), nn.Linear(H, V))
    graph = slipstick.trace(net, torch.zeros(2, 16, dtype=torch.int64), phase=phase)
    forward = float(flops(graph, Phase.FORWARD).evaluate({"batch": 2, "seq": 16}))
    assert forward == 2 * 2 * 16 * (3 * H * H + H * V)
    assert max(graph.counts.values()) == 3  # layers fold, though each reads a number of its own


def line(text: str) -> int:
    """The number of the one line of the file that holds a text."""
    (number,) = (n for n, one in enumerate(FILE.read_text(encoding="utf-8").splitlines(), 1) if text in one)
    return number


FORWARD = 2 * (H * H + H * V)  # two products a token
PARAMETERS = V * H + H * H + H + H * V + V


@pytest.mark.parametrize("name", ["Net", "ByName", "OnGpu", "held"])
def test_what_is_called_odd_or_laid_elsewhere_is_the_same_graph(name: str) -> None:
    graph = load(f"{FILE}:{name}", "prefill")
    assert flops(graph, Phase.FORWARD).evaluate({"batch": 1, "seq": 1}) == FORWARD
    assert graph.num_parameters == PARAMETERS


@pytest.mark.parametrize(("name", "width"), [("gpu", V), ("bound", 8)])
def test_factories_may_lay_on_a_gpu_and_bind_arguments(name: str, width: int) -> None:
    assert load(f"{FILE}:{name}", "prefill").num_parameters == PARAMETERS + V * width + width


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("AnyName", r"AnyName.forward says no name of an argument.*--input 'ids:int64\[batch,seq\]'"),
        ("Picked", rf"only known at run time .*odd_nets.py:{line('[ids > 3]')}$"),
        ("Lazy", r"'weight' of module 'l' \(LazyLinear\) has no size yet"),
        ("Scripted", r"module 'l' is TorchScript.*give the nn.Module"),
        ("sized", r"cannot be called without arguments .*missing 1 required positional argument: 'width'"),
        ("three", r"returned 3 things; a factory returns an nn.Module, a tuple \(module, inputs\)"),
        ("Broken", rf"odd_nets.py:{line('ones(7, 7)')}\) fails while it is recorded: RuntimeError: .*\[7, 7\].$"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_told_with_its_place(name: str, told: str) -> None:
    with pytest.raises(SlipstickError, match=told) as caught:
        load(f"{FILE}:{name}")
    assert "internal" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"module": torch.relu}, "its module is an nn.Module"),
        ({"inputs": 3}, "inputs of type int: a tensor, a sequence"),
        ({"fixed": {"seq": 0}}, "fixed seq=0: a size is a whole number, 1 or more"),
        ({"leaves": {"GELU": nn.Identity}}, "a leaf is said of a class"),
    ],
)
def test_a_description_is_of_what_it_says(given: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        slipstick.ModelRun(**{"module": nn.Linear(2, 2), **given})  # type: ignore[arg-type]


def test_numbers_that_are_no_tensors_are_not_taken_for_inputs() -> None:
    with pytest.raises(UsageError, match="inputs hold no tensor"):
        slipstick.trace(nn.Linear(2, 2), {"input": np.zeros((2, 2))})


def test_a_module_without_parameters_says_so_in_training() -> None:
    with pytest.raises(SlipstickError, match="no parameter of Identity exists, so there is no training step"):
        slipstick.trace(nn.Identity(), torch.zeros(2, 4))


def test_parameters_that_a_forward_pass_casts_stay_what_they_were() -> None:
    module = Cast()
    graph = slipstick.trace(module, torch.zeros(2, 4, dtype=torch.int64))
    assert flops(graph, Phase.FORWARD).evaluate({"batch": 1, "seq": 1}) == 2 * H * V
    stored = {v.name: v.type.dtype for r in graph.regions for v in r.values if v.role is Role.PARAM}
    assert set(stored.values()) == {DType.BF16}
    assert module.gate.weight.dtype is torch.bfloat16
    assert "weight" not in vars(module.gate)
