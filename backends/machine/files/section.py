"""Sections of files and records of machines: what their annotated fields make of a tree, with all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, partial
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Annotated, ClassVar, Literal, Self, TypeVar, Union, cast, get_args, get_origin

from ....ir.records import dataclass
from .faults import Locate, all_of, nowhere
from .kinds import Checked, Inline, Key, Least, NumberKind, OneWord, TextPattern, Unwritten
from .number import Number
from .records import NumberRecord
from .shapes import (
    ANYTHING,
    FLAG,
    REAL,
    TEXT,
    WHOLE,
    AmountForm,
    ByName,
    Fields,
    FileForm,
    Inside,
    Intake,
    OneOf,
    Place,
    Plain,
    Several,
)
from .system_tree import Tree

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])
# What the plain types of annotations are in a file.
_PLAIN: Mapping[object, FileForm] = {str: TEXT, bool: FLAG, float: REAL, int: WHOLE, object: ANYTHING}


def _once(function: F) -> F:
    """Keep what a function returns of a class."""
    return cast(F, cache(function))


class Section:
    """A part of a file, frozen; a key that it does not know is an error."""

    # What people call an entry of a list of such.
    called: ClassVar[str] = "entry"
    # Keys that others of a list have not.
    holds: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of(cls, found: Mapping[str, object]) -> Self:
        """Make a section of values by key; what is missing is as its class says."""
        made = object.__new__(cls)
        told = dict(found)
        for name, record in _inlined(cls).items():
            own = {place.name for _, place in _places(record)}
            made.__dict__[name] = record(**{key: told.pop(key) for key in found if key in own})
        made.__dict__.update({str(place.name): place.default for _, place in _places(cls)} | told)
        return made

    def faults(self, found: Mapping[str, object]) -> Iterable[str]:
        """Yield what is wrong with keys that are right one by one; `found` has those that were written."""
        return ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


@_once
def fields_of(record: type) -> Fields:
    """Return what a file has of a section or a record, by key, in the order in which files have the keys."""
    inlined = {key: place for inner in _inlined(record).values() for key, place in fields_of(inner).items()}
    return {**inlined, **_grouped(_places(record))}


@_once
def _places(record: type) -> tuple[tuple[tuple[str, ...], Place], ...]:
    """Return each field that a file has, with its keys there."""
    usual = _usual(record)
    hints = _hints(record).items()
    places = [found for name, hint in hints if (found := _place(name, hint, usual.get(name, MISSING), record))]
    order = getattr(record, "ORDER", ())
    return tuple(sorted(places, key=lambda place: order.index(place[0][0]) if place[0][0] in order else len(order)))


@_once
def _inlined(record: type) -> Mapping[str, type]:
    """Return the fields of a section whose keys stand among its own."""
    return {name: get_args(hint)[0] for name, hint in _hints(record).items() if Inline() in get_args(hint)[1:]}


@dataclass(frozen=True, slots=True)
class NumberField:
    """A field of a record that is a number: its name, its kind, where it stands in a file and what it is called."""

    name: str
    kind: NumberKind
    key: Key

    @property
    def path(self) -> str:
        """Its keys in a file, from those of its record on."""
        return self.key.path or self.name


@_once
def numbers_of(record: type) -> tuple[NumberField, ...]:
    """Return the numbers of a record itself, in the order of its fields.

    >>> from slipstick.backends.machine.chip import Chip
    >>> [number.path for number in numbers_of(Chip) if number.key.moves]
    ['vector.fp32', 'clock', 'memory.hbm.bandwidth']
    """
    found = []
    for name, hint in _hints(record).items():
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        kind = next((note for note in notes if isinstance(note, NumberKind)), None)
        if kind is not None:
            found.append(NumberField(name, kind, next((note for note in notes if isinstance(note, Key)), Key())))
    return tuple(found)


@_once
def _hints(record: type) -> Mapping[str, object]:
    """Return the annotations of a class and those below it, without looking into the types of arrays."""
    above = (one for one in reversed(record.__mro__) if one is not object and one is not Section)
    return {name: hint for one in above for name, hint in get_annotations(one, eval_str=True).items()}


def _usual(record: type) -> Mapping[str, object]:
    """Return what fields are where a file does not say them."""
    if not is_dataclass(record):
        return {name: value for one in reversed(record.__mro__) for name, value in vars(one).items()}
    return {one.name: one.default if one.default_factory is MISSING else () for one in fields(record)}


def _place(name: str, hint: object, default: object, record: type) -> tuple[tuple[str, ...], Place] | None:
    """Return a field with its keys in a file; None for what no file says."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    if get_origin(hint) is ClassVar or hint is ClassVar or Unwritten() in notes or Inline() in notes:
        return None
    key = next((note for note in notes if isinstance(note, Key)), Key())
    checks = tuple(note.by for note in notes if isinstance(note, Checked))
    base = get_args(hint)[0] if notes else hint
    blank = default is MISSING and NoneType in get_args(base)
    needed = default is MISSING and not blank if key.needed is None else key.needed
    usual = None if default is MISSING else default
    place = Place(_form(hint, record, default), name, needed, usual, blank, checks)
    return tuple((key.path or name).split(".")), place


