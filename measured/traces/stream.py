"""Events of a trace file one by one, in memory that does not grow with the file; plain or gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ...ir.errors import NotUnderstoodError
from ...ir.text.limits import limits, too_much
from ...ir.text.untrusted import open_regular

CHUNK = 1 << 20
# A single event, or a value beside the events, that is longer than this is none.
LONGEST = 64 << 20
_GZIP = b"\x1f\x8b"
_SPACE = " \t\r\n"


class Reader:
    """Text of a file as JSON values, read as far as they are asked for."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        """Read nothing yet."""
        # Names of kernels hold what JSON does not allow, such as raw control characters.
        self._decoder = json.JSONDecoder(strict=False)
        self._file, self._path = file, path
        self._text, self._at, self._ended, self._taken = "", 0, False, 0

    def peek(self) -> str:
        """Return the next character that is no space; NotUnderstoodError at the end of the file."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                raise self._cut_off()

    def take(self, allowed: str) -> str:
        """Take one of the characters that may stand here."""
        found = self.peek()
        if found not in allowed:
            raise NotUnderstoodError(f"{self._path}: no trace: '{found}' where one of {' '.join(allowed)} belongs")
        self._at += 1
        return found

    def value(self) -> object:
        """Take a whole value."""
        self.peek()
        chunks = 1
        while True:
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > LONGEST:
                    raise NotUnderstoodError(f"{self._path}: no trace: {error.msg}") from error
                # Twice as much each time: what is read anew is no more than what is read.
                if not sum(self._more() for _ in range(chunks)):
                    raise self._cut_off() from error
                chunks *= 2
                continue
            except RecursionError as error:
                raise NotUnderstoodError(f"{self._path}: no trace: brackets within brackets without end") from error
            # A number that ends where the text does may go on behind it.
            if end < len(self._text) or not self._more():
                self._at = end
                return cast(object, found)

    def _more(self) -> bool:
        if self._ended:
            return False
        try:
            data = self._file.read(CHUNK)
        except EOFError as error:
            raise self._cut_off() from error
        except (OSError, zlib.error) as error:
            raise NotUnderstoodError(f"{self._path}: cannot be read as a gzipped trace: {error}") from error
        self._ended, self._taken = not data, self._taken + len(data)
        if self._taken > limits().trace_bytes:
            raise too_much(str(self._path), f"more than {limits().trace_bytes:,} bytes of a trace")
        # Names are the only text that may be other than ASCII; a broken letter in one does no harm.
        self._text, self._at = self._text[self._at :] + data.decode("utf-8", "replace"), 0
        return bool(data)

    def _cut_off(self) -> NotUnderstoodError:
        told = "the file is cut off: was the profiler stopped, and the file copied whole?"
        return NotUnderstoodError(f"{self._path}: no whole trace: {told}")


def trace_events(path: Path) -> Iterator[dict[str, object]]:
    """Yield the events of a trace; NotUnderstoodError for what is none, or is cut off."""
    try:
        with open_regular(path) as plain:
            zipped = plain.read(2) == _GZIP
            plain.seek(0)
            if zipped:
                with gzip.open(plain) as unzipped:
                    yield from _events(Reader(cast(BinaryIO, unzipped), path), path)
            else:
                yield from _events(Reader(plain, path), path)
    except OSError as error:
        raise NotUnderstoodError(f"{path}: cannot be read: {error.strerror or error}") from error


def _events(reader: Reader, path: Path) -> Iterator[dict[str, object]]:
    if reader.take("{[") == "[":
        yield from _items(reader, path)
        return
    found = False
    while reader.peek() != "}":
        key = reader.value()
        reader.take(":")
        if key == "traceEvents":
            found = True
            reader.take("[")
            yield from _items(reader, path)
        else:
            reader.value()
        if reader.take(",}") == "}":
            break
    if not found:
        raise NotUnderstoodError(f"{path}: no trace: it has no traceEvents, as torch.profiler writes them")


def _items(reader: Reader, path: Path) -> Iterator[dict[str, object]]:
    """Yield the objects of a list whose bracket is taken."""
    if reader.peek() == "]":
        reader.take("]")
        return
    while True:
        item = reader.value()
        if not isinstance(item, dict):
            raise NotUnderstoodError(f"{path}: no trace: an event is a {type(item).__name__}, not an object")
        yield item
        if reader.take(",]") == "]":
            return
