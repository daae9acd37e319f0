"""Texts that a shell makes of texts alone: output of seq, printf and the like, `{1..4}`, prefixes taken off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TypeAlias

MOST_WORDS = 200_000


def _seq(arguments: Sequence[str]) -> str | None:
    if not 1 <= len(arguments) <= 3 or not all(re.fullmatch(r"[0-9]{1,7}", word) for word in arguments):
        return None
    numbers = [int(word) for word in arguments]
    first, step, last = (
        (1, 1, *numbers) if len(numbers) == 1 else (numbers[0], 1, numbers[1]) if len(numbers) == 2 else numbers
    )
    return None if not step else "\n".join(map(str, range(first, last + 1, step)[:MOST_WORDS]))


def _printf(arguments: Sequence[str]) -> str | None:
    """Fill `%s` and `%d` in, the format over and over while there are arguments."""
    if not arguments:
        return None
    form, *rest = arguments
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    slots = re.findall(r"%[sd]", form)
    if not slots or not rest:
        return form.replace("%s", "")
    found = []
    for at in range(0, len(rest), len(slots)):
        values = iter(rest[at : at + len(slots)])
        found.append(re.sub(r"%[sd]", lambda _, values=values: next(values, ""), form))  # type: ignore[misc]
    return "".join(found)


Printer: TypeAlias = Callable[[Sequence[str]], "str | None"]
PRINTS: Mapping[str, Printer] = MappingProxyType(
    {
        "seq": _seq,
        "printf": _printf,
        "echo": lambda arguments: " ".join(word for word in arguments if word not in ("-n", "-e")),
        "dirname": lambda arguments: str(PurePosixPath(arguments[0]).parent) if len(arguments) == 1 else None,
        "basename": lambda arguments: PurePosixPath(arguments[0]).name if len(arguments) == 1 else None,
    }
)


def numbers_between(written: str) -> list[str]:
    """Return `{1..4}` as its numbers, in both directions."""
    match = re.fullmatch(r"\{(-?[0-9]{1,6})\.\.(-?[0-9]{1,6})\}", written)
    if match is None:
        return [written]
    first, last = int(match[1]), int(match[2])
    return [str(n) for n in (range(first, last + 1) if first <= last else range(first, last - 1, -1))][:MOST_WORDS]


def cut_match(value: str, how: str, pattern: str) -> str:
    """Take off what a pattern matches: the shortest (`#`, `%`) or longest (`##`, `%%`) prefix or suffix."""
    matches = re.compile(translate(pattern)).match
    sizes = range(len(value) + 1) if len(how) == 1 else range(len(value), -1, -1)
    if len(value) > 10_000:
        return value
    for size in sizes:
        part = value[:size] if how[0] == "#" else value[len(value) - size :]
        if matches(part):
            return value[size:] if how[0] == "#" else value[: len(value) - size]
    return value
