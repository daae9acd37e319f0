"""Texts that are kept in the user's cache folder; whatever happens to a file there, answers stay the same."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

from ..errors import ParseError
from ..records import dataclass
from .files import cache_folder, replace_whole
from .stages import told
from .untrusted import read_text

# Behind a text that is kept: who changed the text did not make it.
_CHECKSUM = "checksum "


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
