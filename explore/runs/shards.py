"""Shards of a ledger: each worker keeps the plans of its blocks in a file of its own, which is a ledger as well.

The process that asked writes down which blocks are done, and where; no plan goes through it. SQLite reads shards one by
one, by the number of a block: it attaches ten files at most, and DuckDB reads SQLite through an extension that it
downloads.
"""

from __future__ import annotations

import os
import platform
import secrets
from pathlib import Path

from ...ir.records import dataclass
from .database import storing
from .ledger import SUFFIX, Ledger, shards_of
from .run import SearchRun

# Tells a folder from one of the same name on another machine.
_TOKEN = "token"  # noqa: S105 - no secret


@dataclass(frozen=True, slots=True)
class Shards:
    """Where workers of a search keep what they find, small and picklable.

    Attributes:
        folder: beside the ledger, as the process that asked sees it.
        token: what is written in it.
        run: what the ledger is of.
    """

    folder: str
    token: str
    run: SearchRun

    @classmethod
    def of(cls, ledger: Ledger) -> Shards:
        """Make the folder of an open ledger; StorageError where that cannot be."""
        folder = shards_of(ledger.path).absolute()
        token = secrets.token_hex(16)
        with storing(folder):
            folder.mkdir(exist_ok=True)
            (folder / _TOKEN).write_text(token, encoding="utf-8")
        return cls(str(folder), token, ledger.run)

    def begin(self) -> Ledger | None:
        """Begin a shard of this process; None on a machine that does not share the disk, whose plans must be sent."""
        try:
            is_shared = Path(self.folder, _TOKEN).read_text(encoding="utf-8") == self.token
        except (OSError, UnicodeDecodeError):
            return None
        name = f"{platform.node() or 'worker'}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        return Ledger.create(Path(self.folder, name), self.run) if is_shared else None
