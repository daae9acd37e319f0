"""Limits of what is read from files of users: size, nesting, digits, and how much is unpacked."""

from __future__ import annotations

import re
import zlib

from ..errors import ParseError, UsageError

# Far above any file that people write: the largest of the catalogue has 60 kB and eight levels.
MOST_CHARS, DEEPEST, MOST_DIGITS = 4_000_000, 100, 400
# The graph of a model with a thousand layers of several kinds has some 20 MB.
MOST_UNPACKED = 256_000_000
# Times that a region may run: more than any model has layers.
MOST_RUNS = 1_000_000
_GZIP = b"\x1f\x8b"
_BRACKETS = re.compile(r"[\[\]{}]")
_DIGITS = re.compile(rf"\d{{{MOST_DIGITS + 1},}}")


def check_settings(text: str, where: str) -> None:
    """Raise UsageError for a text of settings that is larger, deeper or has longer numbers than any that people write.

    >>> check_settings("[" * 200, "a.yaml")
    Traceback (most recent call last):
        ...
    slipstick.ir.errors.UsageError: a.yaml: brackets are nested more than 100 deep
    """
    if len(text) > MOST_CHARS:
        raise UsageError(f"{where}: {len(text):,} characters; at most {MOST_CHARS:,} are read")
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth = depth + 1 if bracket in "[{" else max(depth - 1, 0)
        if depth > DEEPEST:
            raise UsageError(f"{where}: brackets are nested more than {DEEPEST} deep")
    if _DIGITS.search(text):
        raise UsageError(f"{where}: a number of more than {MOST_DIGITS} digits")


def unpacked(data: bytes, what: str) -> bytes:
    """Return what gzip packed; ParseError for more than any graph has, or for what is cut off or none."""
    found, rest = bytearray(), data
    while rest:
        # A file may hold several members, one behind the other.
        unpacker = zlib.decompressobj(wbits=31)
        try:
            found += unpacker.decompress(rest, MOST_UNPACKED + 1 - len(found))
        except zlib.error as error:
            told = "Not a gzipped file" if rest[:2] != _GZIP else error
            raise ParseError(f"{what}: {told}") from error
        if len(found) > MOST_UNPACKED:
            raise ParseError(f"{what}: more than {MOST_UNPACKED:,} bytes are packed in it")
        if not unpacker.eof:
            raise ParseError(f"{what}: it is cut off before its end")
        rest = unpacker.unused_data
    return bytes(found)
