"""What a place of a file may hold: text, a word of a list, a number, a section, several of these; read and described.

Each form reads a tree of plain values, and gathers everything that is wrong with it. Each also says in JSON Schema
what it takes, for editors that check while one types.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from ....ir.errors import UsageError, did_you_mean
from ....ir.records import dataclass
from ....ir.units import number_of, units_of
from .faults import FileFault, Keys
from .kinds import NumberKind
from .number import Number, one_of, read_number
from .system_tree import Tree, names_of

T = TypeVar("T")
Schema: TypeAlias = "dict[str, Tree]"
_YES, _NO = ("1", "on", "t", "true", "y", "yes"), ("0", "off", "f", "false", "n", "no")


@dataclass(slots=True)
class Intake:
    """What is gathered while a tree is read: all that is wrong with it, and all its numbers, by path."""

    faults: list[FileFault] = field(default_factory=list)
    numbers: list[tuple[str, Number]] = field(default_factory=list)

    def refuse(self, keys: Keys, path: str, message: str) -> None:
        """Note what is wrong."""
        self.faults.append(FileFault(keys, path, message))


class FileForm(ABC):
    """What a place may hold."""

    @abstractmethod
    def read(self, given: Tree, keys: Keys, path: str, intake: Intake) -> object:
        """Return what is written at a place as a value; what is wrong with it goes to `intake`, the value is void."""

    @abstractmethod
    def schema(self, known: Schema) -> Schema:
        """Describe it in JSON Schema; what has a name of its own goes to `known`."""

    def takes(self, given: Tree) -> bool:
        """Whether what is written is meant to be this, where a place may hold one of several."""
        return True


@dataclass(frozen=True, slots=True)
class Plain(FileForm):
    """Text of a pattern, or a word of a list, or anything that `parse` makes something of."""

    word: str
    pattern: str = ""
    words: tuple[str, ...] = ()
    parse: Callable[[Tree], object] | None = None

    def read(self, given: Tree, keys: Keys, path: str, intake: Intake) -> object:
        """Read one value; messages say what it should be."""
        if self.words and given not in self.words:
            intake.refuse(keys, path, f"input should be {one_of(self.words)}, not {given!r}")
        elif self.parse is not None:
            try:
                return self.parse(given)
            except (UsageError, TypeError, ValueError) as error:
                intake.refuse(keys, path, f"input should be a valid {self.word}{error}, not {given!r}")
        elif not isinstance(given, str):
            intake.refuse(keys, path, f"input should be a valid string, not {given!r}")
        elif self.pattern and not re.search(self.pattern, given):
            intake.refuse(keys, path, f"string should match pattern '{self.pattern}', not {given!r}")
        return given

    def schema(self, known: Schema) -> Schema:
        """Describe a value."""
        found: Schema = {"pattern": self.pattern} if self.pattern else {}
        return {**({"enum": list(self.words)} if self.words else {}), **found, "type": self.word}

    def takes(self, given: Tree) -> bool:
        """Only text is text."""
        return isinstance(given, str)


@dataclass(frozen=True, slots=True)
class AmountForm(FileForm):
    """A number of a kind: a `Number` with its source, or bare, in base units."""

    kind: NumberKind
    bare: type[int] | type[float] | None = None

    def read(self, given: Tree, keys: Keys, path: str, intake: Intake) -> object:
        """Read a number and keep it for who asks where it comes from."""
        number = read_number(self.kind, given, keys, path, intake.faults)
        if number is None:
            return None
        intake.numbers.append((path, number))
        return number if self.bare is None else self.bare(number.si)

    def schema(self, known: Schema) -> Schema:
        """Say which units there are; JSON Schema cannot check them."""
        record: Schema = {
            "type": "object",
            "additionalProperties": False,
            "title": self.kind.name,
            "required": ["value", "source"],
            "properties": _number_keys(self.kind.quoted),
        }
        short: Schema = {
            "type": ["string", "number"],
            "description": "The value with its unit, an estimate of this file.",
        }
        told = f"{self.kind.told} Units: {units_of(self.kind.dimension)}."
        found: Schema = {"anyOf": [record, short], "description": told}
        name = self.kind.name if known.get(self.kind.name, found) == found else f"{self.kind.name}Otherwise"
        known[name] = found
        return {"$ref": f"#/$defs/{name}"}


def _number_keys(quoted: bool) -> Schema:
    text: Schema = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    keys: Schema = {
        "unit": {**text, "title": "Unit"},
        "value": {"anyOf": [{"type": "number"}, {"type": "string"}], "title": "Value"},
        "source": {"minLength": 1, "title": "Source", "type": "string"},
        "confidence": {
            "default": "datasheet",
            "enum": ["datasheet", "measured", "estimated"],
            "title": "Confidence",
            "type": "string",
        },
        "as_of": {**text, "title": "As Of"},
    }
    if not quoted:
        return keys
    other: Schema = {
        "additionalProperties": False,
        "description": "What another source says of the same number: shown to people, used by nobody until they "
        "`--set` it.",
        "properties": {**keys, "note": {**text, "title": "Note"}},
        "required": ["value", "source"],
        "title": "Other",
        "type": "object",
    }
    return {**keys, "others": {"default": [], "items": other, "title": "Others", "type": "array"}}


@dataclass(frozen=True, slots=True)
class Inside(FileForm, Generic[T]):
    """A section, or a record, with keys of its own; what is read of a group of keys is a mapping of its fields."""

    fields: Callable[[], Fields]
    make: Callable[[Mapping[str, object]], T]
    check: Callable[[T, Mapping[str, object]], Iterable[str]] = lambda made, found: ()
    title: str = ""
    told: str = ""
    called: str = "entry"
    marks: frozenset[str] = frozenset()

    def takes(self, given: Tree) -> bool:
        """Whether a part as it is written is of this kind: it has a key that others have not."""
        return not self.marks or (isinstance(given, dict) and bool(self.marks & set(given)))

    def read(self, given: Tree, keys: Keys, path: str, intake: Intake) -> T | None:
        """Read all keys; what they say together is checked where each is right by itself."""
        known = self.fields()
        if not isinstance(given, dict):
            intake.refuse(keys, path, f"expected a mapping with {', '.join(known)}, not {given!r}")
            return None
        before, found = len(intake.faults), dict[str, object]()
        for key, place in known.items():
            below = f"{path}.{key}" if path else key
            if given.get(key) is not None or (key in given and place.needed):
                so_far = len(intake.faults)
                value = place.form.read(given[key], (*keys, key), below, intake)
                if len(intake.faults) == so_far:
                    found |= value if place.name is None and isinstance(value, dict) else {str(place.name): value}
                    _refuse_all(partial(place.check, value), (*keys, key), below, intake)
            elif place.needed:
                intake.refuse((*keys, key), path, f"missing {key}")
            elif place.blank:
                found[str(place.name)] = None
        for key in given:
            if key not in known:
                intake.refuse((*keys, key), path, unknown_key(str(key), known))
        if len(intake.faults) > before:
            return None
        made = self.make(found)
        _refuse_all(partial(self.check, made, found), keys, path, intake)
        return None if len(intake.faults) > before else made

    def schema(self, known: Schema) -> Schema:
        """Describe a section, a named one once."""
        if self.title and self.title not in known:
            known[self.title] = None  # a section may hold others of its kind
            known[self.title] = self.record(known)
        return {"$ref": f"#/$defs/{self.title}"} if self.title else self.record(known)

    def record(self, known: Schema) -> Schema:
        """Describe the keys of a section."""
        places = self.fields()
        needed: list[Tree] = [key for key, place in places.items() if place.needed]
        return {
            "additionalProperties": False,
            **({"description": self.told} if self.told else {}),
            "properties": {key: place.schema(key, known) for key, place in places.items()},
            **({"required": needed} if needed else {}),
            **({"title": self.title} if self.title else {}),
            "type": "object",
        }


@dataclass(frozen=True, slots=True)
class Several(FileForm):
    """A list, entered by the names of its entries."""

    form: FileForm
    least: int = 0

    def read(self, given: Tree, keys: Keys, path: str, intake: Intake) -> object:
        """Read all entries."""
        if not isinstance(given, list):
            intake.refuse(keys, path, f"input should be a valid list, not {given!r}")
            return ()
        names = names_of(given)
        before = len(intake.faults)
        found = tuple(
            self.form.read(entry, (*keys, place), f"{path}.{names[place]}", intake) for place, entry in enumerate(given)
        )
        if len(given) < self.least and len(intake.faults) == before:
            intake.refuse(keys, path, f"list should have at least {self.least} item after validation, not 0, not []")
        return found

    def schema(self, known: Schema) -> Schema:
        """Describe a list."""
        least: Schema = {"minItems": self.least} if self.least else {}
        return {"items": self.form.schema(known), **least, "type": "array"}

    def takes(self, given: Tree) -> bool:
        """Only a list is a list."""
        return isinstance(given, list)


@dataclass(frozen=True, slots=True)
class ByName(FileForm):
    """A mapping of names, of any or of some words."""

    form: FileForm
    least: int = 0
    words: tuple[str, ...] = ()

    def read(self, given: Tree, keys: Keys, path: str, intake: Intake) -> object:
        """Read what stands under each name."""
        if not isinstance(given, dict):
            intake.refuse(keys, path, f"input should be a valid dictionary, not {given!r}")
            return {}
        found: dict[str, object] = {}
        for name, entry in given.items():
            Plain("string", words=self.words).read(name, (*keys, name, "[key]"), f"{path}.{name}.[key]", intake)
            found[name] = self.form.read(entry, (*keys, name), f"{path}.{name}", intake)
        if len(given) < self.least:
            told = f"dictionary should have at least {self.least} item after validation, not 0, not {{}}"
            intake.refuse(keys, path, told)
        return found

    def schema(self, known: Schema) -> Schema:
        """Describe a mapping."""
        least: Schema = {"minProperties": self.least} if self.least else {}
        names: Schema = {"propertyNames": {"enum": list(self.words)}} if self.words else {}
        return {"additionalProperties": self.form.schema(known), **least, **names, "type": "object"}


@dataclass(frozen=True, slots=True)
class OneOf(FileForm):
    """One of several forms: the first that takes what is written, else the last."""

    forms: tuple[FileForm, ...]

    def of(self, given: Tree) -> FileForm:
        """Return the form that is meant."""
        return next((form for form in self.forms if form.takes(given)), self.forms[-1])

    def read(self, given: Tree, keys: Keys, path: str, intake: Intake) -> object:
        """Read it as the form that is meant."""
        return self.of(given).read(given, keys, path, intake)

    def schema(self, known: Schema) -> Schema:
        """Describe all forms."""
        return {"anyOf": [form.schema(known) for form in self.forms]}


@dataclass(frozen=True, slots=True)
class Place:
    """A key of a section or a record.

    Attributes:
        form: what it may hold.
        name: the field that it becomes; None for a group of keys, each of which is a field.
        needed: whether a file must say it.
        default: its value in a section whose file leaves it out.
        blank: whether a record wants None where a file leaves the key out.
        checks: what more is asked of the value.
    """

    form: FileForm
    name: str | None
    needed: bool = False
    default: object = None
    blank: bool = False
    checks: Sequence[Callable[..., Iterable[str]]] = ()

    def check(self, value: object) -> Iterable[str]:
        """Yield what is wrong with a value that is right by itself."""
        return (message for check in self.checks for message in check(value))

    def schema(self, key: str, known: Schema) -> Schema:
        """Describe a key, with its usual value."""
        found = self.form.schema(known)
        if not self.needed and isinstance(self.default, str | bool | int | None):
            forms = found.get("anyOf", [found])
            nothing: Schema = {"anyOf": [*(forms if isinstance(forms, list) else []), {"type": "null"}]}
            found = {**(nothing if self.default is None else found), "default": self.default}
        plain = "$ref" not in str(found)
        return {**found, "title": key.replace("_", " ").title()} if plain else found


Fields: TypeAlias = Mapping[str, Place]


def _refuse_all(messages: Callable[[], Iterable[str]], keys: Keys, path: str, intake: Intake) -> None:
    try:
        told = "; ".join(messages())
    except UsageError as error:
        told = str(error)
    if told:
        intake.refuse(keys, path, told)


def unknown_word(word: str, known: Sequence[str], noun: str = "") -> str:
    """Say that a name is unknown, with the nearest and all there are."""
    return f"{f'unknown {noun}'.strip()} '{word}'{did_you_mean(word, known)} allowed: {', '.join(known)}"


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Say that a key is unknown, with the nearest and all there are."""
    allowed = sorted(known)
    return f"unknown key '{key}'{did_you_mean(key, allowed)} allowed: {', '.join(allowed)}"


def _flag(given: Tree) -> bool:
    if isinstance(given, str) and given.lower() in (*_YES, *_NO):
        return given.lower() in _YES
    if isinstance(given, str) or (isinstance(given, int) and given not in (0, 1)):
        raise UsageError(", unable to interpret input")
    if not isinstance(given, int) and given not in (0.0, 1.0):
        raise UsageError
    return bool(given)


def _real(given: Tree) -> float:
    if not isinstance(given, int | float | str):
        raise UsageError
    try:
        return number_of(given) if isinstance(given, str) else float(given)
    except ValueError:
        raise UsageError(", unable to parse string as a number") from None


def _whole(given: Tree) -> int:
    number = _real(given)
    if number != int(number):
        raise UsageError(", got a number with a fractional part")
    return int(number)


TEXT = Plain("string")
FLAG = Plain("boolean", parse=_flag)
REAL = Plain("number", parse=_real)
WHOLE = Plain("integer", parse=_whole)
ANYTHING = Plain("object", parse=lambda given: given)
