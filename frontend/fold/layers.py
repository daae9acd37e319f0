"""A module's repeated layers: which are alike by structure, which few to record, and how to run with only those."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from ..record.adapter import swapped

_SCALARS = (int, float, bool, str, type(None))
_POSITION = ("layer_idx", "layer_id", "layer_number", "idx", "index", "training")


@dataclass(frozen=True, slots=True)
class LayerStack:
    """The longest list of alike layers in a module: where it is, and the class of each layer, in order.

    `kept` are the positions that are recorded: the first and the last of each class, so that a class can be shown to
    be one by comparing two of its members; and neighbours of every two classes that meet, so that each link is seen.
    """

    path: str
    classes: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def num_layers(self) -> int:
        """Layers in the whole stack."""
        return len(self.classes)

    def covers(self, numbers: Iterable[object]) -> bool:
        """Whether these are all numbers of layers."""
        return all(isinstance(n, int) and 0 <= n < self.num_layers for n in numbers)

    def kept_all(self) -> LayerStack:
        """Return the stack with every layer recorded."""
        return LayerStack(self.path, self.classes, tuple(range(self.num_layers)))


def find_stack(module: nn.Module, idle: Collection[str] = ()) -> LayerStack | None:
    """Return the list of alike layers that holds the most parameters, None when the module has no such list.

    `idle` are the paths of lists whose layers do not run.
    """
    best: tuple[int, LayerStack] | None = None
    for path, part in module.named_modules():
        layers = _layers(part)
        if len(layers) < 2 or path in idle:
            continue
        size = sum(p.numel() for p in part.parameters())
        stack = _stack(path, layers)
        if len(set(stack.classes)) <= stack.num_layers // 2 and (best is None or size > best[0]):
            best = (size, stack)
    if best is None:
        return None
    return best[1].kept_all() if _is_shared_out(module) else best[1]


def _is_shared_out(module: nn.Module) -> bool:
    """Whether one table has a part for each layer (Gemma 3n and 4), so that fewer layers would not fit it."""
    return any(isinstance(getattr(part, "embed_tokens_per_layer", None), nn.Module) for part in module.modules())


def _layers(part: nn.Module) -> Sequence[nn.Module]:
    """The parts of a list, or of a dict whose keys count from zero; none of anything else."""
    if not isinstance(part, nn.ModuleList | nn.Sequential | nn.ModuleDict):
        return ()
    numbered = list(part._modules) == [str(i) for i in range(len(part))]
    return list(part.children()) if numbered else ()


def _stack(path: str, layers: Sequence[nn.Module]) -> LayerStack:
    known: dict[tuple[object, ...], int] = {}
    last_user = _last_users(layers)
    kinds = ((signature(layer), k in last_user) for k, layer in enumerate(layers))
    classes = tuple(known.setdefault(kind, len(known)) for kind in kinds)
    first = {c: classes.index(c) for c in known.values()}
    last = {c: len(classes) - 1 - classes[::-1].index(c) for c in known.values()}
    return LayerStack(path, classes, _with_links(classes, {*first.values(), *last.values()}))


def _with_links(classes: Sequence[int], ends: Iterable[int]) -> tuple[int, ...]:
    """Add positions until every pair of classes that follow each other also does so among those kept.

    >>> _with_links((0, 1, 0, 2, 0, 1), (0, 1, 3, 4, 5))
    (0, 1, 2, 3, 4, 5)
    >>> _with_links((0, 0, 0, 0), (0, 3))
    (0, 3)
    """
    kept = sorted(set(ends))
    for place, pair in enumerate(pairwise(classes)):
        if pair not in pairwise(classes[k] for k in kept):
            kept = sorted({*kept, place, place + 1})
    return tuple(kept) if _meets_all(classes, kept) else _with_links(classes, kept)


def _meets_all(classes: Sequence[int], kept: Sequence[int]) -> bool:
    return set(pairwise(classes)) <= set(pairwise(classes[k] for k in kept))


def _last_users(layers: Sequence[nn.Module]) -> set[int]:
    """The last of the layers that share a parameter: its gradient is the first of a sum, so it runs differently."""
    users: dict[int, list[int]] = {}
    for k, layer in enumerate(layers):
        for p in {id(p) for p in layer.parameters()}:
            users.setdefault(p, []).append(k)
    return {places[-1] for places in users.values() if len(places) > 1}


def signature(layer: nn.Module) -> tuple[object, ...]:
    """Return what makes two layers alike: classes, parameter shapes and plain settings of every submodule.

    The position of a layer (`layer_idx` and the like) does not count.
    """
    return tuple(
        (name, type(part).__qualname__, _shapes(part), _settings(part)) for name, part in layer.named_modules()
    )


def _shapes(part: nn.Module) -> tuple[tuple[object, ...], ...]:
    own = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
    return tuple((name, tuple(t.shape), str(t.dtype)) for name, t in own)


def _settings(part: nn.Module) -> tuple[tuple[str, object], ...]:
    found = sorted((k, v) for k, v in vars(part).items() if isinstance(v, _SCALARS))
    return tuple((k, v) for k, v in found if k not in _POSITION and not k.startswith("_"))


def needs_every_layer(module: nn.Module) -> bool:
    """Whether a model of transformers looks at its depth in other ways than by running its layers.

    It works out the inputs of all layers at once (Gemma 3n), or skips layers by their numbers (Llama 3.2 Vision).
    """
    config = getattr(module, "config", None)
    return bool(getattr(config, "hidden_size_per_layer_input", 0) or getattr(config, "cross_attention_layers", None))


@contextmanager
def shortened(module: nn.Module, stack: LayerStack) -> Iterator[None]:
    """Run the module with only the kept layers, numbered anew; everything is put back at the end."""
    parent_path, _, name = stack.path.rpartition(".")
    parent = module.get_submodule(parent_path)
    full = parent.get_submodule(name)
    whole = _layers(full)
    layers = [whole[i] for i in stack.kept]
    short = _like(full, layers)
    with ExitStack() as undo:
        parent._modules[name] = short
        undo.callback(parent._modules.__setitem__, name, full)
        for position, layer in enumerate(layers):
            for part in layer.modules():
                if isinstance(vars(part).get("layer_idx"), int):
                    undo.enter_context(swapped(part, "layer_idx", position))
                _renumber(part, stack, undo)
        _shorten_config(module, stack, undo)
        yield


def _like(full: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
    if isinstance(full, nn.ModuleDict):
        return nn.ModuleDict({str(i): layer for i, layer in enumerate(layers)})
    return nn.ModuleList(layers) if isinstance(full, nn.ModuleList) else nn.Sequential(*layers)


def _renumber(part: nn.Module, stack: LayerStack, undo: ExitStack) -> None:
    """Let what a module looks up by layer be found under the layers' new numbers."""
    for key, value in list(vars(part).items()):
        by_layer = isinstance(value, dict) and key.startswith("layer") and value and stack.covers(value)
        if by_layer:
            undo.enter_context(swapped(part, key, {k: value[i] for k, i in enumerate(stack.kept) if i in value}))


def _shorten_config(module: nn.Module, stack: LayerStack, undo: ExitStack) -> None:
    """Let the config speak of the kept layers: their number, and every list with one entry a layer."""
    config = getattr(module, "config", None)
    if config is None:
        return
    for key, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == stack.num_layers:
            undo.enter_context(swapped(config, key, [value[i] for i in stack.kept]))
        elif key in ("num_hidden_layers", "n_layer", "num_layers") and value == stack.num_layers:
            undo.enter_context(swapped(config, key, len(stack.kept)))
