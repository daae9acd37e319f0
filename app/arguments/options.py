"""Options of verbs: type, default, help, and the reading of values from text or Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, Union, get_args, get_origin

from ...ir.errors import UsageError, did_you_mean
from ...ir.records import dataclass
from ...ir.units import is_digits

if TYPE_CHECKING:
    from ...ir.plan.word import PlanWord

# What Python takes for a word that may be repeated.
Texts: TypeAlias = str | Sequence[str]
# What it takes for one that is a list with commas.
Listed: TypeAlias = str | Sequence[object]
Pairs: TypeAlias = str | Sequence[str] | Mapping[str, object]
# Degrees, batches, tokens and rows that are more than this are slips of the finger; see `ir/plan/cases.py`.
MOST = 10**9
_TRUE, _FALSE = ("1", "yes", "true", "on", "t", "y"), ("", "0", "no", "false", "off", "f", "n")


class WordKind(Enum):
    """How the value of a word is read."""

    TEXT = "text"
    PATH = "path"
    # A whole number of a range; one of a plan, which legality checks; a length in tokens, 8192 or 8k.
    COUNT = "count"
    ONE = "one"
    TOKENS = "tokens"
    REAL = "real"
    # A switch that can be turned on, and one that can be turned both ways.
    SWITCH = "switch"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Opt:
    """What is said of a word besides the name, the type and the default of its field, from which the rest follows.

    Attributes:
        help: what `--help`, the schema and `help()` say.
        kind: how it is read, where the type of the field does not say it.
        flags: all its flags, where the first is not the word itself.
        also: further flags behind `--word`.
        off: the flag that turns a switch off; `--no-word` where empty.
        choices: all its values, of a word that has a choice.
        metavar: what stands for its value in `--help`.
        name: of the field of the request, where that is not the word.
        least: the least number; `is_open_below` where it is not allowed itself.
        most: the greatest number; `is_open_above` where it is not allowed itself.
        is_many: whether it may be repeated.
        is_told: whether `--help` shows the default.
        is_required: whether it must be said.
        catalogue: the kind of names of the catalogue by which a shell completes it.
        word: the name of its field.
        default: the default of its field.
    """

    help: str
    kind: WordKind = WordKind.TEXT
    flags: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    off: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    name: str = ""
    least: float | None = None
    most: float | None = None
    is_open_below: bool = False
    is_open_above: bool = False
    is_many: bool = False
    is_told: bool = False
    is_required: bool = False
    catalogue: str = ""
    word: str = ""
    default: object = None

    @property
    def field(self) -> str:
        """The name of the field of the request."""
        return self.name or self.word

    @property
    def names(self) -> tuple[str, ...]:
        """All its flags."""
        return self.flags or (f"--{self.word.replace('_', '-')}", *self.also)

    @property
    def long(self) -> str:
        """The flag that stands for it on a command line."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def names_off(self) -> tuple[str, ...]:
        """The flags that turn it off."""
        return tuple(self.off or f"--no-{name[2:]}" for name in self.names) if self.kind is WordKind.BOTH else ()

    @property
    def names_both(self) -> tuple[str, ...]:
        """All its flags as click declares them, those that turn it off behind a slash."""
        return tuple(map("/".join, zip(self.names, self.names_off, strict=True))) if self.names_off else self.names

    @property
    def is_switch(self) -> bool:
        """Whether its value is true or false."""
        return self.kind in (WordKind.SWITCH, WordKind.BOTH)

    @property
    def is_list(self) -> bool:
        """Whether it takes words separated by commas, which a file and Python may write as a list."""
        return "LIST" in self.metavar

    @property
    def shown_range(self) -> str:
        """The range of its numbers as people read it, as in `x>=1`; empty without one."""
        low = "" if self.least is None else f"{self.least}{'<' if self.is_open_below else '<='}"
        high = "" if self.most is None else f"{'<' if self.is_open_above else '<='}{self.most}"
        if low and not high:
            return f"x{'>' if self.is_open_below else '>='}{self.least}"
        return f"{low}x{high}" if high else ""

    def flags_of(self, value: object) -> tuple[str, ...]:
        """Return a value as people type it; a switch that can only be turned on says nothing where it is off."""
        if self.is_switch:
            return (self.long,) if value and value != "false" else self.names_off[:1]
        if isinstance(value, Mapping):
            value = [f"{key}={text_of(one)}" for key, one in value.items()]
        texts = value if self.is_many and isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        return tuple(f"{self.long}={text_of(one)}" for one in texts)

    def read(self, value: object) -> object:
        """Return the value of what a file, a variable or Python says; UsageError, which names no flag, otherwise."""
        if value is None:
            return self.default
        if self.is_switch:
            return value if isinstance(value, bool) else _read_bool(str(value))
        if isinstance(value, Mapping):
            value = [f"{key}={text_of(one)}" for key, one in value.items()]
        if isinstance(value, Sequence) and not isinstance(value, str):
            if self.is_many:
                return tuple(self.read_word(text_of(one)) for one in value)
            if not self.is_list:
                raise UsageError(f"{self.word}={value!r}: one value, not {len(value)}")
        return (self.read_word(text_of(value)),) if self.is_many else self.read_word(text_of(value))

    def read_word(self, text: str) -> object:
        """Return one value of a text; UsageError, which names no flag, with what is allowed."""
        if self.choices and text not in self.choices:
            near = did_you_mean(text, self.choices)
            raise UsageError(f"'{text}' is not allowed{near} allowed: {', '.join(self.choices)}")
        if self.choices:
            return text
        if self.kind is WordKind.TEXT:
            return text
        if self.kind is WordKind.PATH:
            return Path(text)
        # Python reads digits of other scripts, and underscores between them.
        if not text.isascii() or "_" in text:
            raise UsageError(f"'{text[:40]}' is no number: its digits are 0 to 9.")
        if self.kind is WordKind.TOKENS:
            return _read_int(tokens_of(text.strip()), text)
        if self.kind is WordKind.ONE:
            if "," in text:
                raise UsageError(f"'{text}' is no single number: give one.")
            return _read_int(text, text)
        return self._read_number(text)

    def _read_number(self, text: str) -> int | float:
        most = MOST if self.most is None else int(self.most)
        if self.kind is WordKind.COUNT:
            # Python reads no number of some thousand digits.
            number: int | float = _read_int(text, text, " range") if len(text) <= 40 else most + 1
        else:
            try:
                number = float(text)
            except ValueError:
                raise UsageError(f"{text!r} is not a valid float range.") from None
        low = self.least is not None and (number < self.least or (self.is_open_below and number == self.least))
        above = self.most is not None and (number > self.most or (self.is_open_above and number == self.most))
        if self.kind is WordKind.COUNT and len(text) <= 40 and (low or above):
            raise UsageError(f"{number} is not in the range {self.shown_range}.")
        if self.kind is WordKind.COUNT and abs(number) > most:
            raise UsageError(f"{text if len(text) <= 40 else text[:40] + '...'}: at most {most:,} is allowed.")
        if low or above:
            raise UsageError(f"{number} is not in the range {self.shown_range}.")
        if not math.isfinite(number):
            raise UsageError(f"{text[:40]} is not a finite number.")
        return number


