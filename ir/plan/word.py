"""What a word of a plan is: its name, type, default and help, and how its value is read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from ..errors import PlanError
from ..records import dataclass
from ..types import DType
from .precision import read_pair

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")
# A value as a flag or a plan file has it.
Value: TypeAlias = int | float | str | bool | tuple[str, ...] | None
PAIRS = tuple[tuple[str, str], ...]


class SearchAxis(Enum):
    """What a search makes of a word: it chooses among all legal values, has one, tries those it is given, or none."""

    NUMBER = "number"
    CHOICE = "choice"
    ONE = "one"
    GIVEN = "given"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Word:
    """What the table says of a word besides the name, the type and the default of its field.

    Attributes:
        help: what `--help` and the schema say.
        name: its name for people, where the field has another one.
        also: other names of its flag, most of them Megatron's.
        choices: all its values, of a word that has a choice.
        others: whether there are values beside the choices.
        metavar: what stands for its value in `--help`.
        section: where `--help` shows it.
        behind: the word that it follows in lists; that of the field above where empty.
        is_told: whether the default is shown, or the word has none to people: a rule, or the stack, decides.
        one_way: a switch that can only be turned on.
        least: the least number.
        noun: what an error calls a value that is none of the choices.
        needs: the degree that must be above one, or it says nothing; empty where it always does.
        of_training: whether inference has no use for another value than the default.
        axis: what a search makes of it.
    """

    help: str
    name: str = ""
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    others: bool = False
    metavar: str = ""
    section: str = "Plan"
    behind: str = ""
    is_told: bool = True
    one_way: bool = False
    least: int | None = None
    noun: str = ""
    needs: str = ""
    of_training: bool = False
    axis: SearchAxis = SearchAxis.GIVEN


@dataclass(frozen=True, slots=True)
class PlanWord:
    """A word of the table.

    Attributes:
        name: as people write it, in flags with - for _.
        field: what the record calls it.
        kind: the type of its value: int, float, str, bool, DType, `tuple[str, ...]` or PAIRS.
        default: the value by default.
        word: the rest.
    """

    name: str
    field: str
    kind: object
    default: object
    word: Word

    @property
    def is_list(self) -> bool:
        """Whether its value is several words, which people separate by commas."""
        return self.kind == tuple[str, ...]

    @property
    def unsaid(self) -> Value:
        """The default as people write it; None where there is no word for it."""
        return self.written(self.default)

    def read(self, given: object) -> object:
        """Return the value of what a flag says; PlanError for a number that is too small.

        >>> from slipstick.ir.plan.words import WORDS
        >>> WORDS["offload"].read("optimizer, params"), WORDS["grad_dtype"].read("bf16")
        (('optimizer', 'params'), <DType.BF16: 'bf16'>)
        """
        if given is None:
            return self.default
        if self.word.least is not None and isinstance(given, int) and given < self.word.least:
            raise PlanError(f"{self.name}={given}: {self.word.least} or more")
        if self.kind is DType:
            return DType.parse(str(given))
        if self.is_list:
            return tuple(dict.fromkeys(word for part in str(given).split(",") if (word := part.strip())))
        if self.kind == PAIRS and isinstance(given, tuple):
            return tuple(pair if isinstance(pair, tuple) else read_pair(pair) for pair in given)
        return given

    def written(self, value: object) -> Value:
        """Return a value as a flag says it: the inverse of `read`."""
        if self.is_list and isinstance(value, tuple):
            return ",".join(value) or None
        if self.kind == PAIRS and isinstance(value, tuple):
            return tuple(f"{pattern}={recipe}" for pattern, recipe in value)
        if isinstance(value, DType):
            return str(value)
        assert value is None or isinstance(value, (int, float, str))
        return value

    def told(self, value: object) -> str:
        """Return a value as people read it beside its name: the parts of one of several words joined by +.

        >>> from slipstick.ir.plan.words import WORDS
        >>> WORDS["offload"].told(("optimizer", "params")), WORDS["offload"].told(()), WORDS["fuse"].told(False)
        ('optimizer+params', 'none', 'false')
        """
        said = self.written(value)
        if isinstance(said, bool):
            return str(said).lower()
        return " ".join(said) if isinstance(said, tuple) else ("none" if said is None else str(said)).replace(",", "+")


def changed(record: R, values: Mapping[str, object]) -> R:
    """Return a record with other values of some fields, by their names."""
    return replace(record, **values)


@cache
def rows_of(record: type) -> Mapping[str, PlanWord]:
    """Return the words that a record has, by name and in their order: own ones, and inherited ones behind theirs."""
    assert is_dataclass(record)
    hints = get_type_hints(record, include_extras=True)
    runs: dict[str, list[PlanWord]] = {}
    for owner in reversed(record.__mro__):
        start = ""
        for field in fields(record):
            if field.name not in vars(owner).get("__annotations__", {}):
                continue
            if row := _row(field.name, hints[field.name], field.default):
                start = row.word.behind or start
                runs.setdefault(start, []).append(row)
    placed = runs.pop("")
    while runs:
        at, start = next((k, row.name) for k, row in enumerate(placed) if row.name in runs)
        placed[at + 1 : at + 1] = runs.pop(start)
    return {row.name: row for row in placed}


def _row(field: str, hint: object, default: object) -> PlanWord | None:
    """Return the row of a field; None of one that is no word."""
    if get_origin(hint) is not Annotated:
        return None
    kind, word = get_args(hint)
    (plain,) = (
        (one for one in get_args(kind) or (kind,) if one is not NoneType) if get_origin(kind) is not tuple else (kind,)
    )
    assert isinstance(word, Word)
    return PlanWord(word.name or field, field, plain, None if default is MISSING else default, word)
