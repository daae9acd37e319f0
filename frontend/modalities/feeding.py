"""What a model of transformers that is no language model reads, by its own signature and config."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, product
from operator import itemgetter
from typing import cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ...ir.errors import NotBuiltError, TraceError, UsageError
from ...ir.graph import Workload
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, symbol
from ..huggingface.configs.architectures import ModelConfig
from ..huggingface.lengths import SOURCE
from ..record.adapter import FakeWorld, faked
from ..record.failures import explained
from ..record.preserve import Contexts, FunctionMode, one_context
from ..record.record import kept_mode
from ..semantic.lift import lifted
from ..workloads import HINTS
from .kinds import ASIDE, COLUMNS, IMAGES, KINDS, Dims, InputKind, columns
from .pictures import Grid, Packing
from .sizes import ConfigSizes, Known

# What a model reads wherever it can; all others only where forward asks for them.
_READ = ("input_ids", "pixel_values", "input_features", "input_values", "past_values", "audio_mel")
DECODED = "decoder_input_ids"
# Steps of an episode, and the future that a decoder of time series knows, which go together.
_TOGETHER = {"states": ("actions", "returns_to_go", "timesteps"), "future_time_features": ("future_values",)}
# What packed pictures come in, and their grids, of which one is read.
_PACKED, _GRIDS = ("pixel_values", "hidden_states"), ("image_grid_thw", "grid_thw")
# The open dim of patches of packed pictures, which follows from the batch.
PATCHES = "patches"
# What says that all tokens are tokens: some code reads it beside sounds and pictures, so it is tried last.
_TEXT_MASK = "attention_mask"
OF_EACH = "the code asks for the values of each picture or token"
NO_TENSOR = "which is no tensor"
# Layouts that are tried together before a model is given up.
_MOST_TRIALS = 96
# Sizes that are numbers where the code asks for the sizes of each picture, and where it asks for each token.
_OPEN: tuple[str, ...] = ()
_OF_PICTURES = ("batch", IMAGES, PATCHES, COLUMNS)
OF_TOKENS = (*_OF_PICTURES, "seq", SOURCE)


@dataclass(frozen=True, slots=True)
class Feed:
    """One input: its name, its dims, its type, and the row of whole numbers that it has everywhere."""

    name: str
    dims: Dims
    dtype: torch.dtype
    row: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return f"{self.name} [{', '.join(map(str, self.dims))}]"

    def known(self, sizes: Sequence[int]) -> Tensor:
        """Return the input with its values; real numbers are ones."""
        if self.dtype.is_floating_point:
            return torch.ones(*sizes, dtype=self.dtype)
        values = torch.tensor(self.row, dtype=self.dtype)
        whole = values if len(self.row) in (1, sizes[-1]) else values.view(1, *sizes[1:])
        return whole.expand(*sizes).clone()


@dataclass(frozen=True, slots=True)
class Feeds:
    """All inputs of a model, with the example length of each open dim.

    `images` are pictures a sequence; of packed ones `packing` says how, and `grid` is the argument with their grids.
    The dims in `fixed` are the numbers of `lengths`, and inputs without an open dim have values.
    """

    given: tuple[Feed, ...]
    lengths: Mapping[str, int]
    images: int = 1
    packing: Packing | None = None
    grid: str = ""
    fixed: tuple[str, ...] = _OPEN

    @property
    def is_plain(self) -> bool:
        """Whether tensors with dims of given names are all that the model is called on."""
        named = all(d in HINTS for f in self.given for d in f.dims if isinstance(d, str))
        return not self.grid and not self.fixed and named

    @property
    def numbers(self) -> Mapping[str, int]:
        """The sizes of a plan that are numbers here."""
        named = {d for f in self.given for d in f.dims if isinstance(d, str)} | {"batch"}
        return {n: self.lengths[n] for n in self.fixed if n in HINTS and n in named}

    def examples(self, device: str = "meta") -> dict[str, Tensor]:
        """Return tensors of the example sizes, with their values where sizes are numbers."""
        return {f.name: self._example(f, device) for f in self.given}

    def sketched(self, world: FakeWorld) -> dict[str, Tensor]:
        """Return fake tensors of the example sizes, and real ones of what has values."""
        with world.mode:
            fakes = {f.name: self._example(f, "cpu") for f in self.given if not self._is_known(f)}
        return {f.name: fakes[f.name] if f.name in fakes else self._example(f, "cpu") for f in self.given}

    def _example(self, feed: Feed, device: str) -> Tensor:
        sizes = [self.lengths[d] if isinstance(d, str) else d for d in feed.dims]
        return feed.known(sizes) if self._is_known(feed) else torch.zeros(sizes, dtype=feed.dtype, device=device)

    def _is_known(self, feed: Feed) -> bool:
        return bool(self.fixed) and all(d in self.fixed for d in feed.dims if isinstance(d, str))

    @property
    def dynamic(self) -> Mapping[str, Sequence[str | None]]:
        """The name of each open dim, by input."""
        return {f.name: tuple(d if isinstance(d, str) else None for d in f.dims) for f in self.given}

    def made(self, world: FakeWorld) -> dict[str, Tensor]:
        """Return fake tensors with symbolic batch and length, and real ones of what has values."""
        many = self.images * (1 if self.packing is None else self.packing.patches)
        named: dict[str, Dim] = {IMAGES: symbol("batch") * self.images, PATCHES: symbol("batch") * many}
        named[COLUMNS] = symbol("batch") * (self.lengths[COLUMNS] // self.lengths["batch"])
        named |= {n: self.lengths[n] for n in self.fixed if n in self.lengths}

        def made(feed: Feed) -> Tensor:
            if self._is_known(feed):
                return self._example(feed, "cpu")
            dims = [named.get(d, symbol(d)) if isinstance(d, str) else d for d in feed.dims]
            return world.sized(dims, feed.dtype, {n: self.lengths[n] for n in HINTS})

        return {f.name: made(f) for f in self.given}

    def beside(self, batch: int | torch.SymInt) -> Mapping[str, object]:
        """Return what the model is called on beside tensors of given dims."""
        if self.packing is None:
            return {}
        if self.fixed:
            rows = torch.tensor([[1, self.packing.high, self.packing.wide]])
            return {self.grid: rows.expand(self.lengths[IMAGES], 3).clone()}
        return {self.grid: Grid(batch * self.images, self.packing)}

    @contextmanager
    def working_out(self) -> Iterator[None]:
        """Let what follows from numbers alone be worked out, where inputs have values."""
        if not self.fixed:
            yield
            return
        with Known():
            yield

    def __str__(self) -> str:
        pictures = (
            f", of {self.images} pictures a sequence" if IMAGES in {d for f in self.given for d in f.dims} else ""
        )
        packed = f" of pictures of {self.packing.patches} patches, {self.images} a sequence" if self.packing else ""
        return f"it reads {', '.join(map(str, self.given))}{pictures}{packed}"


def all_feeds(model: nn.Module, workload: Workload, images: int = 0, batch: int = 1) -> Iterator[Feeds]:
    """Yield what a model runs on: with open sizes; with a number of sequences and values; with numbers for all sizes.

    What the code asks of each picture, or each token, is known in the latter two. Where the model runs on none of
    them, the error is that of the layout with which it ran furthest: NotBuiltError where forward asks for what no
    config describes, and of decode; TraceError where no layout fits.
    """
    if workload is Workload.DECODE:
        raise NotBuiltError(
            f"{type(model).__name__} makes no tokens one after another and has no decode step; ask for --phase train "
            "or prefill"
        )
    failures: list[tuple[int, TraceError]] = []
    found = False
    for fixed in (_OPEN, _OF_PICTURES, OF_TOKENS):
        choices = list(islice(_choices(model, images, fixed, batch), _MOST_TRIALS))
        for feeds in choices:
            calls = _Calls()
            try:
                if len(choices) > 1 or fixed:
                    _tried(model, feeds, calls)
            except TraceError as error:
                failures.append((calls.num, error))
                continue
            found = True
            yield feeds
            break
    if failures and not found:
        raise max(failures, key=itemgetter(0))[1]


class _Calls(FunctionMode):
    """Counts the calls of torch's functions: how far a model ran."""

    def __init__(self) -> None:
        super().__init__()
        self.num = 0

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        self.num += 1
        return func(*args, **kwargs)


