"""Stack, index, gather, scatter and repeat, traced: each dim has its letter, and no work grows with the replicas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn

import slipstick
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import OpClass, op_def, work_of
from slipstick.ir.ops.tensors.layout import SliceAttrs
from slipstick.ir.ops.tensors.lookup import LookupAttrs
from slipstick.passes.manager import parse_pipeline

HIDDEN, VOCAB = 16, 32
IDS = torch.zeros(2, 8, dtype=torch.int64)
Idiom = Callable[[Tensor, Tensor], Tensor]


class Net(nn.Module):
    """A table, a layer, what is tried out, and a head."""

    def __init__(self, tried: Idiom) -> None:
        super().__init__()
        self.tried = tried
        self.embed, self.layer = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        made: Tensor = self.head(self.tried(x, self.layer(x)))
        return made


def stack(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack((x, y), 0).sum(0)


def unbind(x: Tensor, y: Tensor) -> Tensor:
    q, k = y.view(*y.shape[:2], 2, HIDDEN // 2).unbind(2)
    return x + torch.cat((q * k, k), -1)


def select(x: Tensor, y: Tensor) -> Tensor:
    return x + y.index_select(2, torch.arange(HIDDEN - 1, -1, -1))


def index(x: Tensor, y: Tensor) -> Tensor:
    return x + y[:, :, torch.arange(HIDDEN - 1, -1, -1)]


def pick(x: Tensor, y: Tensor) -> Tensor:
    return x + y.view(*y.shape[:2], 2, HIDDEN // 2)[..., [1], :].squeeze(2).repeat(1, 1, 2)


def two_indices(x: Tensor, y: Tensor) -> Tensor:
    rows = torch.arange(4)
    return x + y.view(*y.shape[:2], 4, 4)[:, :, rows, rows].repeat_interleave(4, -1)


def gather(x: Tensor, y: Tensor) -> Tensor:
    return x + y.gather(-1, y.argsort(-1))


def scatter(x: Tensor, y: Tensor) -> Tensor:
    values, places = y.topk(4, -1)
    return x + torch.zeros_like(y).scatter(-1, places, values)


def averaged(x: Tensor, y: Tensor) -> Tensor:
    values, places = y.topk(4, -1)
    return x + torch.zeros_like(y).scatter_reduce(-1, places, values, "mean", include_self=False)


def segments(x: Tensor, y: Tensor) -> Tensor:
    """Means of the tokens of one kind, those of all samples in one row of numbers."""
    values, (batch, length) = y.sum(-1), y.shape[:2]
    places = values.argsort(-1) + torch.arange(batch).unsqueeze(-1) * length
    base = values.new_zeros(batch * length)
    means = base.scatter_reduce(0, places.flatten(), values.flatten(), "mean", include_self=False)
    return x + means.view(batch, length, 1)


def written(x: Tensor, y: Tensor) -> Tensor:
    made = torch.zeros_like(y)
    made[:, 1:] = y[:, 1:]
    return x + made


def roll(x: Tensor, y: Tensor) -> Tensor:
    return x + y.roll(1, 1)


def flip(x: Tensor, y: Tensor) -> Tensor:
    return x + y.flip(2)


def every_third(x: Tensor, y: Tensor) -> Tensor:
    return x + y[..., ::3].sum(-1, keepdim=True)


def twice(x: Tensor, y: Tensor) -> Tensor:
    """Samples repeated and folded again, as for guidance without a classifier."""
    return x + y.repeat(2, 1, 1).view(2, *y.shape).sum(0)


IDIOMS: tuple[tuple[Idiom, tuple[str, ...]], ...] = (
    (stack, ()), (unbind, ()), (select, ("abc,d->abd",)), (index, ("abc,d->abd",)),
    (pick, ("abc->abd",)), (two_indices, ("abcd,e,e->abe",)), (gather, ("abc,abd->abd",)),
    (scatter, ("abc,abd,abd->abc",)), (averaged, ("abc,abd,abd->abc",)), (segments, ("a,b,b->a",)),
    (written, ("abc,adc->abc",)), (roll, ("abc->adc",)), (flip, ("abc->abd",)),
    (every_third, ("abc->abd",)), (twice, ("abc->dbc",)),
)  # fmt: skip


@cache
def traced(tried: Idiom) -> Graph:
    return slipstick.trace(Net(tried), IDS)


@pytest.mark.parametrize(("tried", "specs"), IDIOMS)
def test_letters_say_which_dims_are_handed_on(tried: Idiom, specs: tuple[str, ...]) -> None:
    nodes = [n for r in traced(tried).regions for n in r.nodes if n.phase is Phase.FORWARD]
    assert tuple(n.attrs.spec for n in nodes if isinstance(n.attrs, LookupAttrs)) == specs


# What is taken out of 4 parts, where it starts, and how many of its 4 x 4 entries there are a token.
CONSTANT: tuple[tuple[Idiom, int, int], ...] = (
    (lambda _, y: y[..., [-2], :], 2, 1), (lambda _, y: y[..., -2, :], 2, 1), (lambda _, y: y[..., -1:, :], 3, 1),
    (lambda _, y: y[..., [1], :], 1, 1), (lambda _, y: y[..., 1:3, :], 1, 2),
)  # fmt: skip


@pytest.mark.parametrize(("tried", "start", "count"), CONSTANT)
def test_a_constant_index_is_a_slice(tried: Idiom, start: int, count: int) -> None:
    def parts(x: Tensor, y: Tensor) -> Tensor:
        return x + tried(x, y.view(*y.shape[:2], 4, 4)).reshape(*y.shape[:2], -1).repeat(1, 1, 4 // count)

    nodes = [n for r in slipstick.trace(Net(parts), IDS).regions for n in r.nodes]
    cut = [n.attrs for n in nodes if n.op in ("slice", "pad")]
    assert [(a.dim, a.start) for a in cut if isinstance(a, SliceAttrs)] == [(2, start)] * 2
    assert sum(n.op == "gather" for n in nodes) == (count < 4)  # that of `repeat`
    assert not any(n.op == "scatter" for n in nodes)


@pytest.mark.parametrize("places", [[2, 1], [1, 2]])
def test_more_places_are_looked_up(places: list[int]) -> None:
    def parts(x: Tensor, y: Tensor) -> Tensor:
        return x + y.view(*y.shape[:2], 4, 4)[..., places, :].reshape(*y.shape[:2], -1).repeat(1, 1, 2)

    specs = [n.attrs.spec for r in slipstick.trace(Net(parts), IDS).regions for n in r.nodes
             if n.phase is Phase.FORWARD and isinstance(n.attrs, LookupAttrs)]  # fmt: skip
    assert specs[0] == "abcd,e->abed"


def test_the_backward_of_unbind_is_a_join() -> None:
    """Of two views of one tensor, each of half its entries, comes one gradient: a concat along the dim taken apart."""
    nodes = [n for r in traced(unbind).regions for n in r.nodes if n.phase is Phase.BACKWARD]
    assert [n.op for n in nodes if n.op in ("gather", "pad", "concat")].count("concat") == 1


@pytest.mark.parametrize(("tried", "specs"), IDIOMS)
def test_no_work_of_a_rank_grows_with_the_replicas(tried: Idiom, specs: tuple[str, ...]) -> None:
    """Weak scaling: work is an expression, so no power of dp in it may be positive; no message has samples."""
    lowered = parse_pipeline("accumulate,shard").run(traced(tried))[0]
    for region in lowered.regions:
        for node in region.nodes:
            if op_def(node.op).kind is OpClass.COMMUNICATION:
                assert node.phase is Phase.REDUCE or "dp" not in str(node.attrs), (specs, node)
                continue
            work = work_of(region, node)
            sizes = (work.tensor_flops, work.vector_flops, work.num_bytes)
            assert all(power <= 0 for e in sizes for m, _ in e.terms for name, power in m if name == "dp"), node
