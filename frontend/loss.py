"""What a module returns to the tensors that count, and to the loss that training starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ..ir.errors import TraceError
from ..ir.records import dataclass
from .record.adapter import depends_on_data
from .semantic import semantic

SUMMED = "training starts from the sum of all real outputs: none is a loss or logits of the ids that were given"
# Early exits and heads that predict several tokens: each output is compared with the ids.
ADDED = "training starts from the sum of the cross-entropies of {} outputs, each of which is logits"


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


def _entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return semantic.cross_entropy(logits, labels)[0]


Entropy: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"


@dataclass(frozen=True, slots=True)
class LabelledInputs:
    """What tells logits from other results: labels for the ids that were given, and the tables that ids look up."""

    labels: Tensor | None
    rows: frozenset[int]
    widths: frozenset[int]

    @classmethod
    def of(cls, module: nn.Module, inputs: Mapping[str, Tensor]) -> LabelledInputs:
        """Make labels [..] of the first ids [..] of two dims or more; call it where tensors are fake."""
        ids = next((t for t in inputs.values() if t.dim() > 1 and t.dtype in (torch.int64, torch.int32)), None)
        tables = [m for m in module.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
        labels = None if ids is None else torch.empty(ids.shape, dtype=torch.int64, device="cpu")
        return cls(labels, frozenset(m.num_embeddings for m in tables), frozenset(m.embedding_dim for m in tables))

    def labels_of(self, found: Tensor) -> Tensor | None:
        """Return the labels of a result that is logits, one row for each id; None for any other result.

        Rows as wide as a table of embeddings are hidden states, unless that many ids are known, too. Logits [n, vocab]
        of all positions in one dim, or of fewer positions, are known by having as many columns as the largest table has
        rows: a smaller one, of positions, is often as wide as what two towers are compared by.
        """
        if self.labels is None or found.dim() < 2 or not found.is_floating_point() or depends_on_data(found):
            return None
        width = found.shape[-1]
        if found.shape[:-1] == self.labels.shape:
            hidden = isinstance(width, int) and width in self.widths and width not in self.rows
            return None if hidden else self.labels
        if not isinstance(width, int) or width != max(self.rows, default=0):
            return None
        return torch.empty(found.shape[:-1], dtype=torch.int64, device="cpu")

    def loss(self, out: object, entropy: Entropy = _entropy) -> tuple[Tensor, str]:
        """Return the loss of what a module returned, and what to say of it where it is no loss: SUMMED.

        A scalar called `loss`, or the only one; else the cross-entropy of what is called `logits`; else the
        cross-entropies of all results that are logits, added up; else the sum of all real results.
        `entropy` is the cross-entropy of logits with labels: where it is recorded, the operator that is one node.
        """
        results = list(returned(out))
        scalars = [t for t in results if t.dim() == 0 and t.is_floating_point()]
        named = _named(out, "loss")
        if named is not None and named.dim() == 0:
            return named, ""
        if len(scalars) == 1:
            return scalars[0], ""
        named = _named(out, "logits")
        if named is not None and self.labels_of(named) is not None:
            results = [named]
        pairs = [(found, labels) for found in results if (labels := self.labels_of(found)) is not None]
        if not pairs:
            return _sum(results), SUMMED
        losses = [entropy(found.float(), labels) for found, labels in pairs]
        return sum(losses[1:], losses[0]), ADDED.format(len(losses)) if len(losses) > 1 else ""


def _sum(results: Sequence[Tensor]) -> Tensor:
    trained = torch.is_grad_enabled()
    sums = [t.sum() for t in results if t.is_floating_point() and (t.requires_grad or not trained)]
    if not sums:
        raise TraceError(
            "no result depends on a parameter that is trained, so there is no backward pass; ask for --phase prefill"
        )
    total = sums[0]
    for one in sums[1:]:
        total = total + one
    return total


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
    """Every tensor that a module returned, each once and in order; TraceError when it returned none."""
    tensors = {id(t): t for t in _tensors(out)}
    if not tensors:
        raise TraceError(f"the module returns {type(out).__name__} without a tensor in it")
    yield from tensors.values()


def _tensors(out: object, depth: int = 0) -> Iterator[Tensor]:
    """Tensors in lists, tuples, dicts, dataclasses and other plain objects, at any depth."""
    if isinstance(out, Tensor):
        yield out
    elif depth < 8:
        for part in _parts(out):
            yield from _tensors(part, depth + 1)


def _parts(out: object) -> Sequence[object]:
    if isinstance(out, list | tuple):
        return out
    if isinstance(out, nn.Module | str | bytes | type):
        return ()
    if isinstance(out, Mapping):
        return list(out.values())
    slots = [getattr(out, name, None) for name in getattr(type(out), "__dataclass_fields__", ())]
    return slots or list(getattr(out, "__dict__", {}).values())


def _named(out: object, name: str) -> Tensor | None:
    found = out.get(name) if isinstance(out, Mapping) else getattr(out, name, None)
    return found if isinstance(found, Tensor) else None