def check_sees(model: nn.Module, images: int) -> None:
    """UsageError where pictures are asked for, and the model takes none."""
    if images and not any(name.startswith("pixel_values") or name in _GRIDS for name in _arguments(model)):
        raise UsageError(
            f"--images {images}: {type(model).__name__} sees no pictures, it reads {', '.join(_names(model))}; leave "
            "--images out"
        )


def _choices(model: nn.Module, images: int, fixed: tuple[str, ...], batch: int) -> Iterator[Feeds]:
    """Every combination of layouts of the inputs that a model reads, the usual ones first, those without asides too.

    They are tried with the usual length of each, then with one that frames and strides divide. Where many inputs have
    many layouts, those that differ from the usual in one input come first.
    """
    sizes, weights = ConfigSizes.of(model.config), next(model.parameters()).dtype  # type: ignore[arg-type]
    names, grid = _names(model), next((n for n in _GRIDS if n in _arguments(model)), "")
    packing = Packing.of(cast(ModelConfig, model.config)) if grid and set(names) & set(_PACKED) else None
    main = _main_input(model)
    sequences = batch if fixed else HINTS["batch"]
    many = sequences * (images or 1)
    made = {IMAGES: many, PATCHES: many * packing.patches if packing else 0, COLUMNS: many * columns(sizes)}
    options = [[(n, d) for d in _layouts(n, sizes, packing)] for n in names]
    ways = sorted(product(*options), key=lambda way: sum(map(operator.ne, way, (o[0] for o in options))))
    turns = (False, True) if any(KINDS[n].whole for n in names if n in KINDS) else (False,)
    for is_whole, layouts, asides in product(turns, ways, _asides(model, names)):
        dims = {name: _placed(name, main, names, given, images) for name, given in layouts}
        given = [Feed(n, d, _kind(n).dtype or weights) for n, d in dims.items()]
        for name in asides:
            aside = ASIDE[name]
            of = dims.get(aside.of, ())
            given.append(Feed(name, aside.dims(of, sizes), aside.dtype or weights, tuple(aside.row(of, sizes))))
        lengths = {**HINTS, **_lengths(dims, sizes, is_whole), "batch": sequences, **made}
        yield Feeds(tuple(given), lengths, images or 1, packing, grid if packing else "", fixed)


