"""Pictures that are packed patch by patch: what transformers works out from their sizes, when all are of one size.

A grid of patches is data: how many sequences of what length the packed patches are, their positions and windows. For
pictures that are all alike, these have sizes that are known without reading them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ...ir.records import dataclass
from ..huggingface.configs.architectures import ModelConfig
from ..record.adapter import swapped
from ..record.preserve import Contexts, FunctionMode, one_context
from .sizes import ConfigSizes

# Pixels of a side, where a config names no size: what packed encoders are fed by default is near it.
PACKED_SIDE = 448


@dataclass(frozen=True, slots=True)
class Packing:
    """How a picture is packed: patches down and across, numbers of a patch, sides of what is merged and of windows.

    `square` is a patch as a picture of its own.
    """

    high: int
    wide: int
    width: int
    merge: int
    window: int
    square: tuple[int, int, int] = (3, 14, 14)

    @classmethod
    def of(cls, config: ModelConfig) -> Packing:
        """Read a config; sides are rounded down to whole windows of merged patches."""
        sizes = ConfigSizes.of(config)
        patch, merge = sizes.number("patch_size") or 14, sizes.number("spatial_merge_size", "merge_size") or 1
        window = max((sizes.number("window_size") or 0) // patch // merge, 1)
        side = (sizes.sides("image_size") or (PACKED_SIDE, PACKED_SIDE))[0]
        count = max(side // patch // (merge * window), 1) * merge * window
        channels = sizes.number("in_channels", "num_channels", "in_chans") or 3
        width = channels * (sizes.number("temporal_patch_size", "patch_temporal") or 1) * patch**2
        return cls(count, count, width, merge, window, (channels, patch, patch))

    @property
    def patches(self) -> int:
        """Patches of a picture."""
        return self.high * self.wide


@dataclass(frozen=True, slots=True)
class _Counts:
    """A number a picture, the same for all: only their sum is ever asked for."""

    total: int | torch.SymInt

    def __floordiv__(self, divisor: int) -> _Counts:
        return _Counts(self.total // divisor)

    def tolist(self) -> list[int | torch.SymInt]:
        return [self.total]

    def sum(self) -> int | torch.SymInt:
        return self.total


@dataclass(frozen=True, slots=True)
class Grid:
    """The grids [pictures, 3] of pictures that are all alike, in place of a tensor that says so."""

    num: int | torch.SymInt
    packing: Packing
    dtype: torch.dtype = torch.int64
    device: str = "cpu"

    @property
    def shape(self) -> tuple[int | torch.SymInt, int]:
        """Pictures, and the three numbers of each."""
        return self.num, 3

    @property
    def total(self) -> int | torch.SymInt:
        """Patches of all pictures."""
        return self.num * self.packing.patches

    def prod(self, dim: int = -1) -> _Counts:
        """Return the patches of each picture."""
        return _Counts(self.total)

    def to(self, *args: object, **options: object) -> Grid:
        """Return the same, wherever it is asked to be."""
        return self

    type = long = to


def _bounds(grid: Grid, *args: object, **options: object) -> Tensor:
    return torch.empty(grid.num + 1, dtype=torch.int32, device="cpu")


def _attended(grid: Grid, *args: object, **options: object) -> tuple[Tensor, int]:
    return _bounds(grid), grid.packing.patches


def _positions(grid: Grid, *args: object, include_temporal: bool = False, **options: object) -> Tensor:
    return torch.empty(grid.total, 3 if include_temporal else 2, dtype=torch.int64, device="cpu")


def _windows(grid: Grid, *args: object, **options: object) -> tuple[Tensor, _Bounds]:
    """The order of merged patches by windows, and the bounds of the windows, which all have as many patches."""
    merged, each = grid.packing.merge**2, grid.packing.window**2
    order = torch.empty(grid.total // merged, dtype=torch.int64, device="cpu")
    return order, _Bounds(merged * each)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of sequences of one length, as long as nobody reads them."""

    each: int


def _longest(bounds: object, *args: object, kwargs: dict[str, object] | None = None, **options: object) -> object:
    given = None if kwargs is None else kwargs.get("max_seqlen")
    if isinstance(bounds, Tensor) and not isinstance(bounds, FakeTensor):
        return int(bounds.diff().max())
    return bounds.each if isinstance(bounds, _Bounds) else given


