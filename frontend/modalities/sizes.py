"""Sizes of inputs as configs say them, and what follows from numbers alone, worked out while a model is recorded.

Code that packs pictures asks for values: how many patches each has, where windows begin. Where these were given as
numbers, all integers made of them and of nothing else are real; tensors with sizes only stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ...ir.records import dataclass
from ..huggingface.configs.architectures import ModelConfig
from ..record.adapter import DispatchMode, undisturbed

# Parts of a config that say what a picture or a sound is; the other parts are asked behind these.
_TOWERS = ("vision", "visual", "image", "audio", "speech", "backbone")
# Fields of the towers of some configs that are configs without being announced as such.
_UNANNOUNCED = ("backbone_config",)


@dataclass(frozen=True, slots=True)
class ConfigSizes:
    """Numbers of a config and of the configs inside it: those of towers first, the outermost last but for the rest."""

    parts: tuple[ModelConfig, ...]

    @classmethod
    def of(cls, config: ModelConfig) -> ConfigSizes:
        """Collect a config and its parts."""
        return cls(tuple(_ordered(config)))

    def number(self, *names: str) -> int | None:
        """Return the first whole number that some part has under one of these names; the order of names is theirs."""
        found = (_first(getattr(part, name, None)) for name in names for part in self.parts)
        return next((n for n in found if n is not None), None)

    def has(self, name: str) -> bool:
        """Whether some part says anything under a name."""
        return any(getattr(part, name, None) is not None for part in self.parts)

    def points(self, name: str) -> Sequence[tuple[int, int]]:
        """Return the pairs of numbers that some part lists under a name; none where no part does."""
        found = next((v for part in self.parts if isinstance(v := getattr(part, name, None), list | tuple)), ())
        return [pair for v in found if (pair := _pair(v)) is not None]

    def sides(self, *names: str) -> tuple[int, int] | None:
        """Return height and width of what is square, or is given as two numbers in a list or by name."""
        found = (_pair(getattr(part, name, None)) for name in names for part in self.parts)
        return next((pair for pair in found if pair is not None), None)


def _ordered(config: ModelConfig) -> Iterator[ModelConfig]:
    inner = list(_inside(config))
    towers = [part for name, part in inner if any(word in name for word in _TOWERS)]
    yield from (found for part in towers for found in _ordered(part))
    yield config
    yield from (found for _, part in inner if part not in towers for found in _ordered(part))


def _inside(config: ModelConfig) -> Iterator[tuple[str, ModelConfig]]:
    for name in dict.fromkeys((*getattr(config, "sub_configs", {}), *_UNANNOUNCED)):
        part = getattr(config, name, None)
        if part is not None and hasattr(part, "model_type"):
            yield name, part


def _first(value: object) -> int | None:
    """A number, or the first of a list of numbers."""
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        value = value[0]
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _pair(value: object) -> tuple[int, int] | None:
    if isinstance(value, Mapping):
        value = (value.get("height", value.get("shortest_edge")), value.get("width", value.get("shortest_edge")))
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value, value)
    if not isinstance(value, list | tuple):
        return None
    high, wide = (None, None, *value, *value)[-2:] if len(value) < 2 else value[-2:]
    return (high, wide) if isinstance(high, int) and isinstance(wide, int) and high > 0 and wide > 0 else None


_MAKERS = ("arange", "empty", "eye", "full", "ones", "scalar_tensor", "tril_indices", "triu_indices", "zeros")
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
# Above so many elements a result is not worth its time.
_MOST = 1 << 22


class Known(DispatchMode):
    """Runs for real what reads and makes known numbers alone; all else goes on to the modes below."""

    def __init__(self) -> None:
        super().__init__()
        self._overwritten: set[int] = set()

    def run(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run one call."""
        leaves = list(_leaves([*args, *kwargs.values()]))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        open_ = any(isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool) for leaf in leaves)
        if not open_ and (all(map(self._is_known, tensors)) if tensors else _makes_whole(func, args, kwargs)):
            with undisturbed():
                out = func(*args, **kwargs)
                if func._schema.name == "aten::empty" and isinstance(out, Tensor):
                    out.zero_()
                return out
        if func._schema.is_mutable and tensors and self._is_known(tensors[0]):
            self._overwritten.add(tensors[0].untyped_storage()._cdata)
        return func(*self._places(func, args), **kwargs)

    def _is_known(self, tensor: Tensor) -> bool:
        is_fake = isinstance(tensor, FakeTensor) or tensor.device.type == "meta"
        return not is_fake and tensor.untyped_storage()._cdata not in self._overwritten

    def _places(self, func: torch._ops.OpOverload, args: Sequence[object]) -> Sequence[object]:
        """The arguments with known masks among indices as the places of what they hold."""
        if func.overloadpacket not in (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_):
            return args
        places: list[object] = []
        for index in args[1]:  # type: ignore[attr-defined]
            if isinstance(index, Tensor) and index.dtype is torch.bool and self._is_known(index):
                with undisturbed():
                    places += index.nonzero().unbind(-1)
            else:
                places.append(index)
        return [args[0], places, *args[2:]]


def _leaves(values: Sequence[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _makes_whole(func: torch._ops.OpOverload, args: Sequence[object], given: Mapping[str, object]) -> bool:
    """Whether a call makes a tensor of whole numbers from numbers."""
    name = func._schema.name.partition("::")[2]
    if name not in _MAKERS or str(given.get("device") or "cpu") != "cpu":
        return False
    numbers = [v for v in _leaves(args) if isinstance(v, int | float)]
    size = 1
    for number in numbers if name != "arange" else ():
        size *= max(number, 1) if isinstance(number, int) else 1  # what it is filled with may be infinite
    dtype = given.get("dtype")
    counted = dtype is None and (name in ("arange", "full") and all(isinstance(n, int) for n in numbers))
    return size <= _MOST and (dtype in _WHOLE or counted or name.endswith("_indices"))
