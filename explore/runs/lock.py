"""One process at a time on one run: an advisory lock beside its ledger, which ends with the process however it ends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ...ir.errors import UsageError
from ...ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that this process holds on a file; a forked child does not inherit it."""

    path: Path
    descriptor: int

    @classmethod
    def take(cls, path: Path, what: str) -> Lock:
        """Lock a file, which is made; UsageError names the process that holds it."""
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            if not _locked(descriptor):
                holder = _holder(descriptor)
                os.close(descriptor)
                raise UsageError(f"{what} is being run by {holder}: wait for it, or stop it first")
            if _is(descriptor, path):
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return cls(path, descriptor)
            # Its holder took the file away when it was done.
            os.close(descriptor)

    def release(self) -> None:
        """Give it up, and take the file away."""
        with suppress(OSError):
            self.path.unlink()
        os.close(self.descriptor)


def holder(path: Path) -> str | None:
    """Return who holds a lock, as in 'process 4711', None when nobody does; not for a lock of this process itself."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _locked(descriptor) else _holder(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Lock for writing, at once or not at all; without fcntl (Windows) nothing guards a run."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(descriptor: int) -> str:
    number = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f"process {number}" if number else "another process"


def _is(descriptor: int, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
