"""State space models and short convolutions of transformers: one operator in place of each spelled-out recurrence.

Modelling files hold fallbacks of fused kernels as functions of the same names (`mamba_selective_scan` and so on), which
loop over positions. While a model is recorded, these names stand for the semantic operators.
"""

# ruff: noqa: N803 - arguments have the names of the functions that these stand for

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping

from torch import Tensor, nn

from ...record.adapter import swapped
from ...record.preserve import Contexts, one_context
from ...semantic.scan import causal_conv, keep_state, scan


def _conv(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, **_options: object
) -> Tensor:
    """The convolution of x [b, c, L] over the past by weights [c, k], and the activation behind it."""
    return causal_conv(hidden_states, weight.unsqueeze(1), bias, None, activation or "", 0)[0]


def _conv_step(
    hidden_states: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None
) -> Tensor:
    """The same of the next tokens, with the inputs before them in `conv_state`, which is written anew."""
    kept = conv_state.shape[-1]
    out, state = causal_conv(hidden_states, weight.unsqueeze(1), bias, conv_state, activation or "", kept)
    keep_state(state, conv_state)
    return out


def _selective(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    return_last_state: bool = False,
    **_options: object,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mamba's scan over x, dt, z [b, d, L], A [d, n], B and C [b, n, L], D and delta_bias [d]."""
    b, d, length = hidden_states.shape
    rows = [t.transpose(1, 2) for t in (dt, z) if t is not None]
    shared = [t.transpose(1, 2).unsqueeze(2) for t in (C, B)]
    own = [t for t in (A, D, delta_bias) if t is not None]
    values = hidden_states.transpose(1, 2).unsqueeze(-1)
    out, state = scan(values, [*shared, *rows, *own], None, "selective", 0, A.shape[-1])
    y = out.reshape(b, length, d).transpose(1, 2)
    return (y, state) if return_last_state else y


def _selective_step(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    z: Tensor | None = None,
    **_options: object,
) -> Tensor:
    """One step of Mamba's scan: x, dt, z [b, d], A [d, n], B and C [b, n], state [b, d, n, 1]."""
    rows = [t.unsqueeze(1) for t in (dt, z) if t is not None]
    shared = [t[:, None, None] for t in (C, B)]
    own = [t for t in (A, D, dt_bias) if t is not None]
    out, made = scan(hidden_states[:, None, :, None], [*shared, *rows, *own], state, "selective", 0, A.shape[-1])
    keep_state(made, state)
    return out[:, 0, :, 0]


def _chunked(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    z: Tensor | None = None,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    **_options: object,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mamba-2's scan over x [b, L, h, p], dt [b, L, h], A, D and dt_bias [h], B and C [b, L, g, n].

    Time steps, behind their softplus, are kept within `dt_limit`.
    """
    others = [t for t in (C, B, dt, z, A, D, dt_bias) if t is not None]
    limits = (dt_limit[0], -1.0 if math.isinf(dt_limit[1]) else dt_limit[1])
    out, state = scan(hidden_states, others, initial_states, "ssd", chunk_size, B.shape[-1], limits)
    return (out, state) if return_final_states else out


def _chunked_step(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    z: Tensor | None = None,
    **_options: object,
) -> Tensor:
    """One step of Mamba-2's scan: x, dt, z [b, h, p], A [h, p, n], B and C [b, g, n], D and dt_bias [h, p].

    What has one value a head is passed expanded, as the fused kernel asks for it, and read once.
    """
    rows = [dt[:, None, :, 0], *(() if z is None else (z.unsqueeze(1),))]
    own = [A[:, 0, 0], *(t[:, 0] for t in (D, dt_bias) if t is not None)]
    shared = [t.unsqueeze(1) for t in (C, B)]
    out, made = scan(hidden_states.unsqueeze(1), [*shared, *rows, *own], state, "ssd", 0, B.shape[-1])
    keep_state(made, state)
    return out[:, 0]


_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "causal_conv1d_fn": _conv,
    "causal_conv1d_update": _conv_step,
    "mamba_selective_scan": _selective,
    "mamba_selective_state_update": _selective_step,
    "mamba2_chunk_scan": _chunked,
    "mamba2_selective_state_update": _chunked_step,
}


@one_context
def scans(model: nn.Module) -> Contexts:
    """Let the fallbacks of fused kernels in a model's modelling files be semantic operators for a while."""
    for module in {sys.modules[type(m).__module__] for m in model.modules()}:
        for name, function in _FUNCTIONS.items():
            if hasattr(module, name):
                yield swapped(module, name, function)