def _weights(grid: Grid, *args: object, mode: str = "bilinear", **options: object) -> tuple[Tensor, Tensor]:
    taps = 16 if mode == "bicubic" else 4
    places = torch.empty(grid.total, taps, dtype=torch.int64, device="cpu")
    return places, torch.empty(grid.total, taps, dtype=torch.float32, device="cpu")


def _unchecked(*args: object, **options: object) -> None:
    """That there are as many features as places for them is so by construction."""


def _packed(config: object) -> bool:
    """Attention over packed sequences is one call with their bounds, as of fused kernels."""
    return True


class _OnePiece(FunctionMode):
    """Hands out the features of all pictures in one piece: they are put one behind another again."""

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        whole = args[0] if args else None
        asked = func in (Tensor.unbind, Tensor.__len__) and isinstance(whole, Tensor)
        if asked and isinstance(whole, Tensor) and isinstance(whole.shape[0], torch.SymInt):
            return 1 if func is Tensor.__len__ else (whole.flatten(0, 1),)
        return func(*args, **kwargs)


def _in_one_piece(original: Callable[..., object]) -> Callable[..., object]:
    def features(*args: object, **options: object) -> object:
        with _OnePiece():
            return original(*args, **options)

    return features


def _placed_in_three(original: Callable[..., object]) -> Callable[..., object]:
    """Positions of tokens among pictures, in time, down and across, which depend on where the pictures are."""

    def positions(*args: object, inputs_embeds: Tensor, **options: object) -> Tensor:
        return torch.empty((3, *inputs_embeds.shape[:2]), dtype=torch.int64, device="cpu")

    return positions


# The method that places tokens among pictures, and those that encode pictures, of which each has so many features.
_PLACING = "compute_3d_position_ids"
_METHODS: dict[str, Callable[[Callable[..., object]], Callable[..., object]]] = {
    "get_image_features": _in_one_piece,
}
# By the names that modelling files import them by; with a grid that is a tensor, theirs run.
_OF_GRIDS: dict[str, Callable[..., object]] = {
    "get_vision_cu_seqlens": _bounds,
    "get_vision_attention_seqlens": _attended,
    "get_vision_position_ids": _positions,
    "get_vision_window_index": _windows,
    "get_vision_interpolation_indices_and_weights": _weights,
}


@one_context
def unchecked(model: nn.Module) -> Contexts:
    """Let nobody look, for a while, at how many places for features there are among the tokens, and where."""
    for part in model.modules():
        if callable(original := getattr(part, _PLACING, None)):
            yield swapped(part, _PLACING, _placed_in_three(original))
    for file in {sys.modules[type(part).__module__] for part in model.modules()}:
        if callable(getattr(file, "torch_compilable_check", None)):
            yield swapped(file, "torch_compilable_check", _unchecked)


@one_context
def placed(model: nn.Module) -> Contexts:
    """Swap, for the time of a recording, what looks at data to pack pictures and to place their features."""
    files = {sys.modules[type(part).__module__] for part in model.modules()}
    yield unchecked(model)
    for file in files:
        swaps: dict[str, Callable[..., object]] = {}
        if any(callable(getattr(file, name, None)) for name in _OF_GRIDS):
            swaps |= {"is_flash_attention_requested": _packed, "get_max_seqlen": _longest}
            swaps |= {name: _or_theirs(ours, getattr(file, name, None)) for name, ours in _OF_GRIDS.items()}
        for name, ours in swaps.items():
            if callable(getattr(file, name, None)):
                yield swapped(file, name, ours)
    for part in model.modules():
        for name, wrap in _METHODS.items():
            if callable(original := getattr(part, name, None)):
                yield swapped(part, name, wrap(original))


def _or_theirs(ours: Callable[..., object], theirs: Callable[..., object] | None) -> Callable[..., object]:
    def choose(grid: object, *args: object, **options: object) -> object:
        run = ours if isinstance(grid, Grid) or theirs is None else theirs
        return run(grid, *args, **options)

    return choose