def _lengths(dims: Mapping[str, Dims], sizes: ConfigSizes, is_whole: bool) -> Mapping[str, int]:
    """Example lengths of what is read and of what an encoder reads."""
    known = {n: (is_whole and KINDS[n].whole) or KINDS[n].length for n in dims if n in KINDS}
    read = next((known[n] for n, d in dims.items() if "seq" in d), HINTS["seq"])
    most = sizes.number("max_position_embeddings", "max_position_embedding") or read
    encoded = next((max(known[n], HINTS[SOURCE]) for n, d in dims.items() if SOURCE in d), HINTS[SOURCE])
    return {"seq": min(read, most) if read == HINTS["seq"] else read, SOURCE: encoded}


def _asides(model: nn.Module, names: Sequence[str]) -> Sequence[Sequence[str]]:
    """What may say something of the inputs: what forward must have, and then all that it takes."""
    rest = _arguments(model)
    asked = [n for n, p in rest.items() if n in ASIDE and p.default is p.empty]
    takes = [n for n in rest if n in asked or (n in ASIDE and n != _TEXT_MASK and ASIDE[n].of in (*names, *asked))]
    masked = [_TEXT_MASK] if _TEXT_MASK in rest and "input_ids" in names else []
    return [asked] if takes == asked else [asked, takes, [*takes, *masked]]


