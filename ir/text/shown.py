"""Texts of files for terminals, spreadsheets and Markdown: what would steer, compute or be a link there is text.

A name in a saved answer may come from anybody, and a comparison stands on the page of a pull request. GitHub links
`@org` and `#1` in text whatever escapes them, so that an invisible space parts them.
"""

from __future__ import annotations

import re

# All but tab and line feed; a terminal obeys the rest, as it does U+009B.
# With halves of letters: Python has them for bytes of names that are no UTF-8, and JSON has escapes for them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Colours and weights, which our own output is written in.
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_FORMULA = re.compile(r"[=+\-@\t\r]")
# A sign before a number, a percentage or a flag is no formula.
_SIGNED = re.compile(r"[+-]{1,2}[\w.,% -]*")
# Line ends of any kind, which would begin a block of their own.
_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
# What turns the direction of a text, or is not seen at all, and what steers a terminal.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARKS = re.compile(r"[\\`*_\[\]<|~]|&(?=#?\w+;)")
# A mention, a reference to an issue, the address of a page.
_LINKED = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
# The mark that makes a line a heading, an entry of a list, a rule or a quotation.
_BLOCK = re.compile(r"\s*[0-9]*(?=(?:#{1,6}|[+-]|(?<=[0-9])[.)])(?:\s|$)|[=-]+\s*$|>)")
_TICKS = re.compile(r"`+")


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
    return "".join(part if at % 2 else _CONTROL.sub(_written_out, part) for at, part in enumerate(parts))


def csv_cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: behind an apostrophe where it begins as one.

    See OWASP, CSV Injection.

    >>> csv_cell("=cmd()"), csv_cell("llama"), csv_cell("-3.5 %"), csv_cell("--tp"), csv_cell("-2+cmd|x")
    ("'=cmd()", 'llama', '-3.5 %', '--tp', "'-2+cmd|x")
    """
    return f"'{text}" if _FORMULA.match(text) and not _SIGNED.fullmatch(text) else text


def markdown_text(text: str) -> str:
    r"""Return a text as one line of Markdown that says just this.

    >>> print(markdown_text("x](http) ![a](b)\n\n# H1"))
    x\](http) !\[a\](b) # H1
    """
    line = _MARKS.sub(r"\\\g<0>", _one_line(text))
    block = _BLOCK.match(line)
    return _LINKED.sub("\u200b", line if block is None else f"{block[0]}\\{line[block.end() :]}")


def markdown_code(text: str) -> str:
    """Return a text as code within a line, in more backticks than it has.

    >>> markdown_code("a.json"), markdown_code("a`b")
    ('`a.json`', '`` a`b ``')
    """
    line = _one_line(text)
    ticks = "`" * (_longest(line) + 1)
    return f"{ticks}{line}{ticks}" if line.strip() and len(ticks) == 1 else f"{ticks} {line} {ticks}"


def code_block(text: str, language: str) -> list[str]:
    """Return the lines of a block of code, in a fence that it does not have.

    >>> code_block("slipstick doctor", "sh")
    ['```sh', 'slipstick doctor', '```']
    """
    fence = "`" * max(3, _longest(text) + 1)
    return [f"{fence}{language}", *(_HIDDEN.sub(_written_out, line) for line in text.splitlines()), fence]


def _one_line(text: str) -> str:
    return _HIDDEN.sub(_written_out, _SPACES.sub(" ", text))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


__all__ = ["code_block", "control_at", "csv_cell", "markdown_code", "markdown_text", "shown"]
