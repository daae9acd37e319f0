"""The folder of runs: one ledger each, known by names that the model gives them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from shutil import rmtree

from ...ir.errors import StorageError, UnknownNameError, UsageError
from ...ir.host.folders import user_folder
from ...ir.records import dataclass
from ...ir.units import is_digits
from .database import storing
from .ledger import SUFFIX, Ledger, lock_of, shards_of
from .lock import Lock
from .run import SearchRun

# Of a run whose machines an optimiser chooses: its study.
STUDY = ".optuna"
# Names stay short enough for a line of a terminal.
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """A folder of ledgers; it may not be there yet."""

    folder: Path

    @classmethod
    def default(cls) -> LedgerFolder:
        """Return the folder in the user's state folder; SLIPSTICK_RUNS or XDG_STATE_HOME move it."""
        own = os.environ.get("SLIPSTICK_RUNS")
        return cls(Path(own) if own else user_folder("XDG_STATE_HOME", ".local/state") / "slipstick" / "runs")

    @classmethod
    def at(cls, folder: Path | None) -> LedgerFolder:
        """Return the runs of a folder, of the usual one where none is named."""
        return cls.default() if folder is None else cls(folder)

    def names(self) -> list[str]:
        """Return the names of all runs, counted as people count: 2 before 10."""
        found = [path.stem for path in self.folder.glob(f"*{SUFFIX}") if path.is_file()]
        return sorted(found, key=_as_counted)

    def path(self, name: str) -> Path:
        """Return the ledger of a run by its name, or by the path of its file; UnknownNameError names the nearest."""
        given = Path(name)
        if given.name == name and given.suffix == SUFFIX and not given.is_file() and given.stem in self.names():
            # A file name alone, of a run that lies in this folder and not where the user is.
            return self.named(given.stem)
        if given.name != name or (name not in self.names() and (given.suffix == SUFFIX or os.path.isfile(given))):
            return given
        return self.named(name)

    def named(self, name: str) -> Path:
        """Return the ledger of a run by its name alone; UnknownNameError names the nearest."""
        names = self.names()
        if name in names:
            return self.folder / f"{name}{SUFFIX}"
        if not names:
            raise UnknownNameError(f"unknown run '{name}': there are no runs in '{self.folder}'")
        raise UnknownNameError.of("run", name, names)

    def create(self, run: SearchRun) -> Ledger:
        """Begin a run under the next name that is free; StorageError where nothing can be written."""
        taken = set(self.names())
        while True:
            name = new_name(run.model, taken)
            path = self.folder / f"{name}{SUFFIX}"
            try:
                return Ledger.create(path, run)
            except StorageError:
                raise
            except UsageError:
                # Another process may have been quicker with the same name.
                if not (path.exists() or lock_of(path).exists()):
                    raise
                taken.add(name)

    def remove(self, name: str) -> None:
        """Delete a run; UsageError while a process is at it, UnknownNameError where there is none."""
        path = self.named(name)
        with storing(path):
            lock = Lock.take(lock_of(path), f"run '{name}'")
            try:
                for ending in ("", "-wal", "-shm", "-journal"):
                    path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
                study_of(path).unlink(missing_ok=True)
                rmtree(shards_of(path), ignore_errors=True)
            finally:
                lock.release()


def study_of(path: Path) -> Path:
    """Return the file of the optimiser's study that lies beside a ledger, where the run has one."""
    return path.with_suffix(STUDY)


def new_name(model: str, taken: Iterable[str]) -> str:
    """Return the first free name for a run of a model.

    >>> new_name("meta-llama/Llama-3.1-405B", ["llama-3.1-405b-1"])
    'llama-3.1-405b-2'
    >>> new_name("./my models/tiny llama.json", [])
    'tiny-llama-1'
    """
    last = re.sub(r"\.(json|onnx|pt2|graph|gz|ya?ml)\b", "", model.rstrip("/").rpartition("/")[2].lower())
    base = re.sub(r"[^a-z0-9.+_]+", "-", last).strip("-.")[:_LONGEST] or "run"
    used, number = set(taken), 1
    while f"{base}-{number}" in used:
        number += 1
    return f"{base}-{number}"


def called(path: Path) -> str:
    """Return what a user types for a ledger: its name in the usual folder, else its path."""
    return path.stem if path.parent == LedgerFolder.default().folder else str(path)


def _as_counted(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if is_digits(part) else (-1, part) for part in re.split(r"([0-9]+)", name)]