def _layouts(name: str, sizes: ConfigSizes, packing: Packing | None) -> Sequence[Dims]:
    if packing is not None and name in _PACKED:
        return [(PATCHES, packing.width), *((*lead, *packing.square) for lead in ((PATCHES,), (1, PATCHES)))]
    return _kind(name).layouts(sizes)


def _kind(name: str) -> InputKind:
    return KINDS[name]


def _placed(name: str, main: str, names: Sequence[str], dims: Dims, images: int) -> Dims:
    """The layout with `seq` for what is decoded, or else for the main input; others have a length of their own."""
    if images and name == "pixel_values" and not {PATCHES, COLUMNS} & {*dims}:
        return ("batch", images, *dims[2:]) if dims[:2] == ("batch", 1) else (IMAGES, *dims[1:])
    if DECODED in names and name != DECODED:
        return tuple(SOURCE if d == "seq" else d for d in dims)
    if main in names and name not in (main, DECODED) and _kind(name).dtype is None and not _kind(name).beside:
        return tuple(_kind(name).length if d == "seq" else d for d in dims)
    return dims


def _names(model: nn.Module) -> list[str]:
    rest = _arguments(model)
    grids = [n for n in _GRIDS if n in rest]
    asked = [n for n, p in rest.items() if p.default is p.empty and n not in grids]
    if unknown := [n for n in asked if n not in (*KINDS, *ASIDE) and not (grids and n in _PACKED)]:
        raise NotBuiltError(f"{type(model).__name__} reads '{unknown[0]}', {_lacking(rest[unknown[0]])}")
    decoded = [DECODED] if DECODED in rest and getattr(model.config, "is_encoder_decoder", False) else []
    read = [n for n in asked if n not in ASIDE]
    beside = [n for first, others in _TOGETHER.items() if first in rest for n in (first, *others) if n in rest]
    usual = [n for n in (_main_input(model), *_READ) if n in rest and n in KINDS]
    found = dict.fromkeys([*read, *usual, *beside, *decoded])
    if not found and not asked:
        raise NotBuiltError(
            f"{type(model).__name__} reads {', '.join(list(rest)[:4]) or 'no tensor'}: of none of these its config "
            "says the size; give example inputs: slipstick.trace(module, inputs={..})"
        )
    return list(found)


def _lacking(argument: inspect.Parameter) -> str:
    """What is not known of an argument, its size, or how it is made where it is no tensor, and how to say it."""
    kind, name = argument.annotation, argument.name
    told = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    if kind is not argument.empty and "Tensor" not in str(kind):
        return f"{NO_TENSOR} ({told}); give example inputs: slipstick.trace(module, inputs={{'{name}': ..}})"
    dtype = "int64" if "LongTensor" in str(kind) or name.endswith(("_ids", "_lengths")) else "bf16"
    return (
        "whose size its config does not say; say of a factory that makes this model what it reads: "
        f"--input '{name}:{dtype}[batch,..]', in Python slipstick.trace(module, inputs={{'{name}': tensor, ..}})"
    )


def _arguments(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    known = inspect.signature(type(model).forward).parameters
    return {n: p for n, p in list(known.items())[1:] if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def _main_input(model: nn.Module) -> str:
    return str(getattr(model, "main_input_name", "input_ids"))


def _tried(model: nn.Module, feeds: Feeds, calls: _Calls) -> None:
    """Run a model once on closed sizes; whatever it raises says that a layout does not fit."""
    world = FakeWorld(FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()))
    with _running(model, world), torch.no_grad(), lifted(model), explained(model):
        given = {**feeds.sketched(world), **feeds.beside(feeds.lengths["batch"])}
        with world.mode, feeds.working_out(), calls:
            model(**given)


@one_context
def _running(model: nn.Module, world: FakeWorld) -> Contexts:
    """What surrounds a run of a model of transformers on fake tensors."""
    from ..huggingface.recording import patched

    yield faked(model, world)
    yield patched(model)
    yield kept_mode(model, train=False)
