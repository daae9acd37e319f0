"""What a module returns to the loss that training starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..ir.errors import TraceError
from . import semantic


def loss_of(out: object, labels: Tensor) -> Tensor:
    """Mean cross-entropy of logits [.., vocab] in fp32 with labels [..]; a scalar is taken as the loss itself."""
    found = returned_tensor(out, "loss", "logits")
    if found.dim() == 0:
        return found
    if found.dim() != labels.dim() + 1:
        raise TraceError(
            f"the module returns a tensor of {found.dim()} dims; logits have {labels.dim() + 1}, a loss has 0"
        )
    return semantic.cross_entropy(found.float(), labels)[0]


def free_loss(out: object, labelled: dict[str, Tensor]) -> Tensor:
    """The loss of a module whose inputs are not known: a scalar it returns, else the cross-entropy of its logits.

    Labels [..] of logits [.., vocab] are made where they are needed and put into `labelled`.
    """
    found = _scalar(out)
    if found is not None:
        return found
    logits = returned_tensor(out, "loss", "logits")
    if logits.dim() < 2:
        raise TraceError(
            f"the module returns a tensor of {logits.dim()} dims, neither a loss (0) nor logits (2 or more); name a "
            "`loss` that makes a scalar of it"
        )
    labelled["labels"] = torch.empty(logits.shape[:-1], dtype=torch.int64, device="cpu")
    return semantic.cross_entropy(logits.float(), labelled["labels"])[0]


def returned_tensor(out: object, *names: str) -> Tensor:
    """Return the tensor that a module returned: itself, one of its attributes, or the first of a tuple."""
    found = next((v for n in names if isinstance(v := getattr(out, n, None), Tensor)), out)
    if isinstance(found, tuple | list) and found:
        found = next((v for v in found if isinstance(v, Tensor)), found)
    if isinstance(found, dict):
        found = next((v for n in names if isinstance(v := found.get(n), Tensor)), found)
    if not isinstance(found, Tensor):
        raise TraceError(
            f"the module returns {type(out).__name__}; it must return logits, an object with `logits`, or a loss"
        )
    return found


def returned(out: object) -> Iterator[Tensor]:
    """Every tensor that a module returned, in order; TraceError when it returned none."""
    tensors = [t for t in _parts(out) if isinstance(t, Tensor)]
    if not tensors:
        raise TraceError(f"the module returns {type(out).__name__} without a tensor in it")
    yield from tensors


def _parts(out: object) -> Sequence[object]:
    if isinstance(out, Tensor):
        return (out,)
    if isinstance(out, list | tuple):
        return out
    return list((out if isinstance(out, dict) else getattr(out, "__dict__", {})).values())


def _scalar(out: object) -> Tensor | None:
    """A loss among what was returned: a tensor without dims, by name or by place."""
    named = getattr(out, "loss", None)
    return next((t for t in (named, *_parts(out)) if isinstance(t, Tensor) and t.dim() == 0), None)


__all__ = ["free_loss", "loss_of", "returned", "returned_tensor"]
