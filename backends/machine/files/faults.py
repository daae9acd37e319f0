"""What is wrong with a file: all of it at once, each with the file, the line, the path and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from ....ir.errors import SystemFileError
from ....ir.records import dataclass
from ....ir.text.untrusted import read_settings

Keys: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FileFault:
    """One thing that is wrong.

    Attributes:
        keys: the way to it from the top of its tree; the last may be missing there.
        path: the same for people, with levels of a network by name; empty for the whole.
        message: what was given, what is allowed.
        layer: the calibration it lies in, None for the system itself.
    """

    keys: Keys
    path: str
    message: str
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Where a part of a tree was read.

    Attributes:
        keys: the way to the part from the top of its tree.
        where: what people call the file.
        file: the file.
        inner: the way to the part from the top of the file.
        layer: the calibration that the tree is, None for the system itself.
    """

    keys: Keys
    where: str
    file: Path
    inner: Keys = ()
    layer: str | None = None

    def holds(self, fault: FileFault) -> bool:
        """Whether the fault lies in this part."""
        return self.layer == fault.layer and fault.keys[: len(self.keys)] == self.keys


# Says where a fault lies, `mine.yaml:7`, or nothing where no file holds it.
Locate: TypeAlias = Callable[[FileFault], str]


def nowhere(fault: FileFault) -> str:
    """Say nothing: the tree was not read from files."""
    return ""


def in_files(origins: Sequence[FileOrigin]) -> Locate:
    """Find faults in the files that a tree was read from; files are read again, which only a faulty one costs."""

    def locate(fault: FileFault) -> str:
        found = [origin for origin in origins if origin.holds(fault)]
        if not found:
            return fault.layer or ""
        nearest = max(found, key=lambda origin: len(origin.keys))
        return f"{nearest.where}{_line(nearest, fault)}"

    return locate


def _line(origin: FileOrigin, fault: FileFault) -> str:
    """Return the line of a fault behind the name of its file; nothing for text that never was a file."""
    from .system_tree import line_of

    try:
        text = read_settings(origin.file)
    except OSError:
        return ""
    return f":{line_of(text, (*origin.inner, *fault.keys[len(origin.keys) :]))}"


def all_of(what: str, faults: Iterable[FileFault], locate: Locate = nowhere) -> SystemFileError:
    """Build the error that lists all faults."""
    lines = list(dict.fromkeys(": ".join(filter(None, (locate(f), f.path, f.message))) for f in faults))
    count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
    return SystemFileError("\n  ".join([f"{what} has {count}:", *lines]))
