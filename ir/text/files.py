"""Files that are whole or not there at all: graphs, gzipped when the name ends in .gz, and the user's cache."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import ParseError
from ..host.folders import user_folder
from ..records import dataclass
from .stages import told
from .untrusted import read_text

if TYPE_CHECKING:
    from ..graph import Graph

_HEAD = re.compile(r'slipstick\.graph [0-9]+\r?\ngraph "([^"]*)"[^\n]*\n(?:positions ([0-9]+)\r?\n)?')
# Behind a text that is kept: who changed the text did not make it.
_CHECKSUM = "checksum "


def cache_folder() -> Path:
    """Return the user's cache folder; SLIPSTICK_CACHE or XDG_CACHE_HOME move it."""
    own = os.environ.get("SLIPSTICK_CACHE")
    return Path(own) if own else user_folder("XDG_CACHE_HOME", ".cache") / "slipstick"


def save_graph(graph: Graph, path: Path) -> None:
    """Write a graph; the file is complete or not there at all."""
    from .printer import print_graph

    write_whole(path, print_graph(graph))


def graph_head(path: str | Path) -> tuple[str, int]:
    """Return name and positions of a saved graph by its first lines; nothing for what is no graph.

    >>> graph_head("nowhere.graph")
    ('', 0)
    """
    try:
        found = _HEAD.match(read_text(Path(path)))
    except (OSError, ParseError):
        return "", 0
    return (found[1], int(found[2] or 0)) if found else ("", 0)


def load_graph(path: Path, verified: bool = False) -> Graph:
    """Read a graph and check that it keeps the rules of the IR; ParseError names the file and the line.

    Args:
        path: of a file of a user.
        verified: whether it is known to keep them: what the package holds, what a checksum stands behind.
    """
    from .admission import admit
    from .parse import parse_graph

    try:
        text = read_text(path)
    except (OSError, ParseError) as error:
        raise ParseError(f"{path}: cannot be read as a graph: {str(error).removeprefix(f'{path}: ')}") from error
    try:
        graph = parse_graph(text)
        if not verified:
            admit(graph)
    except ParseError as error:
        raise ParseError(f"{path}: {error}") from error
    return graph if verified else replace(graph, origin=str(path))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open beside the target, then rename: readers see the old file or the new one, never a part.

    A link stays a link, and what is no file, such as a pipe or a device, is written to and not replaced.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as out:
            yield out
        return
    with _beside(path.resolve()) as out:
        yield out


@contextmanager
def _beside(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside the target, then rename it over whatever the target is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A folder and not a bare temporary file, whose mode would hide the result from other users.
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        part = Path(folder, path.name)
        with part.open("wb") as out:
            yield out
            out.flush()
            # A rename may reach the disk before what it names: after a crash the file would be empty.
            os.fsync(out.fileno())
        part.replace(path)


def replace_whole(path: Path, data: bytes) -> None:
    """Write a file in the place of whatever stands there: a link or a pipe goes, and is not written through."""
    with _beside(path) as out:
        out.write(data)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file: see `replacing`."""
    with replacing(path) as out:
        out.write(data)


def write_whole(path: Path, text: str) -> None:
    r"""Write a text file, gzipped where its name ends in .gz; after a failure or a crash the old one is as it was.

    Half a letter, which stands for a byte of a name that is no UTF-8, is written out as \udcff.
    """
    data = text.encode(errors="backslashreplace")
    write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


@dataclass(frozen=True, slots=True)
class TextCache:
    """A folder of texts by name, each with its checksum, packed where the name ends in .gz.

    A file that was changed or cannot be read counts as absent, and is replaced whatever it is: a pipe or a link is not
    written through. A folder that cannot be read or written only costs time.
    """

    folder: Path

    @classmethod
    def of(cls, part: str) -> TextCache:
        """Return a part of the user's cache folder."""
        return cls(cache_folder() / part)

    def get(self, name: str) -> str | None:
        """Return the text of a name, None where there is none."""
        path = self.folder / name
        try:
            text, mark, digest = read_text(path).rpartition(_CHECKSUM)
        except (OSError, ParseError):
            return None
        if not mark or digest.strip() != _digest(text):
            told(f"cache: {path} was changed, so it is not read")
            return None
        return text

    def put(self, name: str, text: str) -> bool:
        """Keep a text; return whether it could be written."""
        data = f"{text}{_CHECKSUM}{_digest(text)}\n".encode()
        try:
            replace_whole(self.folder / name, gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        except OSError:
            return False
        return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