def _grouped(places: Sequence[tuple[tuple[str, ...], Place]]) -> Fields:
    """Return places by their first keys; those of longer ways are groups."""
    found: dict[str, Place] = {}
    for key in dict.fromkeys(keys[0] for keys, _ in places):
        below = [(keys[1:], place) for keys, place in places if keys[0] == key]
        if not below[0][0]:
            found[key] = below[0][1]
            continue
        group = _grouped(below)
        form: Inside[Mapping[str, object]] = Inside(partial(dict, group), dict)
        found[key] = Place(form, None, any(place.needed for place in group.values()), default=MISSING)
    return found


def _form(hint: object, record: type, default: object = MISSING) -> FileForm:
    """Return what a place may hold by its annotation."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(inner[0], inner[1:], record, default)
    if origin in (Union, UnionType):
        forms = tuple(_form(one, record, default) for one in inner if one is not NoneType)
        return forms[0] if len(forms) == 1 else OneOf(forms)
    if origin is Literal:
        return Plain("string", words=inner)
    if origin in (list, tuple):
        return Several(_form(inner[0], record))
    if origin in (dict, Mapping):
        words = get_args(inner[0]) if get_origin(inner[0]) is Literal else ()
        return ByName(_form(inner[1], record), words=words)
    if hint is None:
        return ANYTHING
    if hint in _PLAIN:
        return _PLAIN[hint]
    assert isinstance(hint, type), f"{record.__name__}: {hint}"
    return inside(hint)


def _annotated(base: object, notes: tuple[object, ...], record: type, default: object) -> FileForm:
    """Return a form with what stands beside the type."""
    for note in notes:
        match note:
            case FileForm():
                return note
            case NumberKind():
                sourced = base is Number or Number in get_args(base)
                bare = None if sourced else int if note.whole and not isinstance(default, float) else float
                return AmountForm(note, bare)
            case TextPattern(text):
                return Plain("string", pattern=text)
            case OneWord(words):
                return Plain("string", words=words)
            case Least(entries):
                several = _form(base, record)
                assert isinstance(several, Several | ByName)
                return replace(several, least=entries)
    return _form(base, record, default)


@_once
def inside(record: type[T]) -> Inside[T]:
    """Return a section or a record as a form."""
    return Inside(
        partial(fields_of, record),
        record.of if issubclass(record, Section) else lambda found: record(**found),
        getattr(record, "faults", lambda made, found: ()),
        title=record.__name__,
        told=(record.__doc__ or "").strip(),
        called=getattr(record, "called", "entry"),
        marks=getattr(record, "holds", frozenset()),
    )


def leaves_of(section: Section, path: str = "") -> Iterator[tuple[str, Number | str]]:
    """Yield every number and every word of a section with its path, in the order of the schema."""
    for key in fields_of(type(section)):
        yield from _leaves(getattr(section, key), f"{path}.{key}" if path else key)


def _leaves(found: object, path: str) -> Iterator[tuple[str, Number | str]]:
    if isinstance(found, Number | str):
        yield path, found
    elif isinstance(found, Section):
        yield from leaves_of(found, path)
    elif isinstance(found, tuple):
        for place, entry in enumerate(found):
            yield from _leaves(entry, f"{path}.{getattr(entry, 'name', place)}")
    elif isinstance(found, dict):
        for name, entry in found.items():
            yield from _leaves(entry, f"{path}.{name}")


def form_of(top: type[T] | Inside[T]) -> Inside[T]:
    """Return the form of a section or a record."""
    return top if isinstance(top, Inside) else inside(top)


def section_of(top: type[T] | Inside[T], tree: dict[str, Tree], what: str, locate: Locate = nowhere) -> T:
    """Check a tree against its schema; SystemFileError lists all faults, each where it lies."""
    return numbered(top, tree, what, locate)[0]


def numbered(
    top: type[T] | Inside[T], tree: dict[str, Tree], what: str, locate: Locate = nowhere
) -> tuple[T, tuple[NumberRecord, ...]]:
    """Return the same with every number of it, in the order of the schema."""
    intake = Intake()
    found = form_of(top).read(tree, (), "", intake)
    if intake.faults or found is None:
        raise all_of(what, intake.faults, locate)
    return found, tuple(number.record(path) for path, number in intake.numbers)
