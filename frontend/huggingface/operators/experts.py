"""Banks of experts in transformers as one operator each, whatever loop over experts their own forward is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...record.adapter import swapped
from ...record.preserve import Contexts, one_context
from ...semantic import semantic
from ...semantic.constants import expert_function

Forward = Callable[..., object]


def experts(  # type: ignore[no-untyped-def]
    self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor, early: bool = False
) -> Tensor:
    """A bank as transformers calls it: tokens [tokens, hidden], ids and routing weights [tokens, top_k]."""
    has_gate = hasattr(self, "gate_up_proj")
    up = self.gate_up_proj if has_gate else self.up_proj
    up_bias = getattr(self, "gate_up_proj_bias" if has_gate else "up_proj_bias", None)
    return _bank(self, hidden_states, top_k_index, top_k_weights, up, self.down_proj, up_bias, has_gate, early)


def _bank(  # type: ignore[no-untyped-def]
    self,
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    gated: bool,
    early: bool = False,
) -> Tensor:
    down_bias = getattr(self, "down_proj_bias", None) if up_bias is not None else None
    rows = x.reshape(-1, x.shape[-1])
    ids, weights = ids.reshape(-1, ids.shape[-1]), weights.reshape(-1, weights.shape[-1])
    # Weights are [experts, in, out] where the class says so, else where widths of up and down do not meet.
    said = getattr(self, "is_transposed", None)
    turned = bool(said) if said is not None else up.shape[2] != down.shape[1]
    function = expert_function(self, gated)
    out = semantic.experts(rows, ids, weights, up, down, up_bias, down_bias, gated, turned, *function, early)
    return out[0].reshape(x.shape)


@one_context
def banked(model: nn.Module) -> Contexts:
    """Let every bank of experts be one operator, for as long as a recording takes."""
    for part in list(model.modules()):
        if (weights := _REFORMED.get(type(part).__name__)) is not None:
            yield weights(part)
        for name, ours in _replacements(part).items():
            yield swapped(part, name, ours)


def _replacements(part: nn.Module) -> Mapping[str, Forward]:
    make = _BY_CLASS.get(type(part).__name__)
    if make is not None:
        return make(part)
    # Weights of all experts in one tensor each, and a forward that takes tokens, their experts and their weights.
    up = getattr(part, "gate_up_proj", getattr(part, "up_proj", None))
    down = getattr(part, "down_proj", None)
    stacked = all(isinstance(w, nn.Parameter) and w.dim() == 3 for w in (up, down))
    if stacked and len(inspect.signature(type(part).forward).parameters) == 4:
        return {"forward": lambda *args, **named: experts(part, *args, **named)}
    return {}


def _identities(part: nn.Module) -> Mapping[str, Forward]:
    """LongCat: of the experts chosen, those without weights hand their token on.

    With tokens spread evenly that is their share of all experts: LongCat-Flash chooses 12 of 512 + 256, and 8 of these
    compute (arXiv 2509.01322, section 2.1).
    """
    routed, total = int(part.num_routed_experts), int(part.total_experts)  # type: ignore[arg-type]

    def forward(hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        count = max(1, round(top_k_index.shape[-1] * routed / total))
        up = part.gate_up_proj[:routed]  # type: ignore[index]
        ids, weights = top_k_index[:, :count], top_k_weights[:, :count]
        computed = _bank(part, hidden_states, ids, weights, up, part.down_proj, None, True)  # type: ignore[arg-type]
        return computed + hidden_states * top_k_weights[:, count:].sum(-1, keepdim=True)

    return {"forward": forward}


def _llama4(part: nn.Module) -> Mapping[str, Forward]:
    """Llama 4: each token weighted before its expert, which is the same work as behind it."""

    def forward(hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        logits = F.linear(x, part.router.weight)  # type: ignore[union-attr,arg-type]
        scores, ids = torch.topk(logits, int(part.top_k), dim=1)  # type: ignore[arg-type]
        routed = experts(part.experts, x, ids, torch.sigmoid(scores.float()).to(x.dtype), early=True)
        return part.shared_expert(x) + routed, logits  # type: ignore[operator]

    return {"forward": forward}


def _jetmoe(part: nn.Module) -> Mapping[str, Forward]:
    """JetMoE: two projections that each hold all experts."""

    def forward(layer_input: Tensor) -> Tensor:
        x = layer_input.reshape(-1, layer_input.shape[-1])
        ids, weights = _chosen(part.router, x)  # type: ignore[arg-type]
        up, down = part.input_linear.weight, part.output_linear.weight  # type: ignore[union-attr]
        out = _bank(part, x, ids, weights, up, down, None, True)  # type: ignore[arg-type]
        return out.view(layer_input.shape) + part.bias  # type: ignore[operator]

    return {"forward": forward}


def _chosen(router: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    scores, ids = router.layer(x).float().topk(router.top_k, dim=1)  # type: ignore[operator]
    return ids, torch.softmax(scores, dim=1).type_as(x)


def _jetmoe_attention(part: nn.Module) -> Mapping[str, Forward]:
    """JetMoE: queries and outputs of attention are projected by the experts of each token: a grouped product each."""
    top_k = int(part.top_k)  # type: ignore[arg-type]

    def to_queries(layer_input: Tensor) -> tuple[Tensor, None, tuple[Tensor, Tensor]]:
        b, s, width = layer_input.shape
        ids, weights = _chosen(part.router, layer_input.reshape(-1, width))  # type: ignore[arg-type]
        order = ids.flatten().argsort()
        rows = layer_input.reshape(-1, width)[order.div(top_k, rounding_mode="trunc")]
        made = _grouped(rows, part.input_linear.weight)[order.argsort()]  # type: ignore[union-attr,arg-type]
        return made.view(b, s, top_k, -1), None, (order, weights)

    def to_outputs(layer_input: Tensor, routing: tuple[Tensor, Tensor]) -> Tensor:
        b, s, k, width = layer_input.shape
        order, weights = routing
        rows = layer_input.reshape(-1, width)[order]
        made = _grouped(rows, part.output_linear.weight)[order.argsort()]  # type: ignore[union-attr,arg-type]
        weighted = made.view(b, s, k, -1) * weights.view(b, s, k, 1)
        return weighted.sum(2) + part.bias  # type: ignore[operator]

    return {"map": to_queries, "reduce": to_outputs}


def _grouped(rows: Tensor, weight: Tensor) -> Tensor:
    """Rows, sorted by expert, through the matrix [out, in] of their expert."""
    ends = torch.zeros(weight.shape[0], dtype=torch.int32, device=rows.device)
    return F.grouped_mm(rows, weight.transpose(1, 2), offs=ends)


@contextmanager
def _joined(part: nn.Module) -> Iterator[None]:
    """DBRX: gate and up of all experts side by side, as engines load them (vLLM `models/dbrx.py`: `ws`, `w2s`)."""
    own = part._parameters
    w1, down = own["w1"], own["w2"]
    assert w1 is not None
    assert down is not None
    num, ffn, hidden = int(part.moe_num_experts), int(part.ffn_hidden_size), int(part.hidden_size)  # type: ignore[arg-type]
    made = {"ws": w1.new_empty(num, 2 * ffn, hidden), "w2s": down.new_empty(num, hidden, ffn)}
    before = dict(own)
    own.clear()
    own.update({name: nn.Parameter(w, requires_grad=w1.requires_grad) for name, w in made.items()})
    try:
        yield
    finally:
        own.clear()
        own.update(before)


def _dbrx(part: nn.Module) -> Mapping[str, Forward]:
    def forward(hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        up, down = part.mlp.ws, part.mlp.w2s  # type: ignore[union-attr]
        return _bank(part, hidden_states, top_k_index, top_k_weights, up, down, None, True)  # type: ignore[arg-type]

    return {"forward": forward}


_BY_CLASS: Mapping[str, Callable[[nn.Module], Mapping[str, Forward]]] = MappingProxyType(
    {
        "LongcatFlashExperts": _identities,
        "Llama4TextMoe": _llama4,
        "JetMoeMoE": _jetmoe,
        "JetMoeMoA": _jetmoe_attention,
        "DbrxExperts": _dbrx,
    }
)
_REFORMED = MappingProxyType({"DbrxExpertGLU": _joined})
