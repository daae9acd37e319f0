"""The one description of a run that all roads read, and what a factory may return in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from torch import Tensor, nn

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..example_inputs import Dynamic, Inputs
from ..leaves import Leaves

Loss: TypeAlias = Callable[[object], Tensor]


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A module with everything that its code does not say: example inputs, loss, leaves, caches.

    Args:
        module: any `nn.Module`, on any device.
        inputs: example arguments of `forward`: a tensor, a sequence in order, or a mapping by name. Only the sizes and
            types of tensors count. Left out, the one argument of forward gets token ids [batch, seq].
        dynamic: which dims of which arguments are `batch`, `seq` or `kv`, a word or None a dim, by argument name:
            `{"ids": ("batch", "seq")}`. Left out, dim 0 of the first tensor is batch and dim 1 seq, and so are the
            first two dims of other tensors that are as long there.
        loss: what makes a scalar of the output in training; left out, see `slipstick.trace`.
        leaves: classes whose code cannot be recorded, each with a function that makes a describing module of an
            instance; see `slipstick.leaf`.
        caches: arguments that are KV caches: they live on between steps.
        fixed: sizes that are numbers and not open, as `{"seq": 2048}`.
        described: whether the sizes of open dims in `inputs` stand for nothing: their names were said, not their sizes.

    >>> from torch import nn
    >>> ModelRun(nn.Linear(2, 3)).inputs is None
    True
    """

    module: nn.Module
    inputs: Inputs | None = None
    dynamic: Dynamic | None = None
    loss: Loss | None = None
    leaves: Leaves = field(default_factory=dict)
    caches: Sequence[str] = ()
    fixed: Mapping[str, int] = field(default_factory=dict)
    described: bool = False

    def __post_init__(self) -> None:
        """UsageError for what is none of these."""
        if not isinstance(self.module, nn.Module):
            raise UsageError(f"ModelRun of a {type(self.module).__name__}: its module is an nn.Module")
        if not isinstance(self.inputs, Tensor | Sequence | Mapping | None) or isinstance(self.inputs, str):
            raise UsageError(
                f"inputs of type {type(self.inputs).__name__}: a tensor, a sequence of arguments in order, or a "
                "mapping of arguments by name"
            )
        for name, size in self.fixed.items():
            if not isinstance(size, int) or size < 1:
                raise UsageError(f"fixed {name}={size!r}: a size is a whole number, 1 or more")
        for kind in self.leaves:
            if not isinstance(kind, type):
                raise UsageError(f"leaves[{kind!r}]: a leaf is said of a class, as leaves={{Experts: ..}}")

    def of(self, module: nn.Module) -> ModelRun:
        """Return the same run of another module."""
        return replace(self, module=module)


def described(spec: str, made: object) -> ModelRun:
    """Return what a factory made as a description: it may be a module, a module with inputs, or a description."""
    if isinstance(made, ModelRun):
        return made
    if isinstance(made, nn.Module):
        return ModelRun(made)
    if isinstance(made, tuple | list) and len(made) == 2 and isinstance(made[0], nn.Module):
        inputs = made[1]
        if isinstance(inputs, Tensor | tuple | list | Mapping):
            return ModelRun(made[0], inputs)
        raise UsageError(f"'{spec}' returned inputs of type {type(inputs).__name__}: a tensor, a tuple or a dict")
    what = f"{len(made)} things" if isinstance(made, tuple | list) else type(made).__name__
    raise UsageError(
        f"'{spec}' returned {what}; a factory returns an nn.Module, a tuple (module, inputs), or a slipstick.ModelRun"
    )
