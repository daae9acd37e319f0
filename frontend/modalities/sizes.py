"""Sizes of inputs as configs say them: by the names that the configs of transformers have for one thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..huggingface.configs.architectures import ModelConfig

# Parts of a config that say what a picture or a sound is; the other parts are asked behind these.
_TOWERS = ("vision", "visual", "image", "audio", "speech", "backbone")
# Fields of the towers of some configs that are configs without being announced as such.
_UNANNOUNCED = ("backbone_config",)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of a config and of the configs inside it: those of towers first, the outermost last but for the rest."""

    parts: tuple[ModelConfig, ...]

    @classmethod
    def of(cls, config: ModelConfig) -> Sizes:
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


__all__ = ["Sizes"]
