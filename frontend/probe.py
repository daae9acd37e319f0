"""A quick run of all layers that notes only which operators each one runs: layers that look alike may differ in that.

A model in a config names the kind of every layer. In arbitrary code, what a layer does may hang on its place in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from .adapter import DispatchMode, is_noise
from .failures import explained
from .layers import LayerStack


class _Trails(DispatchMode):
    """Operators and result shapes, by the layer that is running."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.running: int | None = None
        self.trails: list[list[str]] = [[] for _ in range(num_layers)]

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        if self.running is not None and not is_noise(func):
            shape = out.shape if isinstance(out, Tensor) else ()
            self.trails[self.running].append(f"{func}{tuple(str(s) for s in shape)}")


def run_alike(module: nn.Module, stack: LayerStack, run: Callable[[], object]) -> bool:
    """Return whether layers of one class run the same operators, in a forward pass of every layer."""
    layers = list(module.get_submodule(stack.path).children())
    trails = _Trails(len(layers))
    handles = [handle for i, layer in enumerate(layers) for handle in _watch(trails, layer, i)]
    try:
        with explained(module), trails, torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    seen = {(cls, tuple(trail)) for cls, trail in zip(stack.classes, trails.trails, strict=True)}
    return len(seen) == len(set(stack.classes))


def _watch(trails: _Trails, layer: nn.Module, position: int) -> Sequence[torch.utils.hooks.RemovableHandle]:
    def enter(part: nn.Module, args: object) -> None:
        trails.running = position

    def leave(part: nn.Module, args: object, out: object) -> None:
        trails.running = None

    return layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave)
