"""What a model of transformers that is no language model reads, by its own signature and config."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice, product
from typing import cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ...ir.errors import NotBuiltError, TraceError, UsageError
from ...ir.expr import Dim, symbol
from ...ir.graph import Workload
from ..adapter import FakeWorld, faked, swapped
from ..architectures import ModelConfig
from ..failures import explained
from ..lift import lifted
from ..record import kept_mode
from ..source_length import SOURCE
from ..workloads import HINTS
from .kinds import KINDS, Dims, Kind
from .pictures import Grid, Packing
from .sizes import Sizes

# What a model reads wherever it can; all others only where forward asks for them.
_READ = ("input_ids", "pixel_values", "input_features", "input_values", "past_values", "audio_mel")
_DECODED = "decoder_input_ids"
# What packed pictures come in, and their grids, of which one is read.
_PACKED, _GRIDS = ("pixel_values", "hidden_states"), ("image_grid_thw", "grid_thw")
# Open dims that follow from the batch: pictures, and patches of packed pictures.
IMAGES, PATCHES = "images", "patches"
# Layouts that are tried together before a model is given up.
_MOST_TRIALS = 24


@dataclass(frozen=True, slots=True)
class Feed:
    """One input: its name, its dims and its type."""

    name: str
    dims: Dims
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.name} [{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Feeds:
    """All inputs of a model, with the example length of each open dim.

    `images` are pictures a sequence; of packed ones `packing` says how, and `grid` is the argument with their grids.
    """

    given: tuple[Feed, ...]
    lengths: Mapping[str, int]
    images: int = 1
    packing: Packing | None = None
    grid: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether tensors with dims of given names are all that the model is called on."""
        return not self.grid and all(d in HINTS for f in self.given for d in f.dims if isinstance(d, str))

    def examples(self, device: str = "meta") -> dict[str, Tensor]:
        """Return tensors of the example sizes."""
        sizes = {f.name: [self.lengths[d] if isinstance(d, str) else d for d in f.dims] for f in self.given}
        return {f.name: torch.zeros(sizes[f.name], dtype=f.dtype, device=device) for f in self.given}

    @property
    def dynamic(self) -> Mapping[str, Sequence[str | None]]:
        """The name of each open dim, by input."""
        return {f.name: tuple(d if isinstance(d, str) else None for d in f.dims) for f in self.given}

    def made(self, world: FakeWorld) -> dict[str, Tensor]:
        """Return fake tensors with symbolic batch and length."""
        many = self.images * (1 if self.packing is None else self.packing.patches)
        named: Mapping[str, Dim] = {IMAGES: symbol("batch") * self.images, PATCHES: symbol("batch") * many}
        return {
            f.name: world.sized([named.get(d, symbol(d)) if isinstance(d, str) else d for d in f.dims], f.dtype, HINTS)
            for f in self.given
        }

    def beside(self, batch: int | torch.SymInt) -> Mapping[str, object]:
        """Return what the model is called on beside tensors."""
        return {} if self.packing is None else {self.grid: Grid(batch * self.images, self.packing)}

    def __str__(self) -> str:
        pictures = (
            f", of {self.images} pictures a sequence" if IMAGES in {d for f in self.given for d in f.dims} else ""
        )
        packed = f" of pictures of {self.packing.patches} patches, {self.images} a sequence" if self.packing else ""
        return f"it reads {', '.join(map(str, self.given))}{pictures}{packed}"


def feeds_of(model: nn.Module, workload: Workload, images: int = 0) -> Feeds:
    """Return what a model reads: of each kind the first layout with which the model runs; so many pictures a sequence.

    NotBuiltError where forward asks for what no config describes, and of decode; TraceError where no layout fits.
    """
    if workload is Workload.DECODE:
        raise NotBuiltError(
            f"{type(model).__name__} makes no tokens one after another and has no decode step; ask for --phase train "
            "or prefill"
        )
    choices = list(islice(_choices(model, images), _MOST_TRIALS))
    failure: TraceError | None = None
    for feeds in choices if len(choices) > 1 else ():
        try:
            _tried(model, feeds)
        except TraceError as error:
            failure = failure or error
            continue
        return feeds
    if failure is not None:
        raise failure
    return choices[0]


def check_sees(model: nn.Module, images: int) -> None:
    """UsageError where pictures are asked for, and the model takes none."""
    if images and not any(name.startswith("pixel_values") or name in _GRIDS for name in _arguments(model)):
        raise UsageError(
            f"--images {images}: {type(model).__name__} sees no pictures, it reads {', '.join(_names(model))}; leave "
            "--images out"
        )


