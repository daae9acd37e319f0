"""Settings with their sources: command line, plan file, launch, environment, file of a folder, defaults of a verb."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..ir.records import dataclass
from .talk import Talk

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from .arguments.options import Opt

R = TypeVar("R", bound="DataclassInstance")


class Source(IntEnum):
    """Who said a word; the later one wins."""

    DEFAULT = 0
    FOLDER = 1
    ENVIRONMENT = 2
    LAUNCH = 3
    PLAN = 4
    TYPED = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, and who said it."""

    value: object
    source: Source


Layer: TypeAlias = Mapping[str, Setting]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbArguments:
    """What was said to a verb, by the fields of its request.

    Attributes:
        settings: each value, and who said it.
        framework: whose launch the plan comes from, where it comes from one.
        talk: where lines and progress go.
        command: the command line that says the same.
        defaults: what of it a file of defaults or the environment said.
    """

    settings: Layer = field(default_factory=dict)
    framework: str | None = None
    talk: Talk = field(default_factory=Talk, compare=False)
    command: str = ""
    defaults: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a verb has a word of that name."""
        return name in self.settings

    def get(self, name: str) -> object:
        """Return a value."""
        return self.settings[name].value

    def is_given(self, name: str) -> bool:
        """Whether anybody said a word: none of those that decide where nobody does."""
        return name in self.settings and self.settings[name].source > Source.DEFAULT

    def is_typed(self, name: str) -> bool:
        """Whether a word stands on the command line, or in the call."""
        return name in self.settings and self.settings[name].source is Source.TYPED

    def values(self, names: Mapping[str, object] | tuple[str, ...]) -> dict[str, object]:
        """Return the values of those names that the verb has."""
        return {name: self.settings[name].value for name in names if name in self.settings}

    def take(self, record: type[R]) -> R:
        """Return a record of the words that are its fields; fields that are no words have their defaults."""
        return record(**self.values(tuple(f.name for f in fields(record))))

    def changed(self, **settings: Setting) -> VerbArguments:
        """Return the arguments with other settings."""
        return replace(self, settings={**self.settings, **settings})


def merge_layers(options: Mapping[str, Opt], *layers: Layer) -> Layer:
    """Return the settings of all words: of layers the last that says it, and what a repeatable word is in all of them.

    `--set` beside a file that sets another number changes both.
    """
    known = {opt.field: opt for opt in options.values()}
    found = {name: Setting(() if opt.is_many else opt.default, Source.DEFAULT) for name, opt in known.items()}
    for layer in layers:
        for name, setting in layer.items():
            below = found.get(name)
            is_list = name in known and known[name].is_many and below is not None and below.source > Source.DEFAULT
            if is_list and below is not None and isinstance(below.value, tuple) and isinstance(setting.value, tuple):
                setting = Setting((*below.value, *setting.value), setting.source)
            found[name] = setting
    return MappingProxyType(found)
