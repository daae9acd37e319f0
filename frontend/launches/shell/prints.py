"""Commands whose output a script uses, worked out without running them: seq, printf, echo, dirname, basename."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