@cache
def options_of(*records: type) -> Mapping[str, Opt]:
    """Return the words of records by name, in their order; a plain field is a word of plans, or none."""
    found: dict[str, Opt] = {}
    for record in records:
        for base in record.__bases__ if record.__bases__ != (object,) else ():
            # Of two bases with one word the first has it, as in Python.
            found |= {word: opt for word, opt in options_of(base).items() if word not in found}
        for name, hint in vars(record).get("__annotations__", {}).items():
            default = vars(record).get(name, MISSING)
            if get_origin(hint) is Annotated:
                kind, opt = get_args(hint)
                found[name] = _opt(name, kind, opt, default)
            elif name in _words_of_plans():
                found[name] = _words_of_plans()[name]
        if elsewhere := vars(record).get("spelled_elsewhere"):
            spelled = {**found, **options_of(*elsewhere)}
            found |= {word: opt for word, opt in _words_of_plans().items() if word not in spelled}
    return MappingProxyType(found)


def _opt(word: str, hint: object, opt: Opt, default: object) -> Opt:
    """Return what the type and the default of a field say of its word, with what it says itself."""
    kinds = [one for one in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)) if one is not None]
    plain, many = kinds[0], hint in (Texts, Pairs)
    kind = (
        opt.kind
        if opt.kind is not WordKind.TEXT
        else _OF_TYPES.get(plain if isinstance(plain, type) else str, WordKind.TEXT)
    )
    if kind is WordKind.SWITCH and (default is not False or opt.off):
        kind = WordKind.BOTH
    return replace(
        opt,
        word=word,
        kind=kind,
        is_many=many,
        is_required=default is MISSING,
        default=None if default is MISSING else default,
        is_told=default is not False and default not in (MISSING, None, (), ""),
        choices=get_args(plain) if get_origin(plain) is Literal else opt.choices,
    )


