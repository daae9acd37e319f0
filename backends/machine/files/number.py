"""A number as its author wrote it, with unit, source and confidence, and how it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, get_args

from ....ir.errors import UsageError, did_you_mean
from ....ir.records import dataclass
from ....ir.units import parse_quantity, split_quantity, units_of
from .faults import FileFault, Keys
from .kinds import NumberKind
from .records import Confidence, NumberRecord

if TYPE_CHECKING:
    from .system_tree import Tree

# The source of a number that is written without one.
THIS_FILE = "this file"
# Keys of a number, and of what another source says of it.
KEYS = ("unit", "value", "source", "confidence", "as_of")
_CONFIDENCES: tuple[str, ...] = get_args(Confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """`{value: 989, unit: TFLOP/s, source: ...}` or `{value: "989 TFLOP/s", source: ...}`; `si` is in base units.

    `989 TFLOP/s` alone is short for an estimate whose source is the file that it stands in. What other sources say of
    the same number is its interval, and no estimate until somebody `--set`s it.
    """

    kind: NumberKind
    unit: str | None = None
    value: float | str
    source: str
    confidence: Confidence = "datasheet"
    as_of: str | None = None
    others: tuple[Other, ...] = ()
    si: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the number, and check that its place allows it."""
        number = self.si_of(self)
        self.kind.check(self.value, number)
        self.kind.check_sense(_text(self, self.kind), number)
        for other in self.others:
            self.kind.check(other.value, self.si_of(other))
        object.__setattr__(self, "si", number)

    def __repr__(self) -> str:
        keys = (*KEYS, "others") if self.kind.quoted else KEYS
        return f"{self.kind.name}({', '.join(f'{key}={getattr(self, key)!r}' for key in keys)})"

    def si_of(self, said: Number | Other) -> float:
        """Return what a source says in base units."""
        text = _text(said, self.kind)
        if not split_quantity(text, self.kind.dimension)[1] and self.kind.dimension != "1":
            raise UsageError(f"missing unit of '{text}': allowed: {units_of(self.kind.dimension)}")
        return parse_quantity(text, self.kind.dimension).value_si

    def record(self, path: str) -> NumberRecord:
        """Return the number as written and in base units, for people who ask where it comes from."""
        return self._record(path, self, self.source)

    def records_of_others(self, path: str) -> tuple[NumberRecord, ...]:
        """Return what other sources say, as records like that of the number itself."""
        return tuple(self._record(path, other, other.told) for other in self.others)

    def _record(self, path: str, said: Number | Other, source: str) -> NumberRecord:
        number, unit = split_quantity(_text(said, self.kind))
        return NumberRecord(
            path, number, unit, self.si_of(said), self.kind.dimension, source, said.confidence, said.as_of
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """What another source says of the same number: an end of its interval, no estimate until somebody `--set`s it."""

    unit: str | None = None
    value: float | str
    source: str
    confidence: Confidence = "datasheet"
    as_of: str | None = None
    note: str | None = None

    @property
    def told(self) -> str:
        """Its source with its note behind it."""
        return self.source if self.note is None else f"{self.source}: {self.note}"


def _text(said: Number | Other, kind: NumberKind) -> str:
    """Return a number as it would be written short."""
    if isinstance(said.value, str) and said.unit and split_quantity(said.value, kind.dimension)[1]:
        raise UsageError(f"unit given twice: '{said.value}' and '{said.unit}'")
    return f"{said.value} {said.unit or ''}".strip()


def in_full(given: Tree) -> Tree:
    """Write a short number in full; what is no short number stays as it is.

    >>> in_full("36 GiB")
    {'value': '36 GiB', 'confidence': 'estimated', 'source': 'this file'}
    """
    if isinstance(given, int | float | str) and not isinstance(given, bool):
        return {"value": given, "confidence": "estimated", "source": THIS_FILE}
    return given


def read_number(kind: NumberKind, given: Tree, keys: Keys, path: str, faults: list[FileFault]) -> Number | None:
    """Return a number as it is written in a file; None, and what is wrong with it, where it is none."""
    given = in_full(given)
    if not isinstance(given, dict):
        expected = "a quantity such as 3350 GB/s, or {value: 3350, unit: GB/s, source: ...}"
        faults.append(FileFault(keys, path, f"expected {expected}, not {given!r}"))
        return None
    known = (*KEYS, "others") if kind.quoted else KEYS
    found = [*_faults_of_keys(given, keys, path, known)]
    several = given.get("others") if kind.quoted else None
    others = several if isinstance(several, list) else []
    for place, other in enumerate(others):
        at, shown = (*keys, "others", place), f"{path}.others.{place}"
        if isinstance(other, dict):
            found += _faults_of_keys(other, at, shown, (*KEYS, "note"))
        else:
            found.append(FileFault(at, shown, f"expected what another source says, not {other!r}"))
    if found:
        faults += found
        return None
    told = {**given, "others": tuple(Other(**other) for other in others)}  # type: ignore[arg-type]
    try:
        return Number(kind=kind, **told)  # type: ignore[arg-type]
    except UsageError as error:
        faults.append(FileFault((*keys, "value"), path, str(error)))
        return None


def _faults_of_keys(given: Mapping[str, Tree], keys: Keys, path: str, allowed: tuple[str, ...]) -> Iterator[FileFault]:
    """Keys that are missing, unknown, or not what they should be."""
    for key in allowed:
        if key not in given:
            if key in ("value", "source"):
                yield FileFault((*keys, key), path, f"missing {key}")
            continue
        message = _fault_of(key, given[key])
        if message:
            yield FileFault((*keys, key), path if key == "value" else f"{path}.{key}", message)
    for key in given:
        if key not in allowed:
            told = f"unknown key '{key}'{did_you_mean(str(key), sorted(allowed))} allowed: {', '.join(sorted(allowed))}"
            yield FileFault((*keys, key), path, told)


def _fault_of(key: str, given: Tree) -> str:
    match key:
        case "value" if isinstance(given, bool) or not isinstance(given, int | float | str):
            return f"expected a number, not {given!r}"
        case "confidence" if given not in _CONFIDENCES:
            return f"input should be {one_of(_CONFIDENCES)}, not {given!r}"
        case "others" if not isinstance(given, list):
            return f"input should be a valid list, not {given!r}"
        case "source" if given == "":
            return "string should have at least 1 character, not ''"
        case "source" if not isinstance(given, str):
            return f"input should be a valid string, not {given!r}"
        case "unit" | "as_of" | "note" if given is not None and not isinstance(given, str):
            return f"input should be a valid string, not {given!r}"
    return ""


def one_of(words: tuple[str, ...]) -> str:
    """Name words as people do.

    >>> one_of(("a", "b", "c"))
    "'a', 'b' or 'c'"
    """
    quoted = [f"'{word}'" for word in words]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
