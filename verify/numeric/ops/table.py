"""The reference of each op, and of those that must know which entries a rank holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from ....ir.graph import Node
from ....ir.ops.fused.experts import ExpertsAttrs
from ....ir.ops.fused.routing import RoutedAttrs
from ....ir.ops.tensors.pointwise import FillAttrs
from ....ir.records import dataclass
from ..axes import Where
from ..call import Local, LocalDim, NotComputedError, RankCall, Reference, TokenRows
from ..layout import scattered
from . import attention, experts, plain, scan
from .experts import bank_grads, through
from .plain import real_dtype, run_program

_CONSTANTS: Mapping[str, float] = {"zeros": 0.0, "empty": 0.0, "ones": 1.0}


@dataclass(frozen=True)
class Here:
    """A node on one rank: its place, what was recorded, the number of the rank, and the experts whose rows it takes."""

    where: Where
    call: RankCall
    number: int
    experts: Tensor

    @property
    def node(self) -> Node:
        """The node."""
        return self.where.node

    def whole_sizes(self) -> Mapping[str, int]:
        """The symbols of recorded arguments, which speak of the whole tensor."""
        return self.where.layout.sizes


def _fill(here: Here, given: Sequence[Local]) -> list[Local]:
    """A tensor made from nothing is made whole, and cut."""
    (out,) = here.where.made
    layout = here.where.layout
    axes = layout.own(here.where.region, out, here.where.rank)
    dims = [layout.size(out, d) for d in range(out.type.rank)]
    attrs, dtype = here.node.attrs, real_dtype(out.type.dtype)
    assert isinstance(attrs, FillAttrs)
    if attrs.kind in _CONSTANTS:
        whole = torch.full(dims, _CONSTANTS[attrs.kind], dtype=torch.float64).to(dtype)
    elif attrs.kind == "constant":
        whole = torch.full(dims, _constant(here.node), dtype=torch.float64).to(dtype)
    else:
        (whole,) = run_program(here.node, [], here.whole_sizes())
    return [Local(scattered(whole.reshape(dims), axes), axes)]


def _constant(node: Node) -> float:
    if node.meaning is None:
        raise NotComputedError(f"'fill' at '{node.scope or 'the top'}' has no recorded call")
    said = node.meaning.steps[0]
    found = next((v for name in ("fill_value", "s", "value") if (v := said.argument(name)) is not None), None)
    if not isinstance(found, int | float):
        raise NotComputedError(f"'{said.operator}' at '{node.scope or 'the top'}' fills with what is no number")
    return float(found)


def _embedding(here: Here, given: Sequence[Local]) -> list[Local]:
    """Rows of a table; of a part of it, those that are there, and zeros."""
    ids, table = given
    held, where = table.axes[0], ids.tensor.long()
    if held.index is None:
        made = table.tensor[where]
    else:
        local = torch.full((held.size,), -1, dtype=torch.int64)
        local[held.held] = torch.arange(held.length)
        at = local[where]
        found = (
            table.tensor[at.clamp(min=0)] if held.length else table.tensor.new_zeros(*at.shape, table.tensor.shape[1])
        )
        made = found * (at >= 0).unsqueeze(-1)
    return [Local(made, (*ids.axes, table.axes[1]))]


def _embedding_bwd(here: Here, given: Sequence[Local]) -> list[Local]:
    grad, ids = given
    (out,) = here.where.made
    own = here.where.layout.own(here.where.region, out, here.where.rank)
    padding = here.call.number("padding_idx", -1)
    if here.call.constant("scale_grad_by_freq", False):
        raise NotComputedError("gradients of an embedding scaled by frequency")
    rows = grad.tensor.reshape(-1, grad.tensor.shape[-1])
    places = ids.tensor.reshape(-1).long()
    rows = rows * (places != padding).unsqueeze(1)
    made = rows.new_zeros(own[0].size, rows.shape[1]).index_add_(0, places, rows)
    return [Local(made[own[0].held], (own[0], grad.axes[-1]))]


def _dispatch(here: Here, given: Sequence[Local]) -> list[Local]:
    """A row for each copy of a token, sorted by expert; a rank that takes its own takes those of its experts."""
    x, ids = given
    attrs = here.node.attrs
    assert isinstance(attrs, RoutedAttrs)
    if attrs.capacity:
        raise NotComputedError("experts with a fixed capacity drop or pad rows, which the module does not")
    k = ids.tensor.shape[1]
    tokens = x.axes[0].held
    origin = (tokens[:, None] * k + torch.arange(k)).flatten()
    chosen = ids.tensor.reshape(-1).long()
    rows = TokenRows(chosen, origin, torch.full_like(chosen, here.number))
    if attrs.own:
        rows = rows.taken(torch.isin(chosen, here.experts).nonzero().flatten())
    rows = rows.taken(rows.order)
    made = x.tensor[_token_places(rows, x.axes[0], k)]
    if here.call.constant("early", False):
        raise NotComputedError("routed experts whose tokens are weighted before")
    return [Local(made, (LocalDim(made.shape[0]), x.axes[1]), rows)]


def _token_places(rows: TokenRows, tokens: LocalDim, k: int) -> Tensor:
    """Where in a rank's tokens each row comes from."""
    place = torch.full((tokens.size,), -1, dtype=torch.int64)
    place[tokens.held] = torch.arange(tokens.length)
    return place[rows.origin // k]


def _rows(given: Local) -> TokenRows:
    if given.rows is None:
        raise NotComputedError("rows of experts that were not dispatched")
    return given.rows


def _dispatch_bwd(here: Here, given: Sequence[Local]) -> list[Local]:
    grads, ids = given
    k = ids.tensor.shape[1]
    places = _token_places(_rows(grads), ids.axes[0], k)
    made = grads.tensor.new_zeros(ids.tensor.shape[0], grads.tensor.shape[1]).index_add_(0, places, grads.tensor)
    return [Local(made, (ids.axes[0], grads.axes[1]))]


def _combine(here: Here, given: Sequence[Local]) -> list[Local]:
    """The weighted sum of the rows of each token that are here."""
    rows, weights, ids = given
    k = ids.tensor.shape[1]
    told = _rows(rows)
    places = _token_places(told, ids.axes[0], k)
    shares = weights.tensor[places, told.origin % k].unsqueeze(1)
    made = rows.tensor.new_zeros(ids.tensor.shape[0], rows.tensor.shape[1]).index_add_(0, places, rows.tensor * shares)
    return [Local(made, (ids.axes[0], rows.axes[1]))]


def _combine_bwd(here: Here, given: Sequence[Local]) -> list[Local]:
    grad, rows, weights, ids = given
    k = ids.tensor.shape[1]
    told = _rows(rows)
    places = _token_places(told, ids.axes[0], k)
    slots = told.origin % k
    made = grad.tensor[places] * weights.tensor[places, slots].unsqueeze(1)
    shares = torch.zeros_like(weights.tensor)
    shares[places, slots] = (grad.tensor[places] * rows.tensor).sum(1)
    return [Local(made, rows.axes, told), Local(shares, weights.axes)]


def _local_experts(rows: TokenRows, bank: Local) -> Tensor:
    """The place in a rank's bank of each row's expert."""
    axis = bank.axes[0]
    place = torch.full((axis.size,), -1, dtype=torch.int64)
    place[axis.held] = torch.arange(axis.length)
    found = place[rows.expert]
    if found.numel() and int(found.min()) < 0:
        raise NotComputedError("rows at a rank that does not hold their expert")
    return found


def _bank(here: Here, given: Sequence[Local]) -> list[Local]:
    rows, *weights = given
    attrs = here.node.attrs
    assert isinstance(attrs, ExpertsAttrs)
    told = _rows(rows)
    ids = _local_experts(told, weights[0])
    up, act, down = through(here.call, attrs, rows.tensor, ids, [w.tensor for w in weights])
    first = rows.axes[0]
    wide, inner = (weights[0].axes[2 if attrs.transposed else 1], weights[1].axes[1 if attrs.transposed else 2])
    return [Local(down, rows.axes, told), Local(up, (first, wide), told), Local(act, (first, inner), told)]


def _bank_bwd(here: Here, given: Sequence[Local]) -> list[Local]:
    grad, rows, up, down, up_out, act = given[:6]
    attrs = here.node.attrs
    assert isinstance(attrs, ExpertsAttrs)
    told = _rows(rows)
    ids = _local_experts(told, up)
    tensors = (grad.tensor, rows.tensor, up.tensor, down.tensor, up_out.tensor, act.tensor)
    made = bank_grads(here.call, attrs, tensors, ids)[: len(here.node.outputs)]
    width = up.axes[2 if attrs.transposed else 1]
    axes = [rows.axes, up.axes, down.axes, (up.axes[0], width), (up.axes[0], LocalDim(rows.tensor.shape[1]))]
    return [Local(t, a, told if k == 0 else None) for k, (t, a) in enumerate(zip(made, axes, strict=False))]


HELD: Mapping[str, Callable[[Here, Sequence[Local]], list[Local]]] = {
    "fill": _fill,
    "embedding": _embedding,
    "embedding_bwd": _embedding_bwd,
    "dispatch": _dispatch,
    "dispatch_bwd": _dispatch_bwd,
    "combine": _combine,
    "combine_bwd": _combine_bwd,
    "expert_bank": _bank,
    "expert_bank_bwd": _bank_bwd,
}


REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {
        **plain.REFERENCES,
        **attention.REFERENCES,
        **experts.REFERENCES,
        **scan.REFERENCES,
    }
)
