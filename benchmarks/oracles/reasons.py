"""Why ours differs from an oracle where it does."""

from __future__ import annotations

from .case import Found

_LATENT = "one rotary key for all heads stands beside column-parallel layers: its gradient is a sum over ranks"
_SCALARS = "two numbers of the activation see the columns of a rank: their gradients are sums over ranks"
_BLOCKS = "products of its block-diagonal gates are batched on PyTorch's side, where they are not counted"
_UNREDUCED = "PyTorch's side leaves it unreduced, which is a wrong gradient"
_KNOWN = {
    ("axk1", "module by module"): f"{_LATENT}; {_UNREDUCED}",
    ("deepseek_v3", "module by module"): f"{_LATENT}; {_UNREDUCED}",
    ("recurrent_gemma", "FSDP2"): _BLOCKS,
    ("recurrent_gemma", "HSDP"): _BLOCKS,
    ("apertus", "module by module"): f"{_SCALARS}; {_UNREDUCED}",
    ("apertus", "transformers' plan"): f"{_SCALARS}; {_UNREDUCED}",
}


def reason_for(found: Found) -> str:
    """Return the reason; nothing where none is known."""
    unread = "parameters that take no part in a training step are not in our graph" if found.unread else ""
    return _KNOWN.get((found.model_type, found.oracle), unread)
