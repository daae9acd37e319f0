"""The one way by which a file of a user gets in: regular files alone, of a size that memory has room for."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path

from ..errors import NotUnderstoodError, ParseError, UsageError
from .limits import limits, too_much, unpacked

_KINDS = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
}

# None outside of a command: what calls the package is a program already.
_WORDS: ContextVar[frozenset[str] | None] = ContextVar("slipstick_typed_words", default=None)
_SEPARATORS = re.compile("[=,]")
_NO_STDIN = "name a file in place of -, or send one, as in `slipstick ... - < FILE`"


def read_bytes(path: Path, most: int = 0) -> bytes:
    """Return what a file holds, unpacked where its name ends in .gz.

    Args:
        path: of a regular file.
        most: bytes that are read, 0 for those of a document (`limits.Limits`).

    Raises:
        ParseError: a pipe, a device or a socket, or more than is read.
        OSError: what the system says: no such file, a folder, no permission.
    """
    most = most or limits().document_bytes
    with open_regular(path, most) as file:
        # A file may grow meanwhile, and some say that they are empty.
        data = file.read(most + 1)
    if len(data) > most:
        raise _too_large(path, most)
    return unpacked(data, str(path)) if path.suffix == ".gz" else data


def read_text(path: Path, most: int = 0) -> str:
    """Return a text in UTF-8; errors as `read_bytes`, and ParseError for what is no such text, with the line."""
    return decoded(read_bytes(path, most), str(path))


def read_settings(file: Path) -> str:
    """Return the text of a file that people write; errors as `read_text`."""
    return read_text(file, limits().settings_bytes)


def read_stdin(most: int = 0) -> str:
    """Return the text that comes by stdin.

    Raises:
        UsageError: stdin is closed or cannot be read.
        ParseError: more than is read, or what is no UTF-8.
    """
    most = most or limits().document_bytes
    try:
        # Python has no stream where the shell closed one.
        data = b"" if (stream := sys.stdin) is None else stream.buffer.read(most + 1)
    except OSError as error:
        raise UsageError(f"stdin cannot be read: {error.strerror}; {_NO_STDIN}") from error
    if stream is None:
        raise UsageError(f"stdin is closed; {_NO_STDIN}")
    if len(data) > most:
        raise too_much("stdin", f"more than {most:,} bytes")
    return decoded(data, "stdin")


def decoded(data: bytes, where: str) -> str:
    r"""Return bytes as text; a mark of the byte order in front is none of it.

    >>> decoded(b"a: 1", "a.yaml")
    'a: 1'
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ParseError(f"{where}:{line}: it is not UTF-8 text: {error.reason}") from error


@contextmanager
def open_regular(path: Path, most: int | None = None) -> Iterator[BufferedReader]:
    """Open a regular file to read bytes of it; errors as `read_bytes`, at once: nothing waits for a pipe.

    `most` None bounds nothing but the kind of file: for what is read in a stream, or mapped.
    """
    if "\0" in str(path):
        raise ParseError(f"{str(path)!r}: no file has a null character in its name")
    # What is opened is looked at, and not the name, which may mean something else a moment later.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check(path, os.fstat(descriptor), most)
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _check(path: Path, found: os.stat_result, most: int | None) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    for is_kind, name in _KINDS.items():
        if is_kind(found.st_mode):
            raise ParseError(f"{path}: it is {name}, and a regular file is read: save it first")
    if most is not None and found.st_size > most:
        raise _too_large(path, most, found.st_size)


def _too_large(path: Path, most: int, size: int = 0) -> ParseError:
    return too_much(str(path), f"{size:,} bytes; at most {most:,} are read" if size else f"more than {most:,} bytes")


@contextmanager
def allow_typed_code(arguments: Sequence[str]) -> Iterator[None]:
    """Let `check_typed` pass only names that stand in the arguments of a command, until the block ends.

    >>> with allow_typed_code(["search", "net.py:Net", "--loss=net.py:loss"]):
    ...     check_typed("net.py:loss")
    """
    words = {part for argument in arguments for part in (argument, *_SEPARATORS.split(argument))}
    token = _WORDS.set(frozenset(words))
    try:
        yield
    finally:
        _WORDS.reset(token)


def check_typed(name: str) -> None:
    """Refuse code that a file or the environment names.

    Args:
        name: `file.py:function` or `package.module:function`, as it was given.

    Raises:
        NotUnderstoodError: a command runs, and the name is not one of its words.
    """
    words = _WORDS.get()
    if words is not None and name not in words:
        raise NotUnderstoodError(
            f"'{name}' is code that a file or a variable names, and code runs only if it is typed; if you trust it, "
            f"type {name} as the model, or behind --draft or --loss"
        )
