"""A quick run of all layers that notes only which operators run in each one, and between one and the next.

A model in a config names the kind of every layer. In arbitrary code, what a layer does may hang on its place in a loop,
and so may what runs between layers: a block after every fourth, a skip connection, a layer that runs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from .adapter import DispatchMode, is_noise
from .failures import explained
from .layers import LayerStack


class _Trails(DispatchMode):
    """Operators and result shapes: those of each layer, and those that run behind each before the next begins."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []
        self.inside = False
        self.trails: list[list[str]] = []
        self.gaps: list[list[str]] = [[]]

    def enter(self, position: int) -> None:
        """Begin a layer."""
        self.order.append(position)
        self.trails.append([])
        self.gaps.append([])
        self.inside = True

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        if not is_noise(func):
            shape = out.shape if isinstance(out, Tensor) else ()
            told = self.trails if self.inside else self.gaps
            told[-1].append(f"{func}{tuple(str(s) for s in shape)}")


def run_alike(module: nn.Module, stack: LayerStack, run: Callable[[], object]) -> bool:
    """Return whether each layer runs once, in order, those of one class alike, and alike what runs between classes."""
    layers = list(module.get_submodule(stack.path).children())
    trails = _Trails()
    handles = [handle for i, layer in enumerate(layers) for handle in _watch(trails, layer, i)]
    try:
        with explained(module), trails, torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    if trails.order != list(range(len(layers))):
        return False
    seen = {(cls, tuple(trail)) for cls, trail in zip(stack.classes, trails.trails, strict=True)}
    links = list(pairwise(stack.classes))
    between = {(link, tuple(gap)) for link, gap in zip(links, trails.gaps[1:-1], strict=True)}
    return len(seen) == len(set(stack.classes)) and len(between) == len(set(links))


def _watch(trails: _Trails, layer: nn.Module, position: int) -> Sequence[torch.utils.hooks.RemovableHandle]:
    def enter(part: nn.Module, args: object) -> None:
        trails.enter(position)

    def leave(part: nn.Module, args: object, out: object) -> None:
        trails.inside = False

    return layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave)