def _choices(model: nn.Module, images: int) -> Iterator[Feeds]:
    """Every combination of layouts of the inputs that a model reads, the usual ones first."""
    sizes, weights = Sizes.of(model.config), next(model.parameters()).dtype  # type: ignore[arg-type]
    names, grid = _names(model), next((n for n in _GRIDS if n in _arguments(model)), "")
    packing = Packing.of(cast(ModelConfig, model.config)) if grid else None
    main = _main_input(model)
    for layouts in product(*([(n, d) for d in _layouts(n, sizes, packing)] for n in names)):
        dims = {name: _placed(name, main, names, given, images) for name, given in layouts}
        given = tuple(Feed(n, d, _kind(n).dtype or weights) for n, d in dims.items())
        open_ = [n for n, d in dims.items() if "seq" in d]
        most = sizes.number("max_position_embeddings", "max_position_embedding") or HINTS["seq"]
        length = KINDS[open_[0]].length if open_ else HINTS["seq"]
        length = min(length, most) if length == HINTS["seq"] else length
        many = HINTS["batch"] * (images or 1)
        patches = {PATCHES: many * packing.patches} if packing else {}
        yield Feeds(given, {**HINTS, "seq": length, IMAGES: many, **patches}, images or 1, packing, grid)


def _layouts(name: str, sizes: Sizes, packing: Packing | None) -> Sequence[Dims]:
    packed = packing is not None and name in _PACKED
    return [(PATCHES, packing.width)] if packed and packing is not None else _kind(name).layouts(sizes)


def _kind(name: str) -> Kind:
    return KINDS["pixel_values"] if name in _PACKED else KINDS[name]


def _placed(name: str, main: str, names: Sequence[str], dims: Dims, images: int) -> Dims:
    """The layout with `seq` for what is decoded, or else for the main input; others have a length of their own."""
    if images and name == "pixel_values" and PATCHES not in dims:
        return ("batch", images, *dims[2:]) if dims[1] == 1 else (IMAGES, *dims[1:])
    if _DECODED in names and name != _DECODED:
        return tuple(SOURCE if d == "seq" else d for d in dims)
    if main in names and name not in (main, _DECODED) and _kind(name).dtype is None:
        return tuple(_kind(name).length if d == "seq" else d for d in dims)
    return dims


def _names(model: nn.Module) -> list[str]:
    rest = _arguments(model)
    grids = [n for n in _GRIDS if n in rest]
    asked = [n for n, p in rest.items() if p.default is p.empty and n not in grids]
    if unknown := [n for n in asked if n not in KINDS and not (grids and n in _PACKED)]:
        raise NotBuiltError(
            f"{type(model).__name__} reads '{unknown[0]}', whose size its config does not say; give example inputs: "
            "slipstick.trace(module, inputs={..})"
        )
    decoded = [_DECODED] if _DECODED in rest and getattr(model.config, "is_encoder_decoder", False) else []
    found = dict.fromkeys([*asked, *(n for n in (_main_input(model), *_READ) if n in rest and n in KINDS), *decoded])
    if not found:
        raise NotBuiltError(
            f"{type(model).__name__} reads {', '.join(list(rest)[:4])}: of none of these its config says the size; "
            "give example inputs: slipstick.trace(module, inputs={..})"
        )
    return list(found)


def _arguments(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    known = inspect.signature(type(model).forward).parameters
    return {n: p for n, p in list(known.items())[1:] if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def _main_input(model: nn.Module) -> str:
    return str(getattr(model, "main_input_name", "input_ids"))


def _tried(model: nn.Module, feeds: Feeds) -> None:
    """Run a model once on closed sizes; whatever it raises says that a layout does not fit."""
    world = FakeWorld(FakeTensorMode(allow_non_fake_inputs=True))
    with _unlogged(), _running(model, world), world.mode, torch.no_grad(), lifted(model), explained(model):
        model(**feeds.examples("cpu"), **feeds.beside(HINTS["batch"]))


@contextmanager
def _unlogged() -> Iterator[None]:
    """Torch logs each shape that does not fit: here it is one of several that are tried."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    with swapped(logger, "disabled", True):
        yield


@contextmanager
def _running(model: nn.Module, world: FakeWorld) -> Iterator[None]:
    """What surrounds a run of a model of transformers on fake tensors."""
    from ..huggingface import patched

    with ExitStack() as scope:
        scope.enter_context(faked(model, world))
        scope.enter_context(patched(model))
        scope.enter_context(kept_mode(model, train=False))
        yield


__all__ = ["Feed", "Feeds", "check_sees", "feeds_of"]