def option_of(row: PlanWord) -> Opt:
    """Return what is said of a word of plans."""
    from ...ir.plan.word import PAIRS

    word, pairs = row.word, row.kind == PAIRS
    kind = WordKind.TOKENS if row.name == "seq" else _KINDS.get(row.kind, WordKind.TEXT)
    if row.kind is bool:
        kind = WordKind.SWITCH if word.one_way else WordKind.BOTH
    choices = word.choices if word.choices and not word.others else ()
    told = row.unsaid if word.is_told and not pairs else None
    shown = word.metavar or ("" if choices or row.kind is bool else {int: "N", float: "X"}.get(row.kind, "TEXT"))  # type: ignore[call-overload]
    is_told = told is True if row.kind is bool else not pairs
    default = False if word.one_way else told
    return Opt(
        word.help,
        kind,
        also=word.also,
        choices=choices,
        metavar=shown,
        is_many=pairs,
        is_told=is_told,
        word=row.name,
        default=default,
    )


_KINDS: Mapping[object, WordKind] = MappingProxyType({int: WordKind.ONE, float: WordKind.REAL})
_OF_TYPES: Mapping[type, WordKind] = MappingProxyType(
    {int: WordKind.COUNT, float: WordKind.REAL, bool: WordKind.SWITCH}
)


@cache
def _words_of_plans() -> Mapping[str, Opt]:
    from ...ir.plan.words import WORDS

    return MappingProxyType({name: option_of(row) for name, row in WORDS.items()})


def text_of(value: object) -> str:
    """Return a value as people type it: those of a list with commas between them.

    >>> text_of([1, 2, 8]), text_of(True), text_of(0.5)
    ('1,2,8', 'true', '0.5')
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def tokens_of(text: str) -> str:
    """Return the digits of a length in tokens; k and m count as in the names of models, by 1024.

    >>> tokens_of("8192"), tokens_of("8k"), tokens_of("1M"), tokens_of("8q")
    ('8192', '8192', '1048576', '8q')
    """
    digits, scale = text[:-1].strip(), {"k": 2**10, "m": 2**20}.get(text[-1:].lower())
    return str(int(digits) * scale) if scale and is_digits(digits) and len(digits) <= 9 else text


def _read_int(digits: str, text: str, of: str = "") -> int:
    try:
        return int(digits)
    except ValueError:
        raise UsageError(f"{text[:40]!r} is not a valid integer{of}.") from None


def _read_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        known = ", ".join(sorted((*_TRUE, *_FALSE)))
        raise UsageError(f"{text!r} is not a valid boolean. Recognized values: {known}")
    return word in _TRUE
