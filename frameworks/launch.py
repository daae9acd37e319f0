"""A launch as it is read: settings by name, what was said of a plan with them, what was assumed, what was left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TypeAlias

from ..ir.errors import ParseError
from ..ir.records import dataclass
from ..ir.units import number_of
from .shell.marks import LOST, UNKNOWN

# A setting's value: None for a flag that stands alone.
Value: TypeAlias = str | int | float | bool | Sequence[object] | None
Word: TypeAlias = str | int | float | bool | Sequence[str]
# What is counted in a launch: degrees, batches, lengths; and stages, of which each may be a list entry.
_MOST, MOST_STAGES = 10**9, 10_000
# FSDP's CPU offload keeps parameters, gradients and optimizer states on the host, where the optimizer then runs:
# `CPUOffloadPolicy` of torch.distributed.fsdp.
OFFLOADED_BY_FSDP = "optimizer,params"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "none", "null", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch of another framework in the words of a plan file.

    Attributes:
        framework: whose launch it is.
        words: what flags of `slipstick estimate` say, by the names that plan files have.
        config: the shape of the model as a config.json, where the launch spells it out; else None.
        understood: by setting as it stands there, what it became in the plan.
        usual: settings that matter and have the value that the stack or the engine was measured with.
        assumed: what the launch does not say and was taken, a line each.
        ignored: settings that change neither time nor memory.
        left_out: settings that may, and that nothing was made of, each with its value.
    """

    framework: str
    words: Mapping[str, Word]
    config: Mapping[str, object] | None = None
    understood: Mapping[str, str] = field(default_factory=dict)
    usual: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def coverage(self) -> float:
        """Share of the settings that matter which were understood, or are as usual; 1 where there are none."""
        known = len(self.understood) + len(self.usual)
        return known / (known + len(self.left_out)) if known + len(self.left_out) else 1.0


class Reading:
    """Settings of a launch while they are read: each is asked for by name, and what it became is kept."""

    def __init__(
        self,
        framework: str,
        given: Mapping[str, Value],
        shown: Mapping[str, str] | None = None,
        num_gpus: int | None = None,
        alone: str | None = None,
    ) -> None:
        """Begin with settings by plain name.

        `shown` says how each stands in the launch, `num_gpus` what it runs on, `alone` what belongs to no setting.
        """
        self.framework, self.num_gpus, self.alone = framework, num_gpus, alone
        self.given = given
        self.words: dict[str, Word] = {}
        self.config: dict[str, object] | None = None
        self._shown = shown or {}
        self._read: dict[str, str] = {}
        self._assumed: list[str] = []

    def has(self, *names: str) -> bool:
        """Whether one of these settings is there."""
        return any(name in self.given for name in names)

    def number(self, *names: str) -> int | None:
        """Return the first of these settings as a whole number; None where none is there or it is none (`null`)."""
        found = self.real(*names)
        if found is None:
            return None
        if found != int(found):
            raise ParseError(f"{self._name(names)}: '{found:g}' is no whole number")
        return int(found)

    def count(self, *names: str, least: int = 1, most: int = _MOST) -> int | None:
        """Return the first of these settings as a number of things; None where none is there.

        Raises:
            ParseError: it is no whole number, or beyond its limits: a degree of 0 is an error in each framework.
        """
        found = self.number(*names)
        if found is not None and not least <= found <= most:
            raise ParseError(f"{self._name(names)}: {found}; give a whole number from {least} to {most:,}")
        return found

    def real(self, *names: str) -> float | None:
        """Return the first of these settings as a number; ParseError where it is none."""
        name, value = self._first(names)
        if name is None or value is None or str(value).strip().lower() in ("none", "null", ""):
            return None
        text = str(value).replace("_", "").strip()
        try:
            found = number_of(text)
        except ValueError:
            raise ParseError(f"{self.shown(name)}: '{_printable(str(value))}' is no number") from None
        if not abs(found) <= 2**53:
            raise ParseError(f"{self.shown(name)}: '{text[:40]}' is beyond any number")
        return found

    def text(self, *names: str) -> str | None:
        """Return the first of these settings as a text; None where none is there."""
        name, value = self._first(names)
        if name is None or value is None:
            return None
        return self._known(name, _told(value))

    def flag(self, *names: str, usual: bool = False) -> bool:
        """Return the first of these settings as a switch: alone it is on; `usual` where none is there."""
        name, value = self._first(names)
        if name is None:
            return usual
        if value is None or isinstance(value, bool):
            return value is None or value
        word = self._known(name, str(value)).lower()
        if word not in (*_TRUE, *_FALSE):
            raise ParseError(f"{self.shown(name)}: '{_printable(word)}' is neither on nor off")
        return word in _TRUE

    def say(self, word: str, value: Word | None, *names: str) -> None:
        """Say a word of the plan, for settings that are there; None says nothing but that they are understood."""
        if value is not None:
            self.words[word] = value
        told = f"{word.replace('_', '-')} {value}" if value is not None else "as it is by itself"
        for name in names:
            if name in self.given:
                self._read[name] = told

    def understand(self, told: str, *names: str) -> None:
        """Keep that these settings are understood, as said in words."""
        self._read.update({name: told for name in names if name in self.given})

    def assume(self, line: str) -> None:
        """Keep what the launch does not say and was taken."""
        self._assumed.append(line)

    def done(self, like: str | None = None) -> Launch:
        """Return the launch; what settings no word came from are, settings.yaml says under `like` or its framework."""
        if int(str(self.words.get("gpus", 1))) < 1:
            raise ParseError(f"{self.words['gpus']} GPUs: nodes and devices of a launch are 1 and more")
        table = settings_like(like or self.framework)
        rest = [name for name in self.given if name not in self._read]
        usual = [name for name in rest if table.is_usual(name, self.given[name])]
        ignored = [name for name in rest if name not in table.usual and table.irrelevant.fullmatch(name)]
        return Launch(
            framework=self.framework,
            words=self.words,
            config=self.config,
            understood={self.shown(name): told for name, told in self._read.items()},
            usual=tuple(map(self.shown, usual)),
            assumed=tuple(self._assumed),
            ignored=tuple(map(self.shown, ignored)),
            left_out={
                self.shown(name): _printable(text if len(text) <= 60 else f"{text[:57]}...")
                for name, text in ((name, _told(self.given[name])) for name in rest)
                if name not in usual and name not in ignored
            },
        )

    def shown(self, name: str) -> str:
        """Return a setting's name as it stands in the launch."""
        return self._shown.get(name, name)

    def _first(self, names: Sequence[str]) -> tuple[str | None, Value]:
        name = next((name for name in names if name in self.given), None)
        if name is None:
            return None, None
        value = self.given[name]
        if isinstance(value, str):
            self._known(name, value)
        return name, value

    def _known(self, name: str, text: str) -> str:
        """Return a text; ParseError where it holds what only a shell could know."""
        if UNKNOWN in text:
            how = "write the value" if LOST in text else "which nothing here sets: say it with --env NAME=VALUE"
            raise ParseError(f"{self.shown(name)} is {_printable(text)}, {how}")
        return text

    def _name(self, names: Sequence[str]) -> str:
        return self.shown(next(name for name in names if name in self.given))


