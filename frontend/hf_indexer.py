"""Indexers of sparse attention in transformers as one operator, found in what their own forward multiplies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from . import semantic
from .adapter import swapped


class _Products(TorchFunctionMode):
    """Keeps the operands of matrix products, and lets `.float()` be: kernels score in the type of the model, or fp8."""

    def __init__(self) -> None:
        """Begin with no product."""
        super().__init__()
        self.operands: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func is torch.Tensor.float:
            return args[0]
        if func is torch.matmul:
            left, right = args[:2]
            assert isinstance(left, Tensor)
            assert isinstance(right, Tensor)
            self.operands.append((left, right))
        return func(*args, **(kwargs or {}))


@contextmanager
def indexed(model: nn.Module) -> Iterator[None]:
    """Let each indexer of the form of DeepSeek-V3.2 be one operator, behind its own projections and rotation.

    What its forward made of the scores is read by nobody then, and is no part of the graph.
    """
    with ExitStack() as stack:
        for part in model.modules():
            if type(part).__name__.endswith("Indexer") and isinstance(getattr(part, "index_topk", None), int):
                stack.enter_context(swapped(part, "forward", _indexer(part, part.forward)))
        yield


def _indexer(part: nn.Module, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(*args: object, **options: object) -> Tensor:
        with _Products() as seen:
            made = original(*args, **options)
        found = _scores(seen.operands)
        if found is None:
            return made
        with torch.no_grad():
            return semantic.index_keys(*found, int(part.index_topk), True)  # type: ignore[arg-type]

    return forward


def _scores(operands: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Q [b, h, s, d], k [b, 1, t, d], weights [b, s, h] of q [b, s, h, d] k [b, 1, d, t] and weights [b, s, 1, h]."""
    if len(operands) != 2:
        return None
    (q, k), (weights, _) = operands
    fits = q.dim() == k.dim() == weights.dim() == 4 and k.shape[1] == 1 and weights.shape[2] == 1
    return (q.transpose(1, 2), k.transpose(2, 3), weights.squeeze(2)) if fits else None


__all__ = ["indexed"]
