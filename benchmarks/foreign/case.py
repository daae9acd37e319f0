"""One module of a foreign package: how it is built, and what goes in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ..coverage.oracle import BATCH, SEQ

# A dim of an input: a number, or `batch` or `seq`.
Dims: TypeAlias = tuple[int | str, ...]

_SIZES = {"batch": BATCH, "seq": SEQ}


@dataclass(frozen=True, slots=True)
class Feed:
    """A tensor that goes in: its dims, and its type; whole numbers are token ids or positions."""

    dims: Dims
    dtype: torch.dtype = torch.float32

    def made(self) -> Tensor:
        """Return an example, at sizes that no model has for others of its dims."""
        return torch.zeros([_SIZES[d] if isinstance(d, str) else d for d in self.dims], dtype=self.dtype)

    @property
    def dynamic(self) -> tuple[str | None, ...]:
        """The word of each open dim."""
        return tuple(d if isinstance(d, str) else None for d in self.dims)


def ids(*dims: int | str) -> Feed:
    """Return whole numbers, `[batch, seq]` unless dims are given."""
    return Feed(dims or ("batch", "seq"), torch.int64)


def image(size: int = 224, channels: int = 3) -> Feed:
    """Return pictures `[batch, channels, size, size]`."""
    return Feed(("batch", channels, size, size))


@dataclass(frozen=True, slots=True)
class Case:
    """A module, by the name of its package and its own; what goes in is named as `forward` names it, or in order.

    Attributes:
        package: what is installed to have it.
        name: of the module or of one of its configurations.
        build: makes it, in fp32 on the CPU, with the package imported inside.
        feeds: example inputs in order.
        named: example inputs by name, behind those in order.
        options: other arguments of `forward`.
    """

    package: str
    name: str
    build: Callable[[], nn.Module]
    feeds: tuple[Feed, ...] = (ids(),)
    named: Mapping[str, Feed] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What the case is called in lists."""
        return f"{self.package}/{self.name}"

    def inputs(self, module: nn.Module) -> tuple[dict[str, object], dict[str, tuple[str | None, ...]]]:
        """Return the arguments of a call by name, and which dims of which are open."""
        names = [name for name in inspect.signature(module.forward).parameters if name not in self.named]
        feeds = {**dict(zip(names, self.feeds, strict=False)), **self.named}
        given: dict[str, object] = {name: feed.made() for name, feed in feeds.items()}
        return {**given, **self.options}, {name: feed.dynamic for name, feed in feeds.items()}


__all__ = ["Case", "Dims", "Feed", "ids", "image"]
