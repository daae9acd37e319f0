"""Software with a date: which of the known versions of a stack or an engine `vllm@0.6` or `vllm@2024-06` is.

Where several versions of one product are known, each has a file that says which versions it stands for and in which
months people ran them; its name is that of the product with more behind it, `vllm-0.6`. What is run today has the
plain name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ....ir.units import is_digits

AT = "@"
# A year, a month or a day; of a year its last month is meant.
_DATE = re.compile(r"(20[0-9][0-9])(?:-(0[1-9]|1[0-2])(?:-[0-3][0-9])?)?")
_VERSION = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)(?:[.+_-]?[a-z]\w*)?")
_BETWEEN = " .. "


@dataclass(frozen=True, slots=True)
class Validity:
    """What a file of software stands for.

    Attributes:
        name: of the file.
        versions: `0.4 .. 0.6`, the first and the last; `0.10 ..` where there is no last yet, empty where nobody says.
        since: the month in which people began to run the first of them, as `2024-04`; empty where nobody says.
        until: the month in which they stopped to run the last; empty where it is run today.
    """

    name: str
    versions: str = ""
    since: str = ""
    until: str = ""

    def __str__(self) -> str:
        """As `vllm-0.6 (0.4 .. 0.6, 2024-04 to 2025-01)`."""
        months = f"{self.since} to {self.until or 'today'}" if self.since else f"up to {self.until}" * bool(self.until)
        told = ", ".join(part for part in (self.versions.strip(), months) if part)
        return f"{self.name} ({told})" if told else self.name

    def runs_in(self, month: str) -> bool:
        """Whether people ran it in a month.

        >>> Validity("vllm-0.6", since="2024-04", until="2025-01").runs_in("2024-06")
        True
        """
        return self.since <= month and (not self.until or month <= self.until)

    def is_version(self, version: Sequence[int]) -> bool:
        """Whether it stands for a version: `0.6.3` is one of `0.6`.

        >>> Validity("vllm-0.6", "0.4 .. 0.6").is_version((0, 6, 3))
        True
        """
        if not self.versions:
            return False
        first, between, last = (part.strip() for part in self.versions.partition(_BETWEEN.strip()))
        low, high = _numbers(first), _numbers(last if between else first)
        return tuple(version[: len(low)]) >= low and (not high or tuple(version[: len(high)]) <= high)

    @property
    def first(self) -> tuple[int, ...]:
        """The first version that it stands for, in numbers."""
        return _numbers(self.versions.partition(_BETWEEN.strip())[0])


@dataclass(frozen=True, slots=True)
class Dated:
    """The file that stands for what was asked for, and what to say where it is not quite that."""

    name: str
    note: str = ""


def month_of(text: str) -> str | None:
    """Return the month that a date means, None for what is no date.

    >>> month_of("2024"), month_of("2024-06-30"), month_of("0.6")
    ('2024-12', '2024-06', None)
    """
    found = _DATE.fullmatch(text)
    return f"{found[1]}-{found[2] or '12'}" if found else None


def chosen(asked: str, known: Sequence[Validity]) -> Dated:
    """Return which of the files of a product stands for `vllm@0.6` or `vllm@2024-06`; the nearest where none does.

    UsageError for what is neither a version nor a date.

    >>> known = [Validity("vllm", "0.10 ..", "2025-10"), Validity("vllm-0.6", "0.4 .. 0.6", "2024-04", "2025-01")]
    >>> chosen("vllm@0.6.3", known), chosen("vllm@2024-06", known).name
    (Dated(name='vllm-0.6', note=''), 'vllm-0.6')
    >>> chosen("vllm@0.8", known).note
    'vllm@0.8: no such version is known; the nearest stands for it, vllm-0.6 (0.4 .. 0.6, 2024-04 to 2025-01)'
    """
    at = asked.partition(AT)[2]
    month, version = month_of(at), _VERSION.fullmatch(at)
    if month is None and version is None:
        told = "; ".join(map(str, known))
        raise UsageError(f"{asked}: '{at}' is neither a version, as 0.6, nor a date, as 2024-06; known: {told}")
    if month is not None:
        return _in_month(asked, month, known)
    return _of_version(asked, _numbers(version[1] if version else at), known)


def younger(month: str, at: Validity) -> str:
    """Say so where a run of a month is older than the software that it is estimated with; nothing where it is not."""
    return "" if not at.since or at.since <= month else f"a run of {month} is older than its software, {at}"


def _in_month(asked: str, month: str, known: Sequence[Validity]) -> Dated:
    found = [one for one in known if (one.since or one.until) and one.runs_in(month)]
    if found:
        return Dated(max(found, key=lambda one: one.since).name)
    dated = [one for one in known if one.since]
    if not dated:
        return Dated(known[0].name, f"{asked}: {known[0].name} has no dated versions; it is taken as it is today")
    before = [one for one in dated if one.since <= month]
    near = max(before, key=lambda one: one.since) if before else min(dated, key=lambda one: one.since)
    return Dated(near.name, f"{asked}: nothing is known of that month; the nearest stands for it, {near}")


def _of_version(asked: str, version: tuple[int, ...], known: Sequence[Validity]) -> Dated:
    found = next((one for one in known if one.is_version(version)), None)
    if found is not None:
        return Dated(found.name)
    numbered = [one for one in known if one.versions]
    if not numbered:
        return Dated(known[0].name, f"{asked}: {known[0].name} has no numbered versions; it is taken as it is today")
    before = [one for one in numbered if one.first <= version]
    near = max(before, key=lambda one: one.first) if before else min(numbered, key=lambda one: one.first)
    return Dated(near.name, f"{asked}: no such version is known; the nearest stands for it, {near}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip().split(".") if is_digits(part))
