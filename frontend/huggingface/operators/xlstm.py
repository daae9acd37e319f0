"""mLSTM, the matrix memory of xLSTM (arXiv 2405.04517): linear attention decayed by gates, as one scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from ...semantic.scan import scan
from .memory import Memory


def methods(part: nn.Module, memory: Memory) -> Mapping[str, Callable[..., object]]:
    """Return the forward of an mLSTM backend; nothing for another module."""
    chunk = getattr(getattr(part, "config", None), "chunk_size", None)
    if not hasattr(part, "chunkwise_kernel_fn") or not isinstance(chunk, int):
        return {}
    return {"forward": _forward(chunk, memory)}


def _forward(chunk: int, memory: Memory) -> Callable[..., tuple[Tensor, None]]:
    """The state of a head is the matrix [n, p]; its normaliser [n] and running maximum ride along in the kernel."""

    def forward(
        query: Tensor, key: Tensor, value: Tensor, igate: Tensor, fgate: Tensor, **_options: object
    ) -> tuple[Tensor, None]:
        q, k, v, i, f = (t.transpose(1, 2) for t in (query, key, value, igate, fgate))
        before = memory.state()
        y, state = scan(v, [q, k, i, f], before, "linear", chunk if before is None else 0, k.shape[-1])
        memory.keep(state)
        return y.transpose(1, 2), None

    return forward


__all__ = ["methods"]
