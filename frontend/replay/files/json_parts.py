"""JSON of a file that may be wrong, read part by part: each of the kind that is wanted, or an error with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ....ir.errors import NotUnderstoodError

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_LONGEST = 200  # letters of a key that an error shows as they are


@dataclass(frozen=True, slots=True)
class Part:
    """A value in a JSON document and where it stands."""

    value: Json
    place: str

    def __getitem__(self, key: str) -> Part:
        """Return a field; NotUnderstoodError when there is none."""
        if not isinstance(self.value, dict) or key not in self.value:
            raise NotUnderstoodError(f"{self.place} has no '{key}'")
        return Part(self.value[key], f"{self.place}.{key}")

    def get(self, key: str) -> Part | None:
        """Return a field, None where there is none or it is null."""
        found = self.value.get(key) if isinstance(self.value, dict) else None
        return None if found is None else Part(found, f"{self.place}.{key}")

    def items(self) -> Iterator[tuple[str, Part]]:
        """Yield the fields of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        for key, value in self.value.items():
            plain = key if key.isprintable() and len(key) <= _LONGEST else ascii(key[:40])
            yield key, Part(value, f"{self.place}.{plain}")

    def each(self) -> Iterator[Part]:
        """Yield the elements of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        for index, value in enumerate(self.value):
            yield Part(value, f"{self.place}[{index}]")

    def only(self) -> tuple[str, Part]:
        """Return the one field of a union: its kind and its value."""
        fields = list(self.items())
        if len(fields) != 1:
            raise self.wrong("an object with one field")
        return fields[0]

    @property
    def text(self) -> str:
        """The value as a text."""
        if not isinstance(self.value, str):
            raise self.wrong("a text")
        return self.value

    @property
    def number(self) -> int:
        """The value as a whole number."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.wrong("a whole number")
        return self.value

    def wrong(self, wanted: str) -> NotUnderstoodError:
        """Return the error of a value of another kind."""
        shown = str(self.value)
        return NotUnderstoodError(f"{self.place} is {shown[:40]!r}, not {wanted}")


__all__ = ["Json", "Part"]
