"""Texts of files for terminals and spreadsheets: what would steer the one or be a formula of the other is text."""

from __future__ import annotations

import re

# All but tab and line feed; a terminal obeys the rest, as it does U+009B.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Colours and weights, which our own output is written in.
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_FORMULA = re.compile(r"[=+\-@\t\r]")
# A sign before a number, a percentage or a flag is no formula.
_SIGNED = re.compile(r"[+-]{1,2}[\w.,% -]*")


def control_at(text: str) -> re.Match[str] | None:
    r"""Return where a text has its first control character but tab, line feed and carriage return; None where none.

    >>> control_at("a\tb\r\n"), bool(control_at("\x1b[31m"))
    (None, True)
    """
    return next((found for found in _CONTROL.finditer(text) if found[0] != "\r"), None)


def shown(text: str, colored: bool = False) -> str:
    r"""Return a text with control characters written out; colours stay where it is `colored`.

    >>> shown("a \x1b]52;c;x\x07 b")
    'a \\x1b]52;c;x\\x07 b'
    >>> shown("\x1b[1mtp8\x1b[0m \x1b[2J", colored=True)
    '\x1b[1mtp8\x1b[0m \\x1b[2J'
    """
    if not _CONTROL.search(text):
        return text
    parts = _COLOUR.split(text) if colored else [text]
    # What the pattern splits at stands at every other place.
    return "".join(part if at % 2 else _CONTROL.sub(_escape, part) for at, part in enumerate(parts))


def _escape(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def csv_cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: behind an apostrophe where it begins as one.

    See OWASP, CSV Injection.

    >>> csv_cell("=cmd()"), csv_cell("llama"), csv_cell("-3.5 %"), csv_cell("--tp"), csv_cell("-2+cmd|x")
    ("'=cmd()", 'llama', '-3.5 %', '--tp', "'-2+cmd|x")
    """
    return f"'{text}" if _FORMULA.match(text) and not _SIGNED.fullmatch(text) else text


__all__ = ["control_at", "csv_cell", "shown"]
