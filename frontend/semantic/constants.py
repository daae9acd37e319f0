"""Constants of modules that our operators stand for, found by running the module's own code on a few real numbers.

How a rotary embedding pairs its entries, what a norm adds to its weight, what an expert does between its products:
libraries say it in code alone. Each is compared with the forms that are known; what is none of them is "unknown".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ..record.adapter import undisturbed

UNKNOWN = "unknown"
Rotation = Callable[[Tensor, Tensor, Tensor], Tensor]
# Learned slope of gpt-oss's gate where a module does not say (openai/gpt-oss `model.py`: swiglu's alpha).
_ALPHA = 1.702


def turned(x: Tensor, cos: Tensor, sin: Tensor, style: str) -> Tensor:
    """Return x [.., d] turned by tables [.., r] in one of the known styles; entries beyond the tables pass as they are.

    `half` turns entry i with i + r/2, `pairs` neighbours; `split` sorts neighbours apart first and turns halves;
    `*_of_half` takes the first half of the tables for both of a pair; `*_narrow` have tables of half the width.
    """
    if style.endswith("_of_half"):
        cos, sin = (t[..., : t.shape[-1] // 2] for t in (cos, sin))
    if style.startswith("pairs_"):
        cos, sin = (t.repeat_interleave(2, -1) for t in (cos, sin))
    elif style.endswith(("_of_half", "_narrow")):
        cos, sin = (torch.cat((t, t), -1) for t in (cos, sin))
    width = cos.shape[-1]
    part, rest = x[..., :width], x[..., width:]
    if style.startswith("split"):
        part = part.reshape(*part.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
    if not style.startswith("pairs"):
        first, second = part.chunk(2, -1)
        other = torch.cat((-second, first), -1)
    else:
        other = torch.stack((-part[..., 1::2], part[..., ::2]), -1).flatten(-2)
    return torch.cat((part * cos + other * sin, rest), -1)


STYLES = ("half", "pairs", "split", "pairs_of_half", "split_of_half", "half_narrow", "pairs_narrow", "split_narrow")


def rotary_style(original: Rotation, width: int, table: int, head_dim: int = 1) -> str:
    """Return which style a function is that turns x [1, 2, 3, width] by tables [1, 3, table]; "unknown" for none.

    `head_dim` says where x has its heads; the tables are given to it without that dim.
    """
    with undisturbed(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.rand(1, 2, 3, width, dtype=torch.float64)
        cos, sin = (torch.rand(1, 3, table, dtype=torch.float64) for _ in range(2))
        x = x if head_dim == 1 else x.transpose(1, 2)
        try:
            made = original(x, cos, sin)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return UNKNOWN
        return next((s for s in STYLES if _same(made, x, cos.unsqueeze(head_dim), sin.unsqueeze(head_dim), s)), UNKNOWN)


def _same(made: Tensor, x: Tensor, cos: Tensor, sin: Tensor, style: str) -> bool:
    turns = cos.shape[-1] * (2 if style.endswith("narrow") else 1)
    if turns > x.shape[-1] or turns % 2 or (style.endswith("_of_half") and cos.shape[-1] % 2):
        return False
    ours = turned(x, cos, sin, style)
    return made.shape == ours.shape and torch.allclose(made.double(), ours, rtol=1e-6, atol=1e-6)


# What is run on numbers takes memory; no model is nearly as wide.
_WIDEST_PROBE = 1 << 24


def norm_constants(part: nn.Module) -> tuple[float, float]:
    """Return epsilon of an RMS norm, and what it adds to its weight: 1 where the weight is kept as a difference."""
    names = ("variance_epsilon", "eps", "epsilon", "norm_eps", "layer_norm_epsilon")
    eps = next((e for n in names if isinstance(e := getattr(part, n, None), float)), 1e-6)
    weight = part.weight
    assert isinstance(weight, Tensor)
    if not 0 < weight.numel() <= _WIDEST_PROBE:
        return eps, 0.0
    with undisturbed(), torch.no_grad():
        probe = copy.copy(part)
        probe.__dict__ = {**part.__dict__, "_parameters": {"weight": nn.Parameter(torch.zeros(tuple(weight.shape)))}}
        x = torch.linspace(-1.0, 2.0, weight.shape[-1] * 2).view(2, -1)
        try:
            made = type(part).forward(probe, x)
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return eps, 0.0
        plain = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return eps, float(round(float((made * plain).sum() / (plain * plain).sum())))


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "relu": F.relu,
        "relu2": lambda x: F.relu(x).square(),
        "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    }
)


def swiglu_oai(gate: Tensor, up: Tensor, alpha: float, limit: float) -> Tensor:
    """(up + 1) gate sigmoid(alpha gate), both clamped: gpt-oss."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def gated(x: Tensor, act: str, interleaved: bool, alpha: float, limit: float) -> Tensor:
    """Return what is made of gate and up [.., 2 ffn], side by side or in turns."""
    gate, up = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    if act == "swiglu_oai":
        return swiglu_oai(gate, up, alpha, limit)
    return ACTIVATIONS[act](gate) * up


def expert_function(part: nn.Module, has_gate: bool) -> tuple[str, bool, float, float]:
    """Return activation, whether gate and up alternate, slope and limit of a bank of experts, by running them."""
    alpha, limit = (
        float(v) if isinstance(v := getattr(part, n, d), int | float) else d
        for n, d in (("alpha", _ALPHA), ("limit", 0.0))
    )
    own = getattr(part, "_apply_gate", None) if has_gate else None
    act = getattr(part, "act_fn", getattr(part, "activation_fn", getattr(part, "act", None)))
    with undisturbed():
        x = torch.linspace(-9.0, 11.0, 40, dtype=torch.float64).roll(7).view(2, 20)
        try:
            made: object = own(x) if callable(own) else act(x) if callable(act) else F.silu(x)
            if not isinstance(made, Tensor):
                return UNKNOWN, False, alpha, limit
            if callable(own):
                return _gate(made, x, alpha, limit)
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return UNKNOWN, False, alpha, limit
        found = (name for name, ours in ACTIVATIONS.items() if torch.allclose(made, ours(x)))
        return next(found, UNKNOWN), False, alpha, limit


def _gate(made: Tensor, x: Tensor, alpha: float, limit: float) -> tuple[str, bool, float, float]:
    for name in (*ACTIVATIONS, "swiglu_oai"):
        for interleaved in (False, True):
            if made.shape[-1] * 2 == x.shape[-1] and torch.allclose(made, gated(x, name, interleaved, alpha, limit)):
                return name, interleaved, alpha, limit
    return UNKNOWN, False, alpha, limit