def settings_of(words: Sequence[str]) -> tuple[dict[str, Value], dict[str, str], list[str]]:
    """Return settings of a command line by plain name, how each stands there, and the words that belong to none.

    `--a-b 1`, `--a-b=1`, `-a 1`, `a.b=1`; several values are a list, the last of two equal flags holds.

    >>> settings_of(["--tp-size", "8", "--sp", "--layers", "1", "2", "run.py", "--x=3"])[0]
    {'tp_size': '8', 'sp': None, 'layers': ('1', '2', 'run.py'), 'x': '3'}
    """
    given: dict[str, Value] = {}
    shown: dict[str, str] = {}
    alone: list[str] = []
    name = None
    for word in words:
        # A negative number is no flag.
        if re.match(r"--?[A-Za-z]", word):
            flag, equals, value = word.partition("=")
            name = plain(flag)
            given[name], shown[name] = (value if equals else None), flag
            name = None if equals else name
        elif name is None:
            alone.append(word)
        else:
            before = given[name]
            many = before if isinstance(before, tuple) else (before,)
            given[name] = word if before is None else (*many, word)
    return given, shown, alone


@dataclass(frozen=True, slots=True)
class KnownSettings:
    """Settings of a framework that no word of a plan comes from: see settings.yaml."""

    irrelevant: re.Pattern[str]
    usual: Mapping[str, tuple[str, ...]]

    def is_usual(self, name: str, value: Value) -> bool:
        """Whether a setting has a value that its stack was measured with."""
        allowed = self.usual.get(name)
        return allowed is not None and ("any" in allowed or _as_text(value) in allowed)


@cache
def settings_like(framework: str) -> KnownSettings:
    """Return the settings of a framework, by its name in settings.yaml.

    >>> megatron = settings_like("megatron")
    >>> megatron.is_usual("hidden_dropout", "0.0"), megatron.is_usual("transformer_impl", "local")
    (True, False)
    """
    import yaml

    text = Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)[framework]
    patterns = "|".join(f"(?:{one})" for one in found["irrelevant"])
    usual: dict[str, tuple[str, ...]] = {}
    for key, value in found["usual"].items():
        if (text := _as_text(key)) in ("any", "on", "off"):
            usual |= dict.fromkeys(value, (text,))
        else:
            usual[key] = tuple(map(_as_text, value if isinstance(value, list) else [value]))
    if "like" not in found:
        return KnownSettings(re.compile(patterns), usual)
    other = settings_like(found["like"])
    return KnownSettings(re.compile(f"{other.irrelevant.pattern}|{patterns}"), {**other.usual, **usual})


def _as_text(value: Value) -> str:
    """Return a value as settings.yaml has it: on, off, a number without idle digits, a text in small letters."""
    text = "on" if value is None else str(value).strip().lower()
    if text in _TRUE and text != "1":
        return "on"
    if text in ("false", "no", "off"):
        return "off"
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def plain(flag: str) -> str:
    """Return the plain name of a setting.

    >>> plain("--Tensor-Parallel-size"), plain("parallelism.tensor_parallel_degree")
    ('tensor_parallel_size', 'parallelism.tensor_parallel_degree')
    """
    return flag.lstrip("-").replace("-", "_").lower()


def flattened(tree: object, above: str = "", depth: int = 0) -> dict[str, Value]:
    """Return settings of a file by dotted name; lists stay values.

    >>> flattened({"zero": {"stage": 3}, "fp16": None})
    {'zero.stage': 3, 'fp16': None}
    """
    if depth > 40:
        raise ParseError("a file of settings more than 40 deep")
    if not isinstance(tree, Mapping):
        return {above: tree if isinstance(tree, str | int | float | bool | list | tuple) else None}
    found: dict[str, Value] = {}
    for key, value in tree.items():
        found |= flattened(value, f"{above}.{plain(str(key))}" if above else plain(str(key)), depth + 1)
    return found


def _told(value: Value) -> str:
    """Return a value as one text: of a switch that it is on, of a list its values."""
    return "on" if value is None else " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _printable(text: str) -> str:
    """Return a text of a user without what could steer a terminal."""
    return "".join(char if char.isprintable() else "" for char in text.replace(UNKNOWN, ""))
