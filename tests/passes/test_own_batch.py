"""A batch that is a number belongs to one replica: a plan of many replicas is that of the same model with it open."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

import slipstick
from slipstick import Family, Workload
from slipstick.driver.estimate import estimate
from slipstick.ir.errors import PlanError, UsageError
from slipstick.ir.graph import Graph, LengthBound
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.plan import Plan
from slipstick.ir.sizes.fixed_sizes import check_sizes, counts_tokens, fixed_sizes

BATCH = 4
SYSTEM = slipstick.load_system("dgx-h100")


class Picture(nn.Module):
    """A classifier of pictures: patches, layers with a skip, a mean over places."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        logits: Tensor = self.head(x.mean(1))
        return logits


def added(output: object) -> Tensor:
    """A loss of logits."""
    assert isinstance(output, Tensor)
    return output.sum()


@cache
def graph(phase: str, is_open: bool) -> Graph:
    """The classifier with an open batch, or with one of four."""
    dynamic = {"x": ("batch",) if is_open else ()}
    return slipstick.trace(Picture(), torch.rand(BATCH, 3, 16, 16), dynamic=dynamic, phase=phase, loss=added)


def plan(family: Family, num_gpus: int = 8, mbs: int = BATCH, gbs: int | None = None, cp: int = 1) -> Plan:
    """A plan of replicas."""
    return slipstick.make_plan(
        num_gpus=num_gpus, seq_len=128, family=family, micro_batch=mbs, global_batch=gbs, cp=cp
    )  # fmt: skip


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_replicas_of_a_fixed_batch_train_as_those_of_an_open_one(zero: int) -> None:
    asked = plan(Family(zero=zero), gbs=3 * 8 * BATCH)
    one, other = (estimate(graph("train", is_open), SYSTEM, asked) for is_open in (True, False))
    assert other.metrics == pytest.approx(one.metrics, rel=1e-12)
    assert other.breakdown_s == pytest.approx(one.breakdown_s, rel=1e-12)
    assert other.memory_bytes == pytest.approx(one.memory_bytes, rel=1e-12)


def test_replicas_of_a_fixed_batch_infer_as_those_of_an_open_one() -> None:
    asked = plan(Family(workload=Workload.PREFILL))
    one, other = (estimate(graph("prefill", is_open), SYSTEM, asked) for is_open in (True, False))
    assert other.metrics == pytest.approx(one.metrics, rel=1e-12)


def test_samples_count_where_there_are_no_tokens() -> None:
    found = estimate(graph("train", False), SYSTEM, plan(Family(), gbs=64)).metrics
    assert found["samples_per_s"] == pytest.approx(64 / found["step_time_s"])
    assert found["samples_per_s_per_gpu"] == pytest.approx(found["samples_per_s"] / 8)
    assert found["tokens_per_s"] == found["samples_per_s"]
    # Two FLOPs a weight, place and sample forward and as many for each gradient; patches need none of their input.
    places, patches, layers = 4, 3 * 8 * 8 * 32, 3 * 32 * 32
    one = 2 * places * (2 * patches + 3 * layers) + 3 * 2 * 32 * 10
    assert found["model_flops"] == pytest.approx(64 * one)


def test_what_splits_a_batch_or_length_that_cannot_be_split_is_refused() -> None:
    fixed = graph("train", False)
    assert fixed_sizes(fixed) == (BATCH, None)
    assert fixed_sizes(graph("train", True)) == (None, None)
    assert not counts_tokens(fixed)
    # Patches of a batch of two pictures: the graph says of what batch it is.
    assert fixed_sizes(replace(fixed, bounds=(LengthBound("batch", 2, 2),))) == (2, None)
    with pytest.raises(UsageError, match=r"'Picture' has fixed sizes: give --mbs 4, or make it with open ones"):
        estimate(fixed, SYSTEM, plan(Family(), mbs=2))
    with pytest.raises(PlanError, match="cp=2: 'Picture' has no sequence that ranks could share out; use cp=1"):
        check_sizes(fixed, plan(Family(cp="allgather"), cp=2))


def test_a_search_takes_no_plan_of_another_batch() -> None:
    lowered = slipstick.lower(graph("train", False), Family())
    plans = slipstick.PlanTable.of([plan(Family(), mbs=mbs, gbs=64) for mbs in (1, BATCH, 8)])
    assert list(slipstick.screen(lowered, SYSTEM, plans).legal) == [False, True, False]


class Pairs(nn.Module):
    """Two towers and the likeness of every sample of one to every sample of the other, as in contrastive training."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(32, 16), nn.Linear(32, 16)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return a loss of both directions."""
        likeness = self.left(x) @ self.right(y).t() * self.scale.exp()
        labels = torch.arange(x.shape[0], device=x.device)
        cross_entropy = nn.functional.cross_entropy
        return cross_entropy(likeness, labels) + cross_entropy(likeness.t(), labels)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_pairs_of_samples_are_those_of_a_replica(zero: int) -> None:
    """Code on a replica sees its own samples: [mbs, mbs] pairs, whatever the replicas; gradients alone meet."""
    inputs = {"x": torch.rand(BATCH, 32), "y": torch.rand(BATCH, 32)}
    traced = slipstick.trace(Pairs(), inputs, dynamic={"x": ("batch",), "y": ("batch",)}, phase="train", loss=added)
    sharded = slipstick.lower(traced, Family(zero=zero)).graph
    made = {str(r.by_id[n.outputs[0]].type) for r in sharded.regions for n in r.nodes if n.op == "matmul"}
    assert "fp32[mbs, mbs]" in made
    sent = [
        str(r.by_id[i].type) for r in sharded.regions for n in r.nodes for i in n.inputs
        if isinstance(n.attrs, CollectiveAttrs) and n.attrs.axis == "dp"
    ]  # fmt: skip
    assert sent
    assert not [kind for kind in sent if "mbs" in kind]
    one, many = (estimate(traced, SYSTEM, plan(Family(zero=zero), num_gpus=gpus)).breakdown_s for gpus in (1, 8))
    assert many["compute.matmul"] == pytest.approx(one["compute.matmul"], rel=1e-6)
