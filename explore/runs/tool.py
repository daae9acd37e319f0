"""Which slipstick this is: its version and a digest of its source code and data, so that results never mix two."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ...ir import __version__

# Everything that numbers come from; what else lies in a floor (compiled code, files of editors) makes no numbers.
_SUFFIXES = (".csv", ".graph.gz", ".json", ".py", ".yaml")
# Beside the floors in a checkout, not in an installed package.
_NOT_INSTALLED = frozenset({"benchmarks"})


@cache
def tool_version() -> str:
    """Return the version and twelve hexadecimal digits of the code, such as `0.1.0+8c1f0e6d2b7a`.

    A checkout and a package that was built from it have the same; any edit of code or data gives another.
    """
    return f"{__version__}+{digest_of(Path(__file__).parents[2])}"


def digest_of(package: Path) -> str:
    """Return twelve hexadecimal digits of all code and data of a package: of their places in it and their bytes."""
    whole = hashlib.blake2b(digest_size=6)
    for name in sorted(_files(package)):
        with open(f"{package}/{name}", "rb", buffering=0) as file:
            content = file.read()
        # Its length as well: text that moves from one file to the next makes another digest.
        whole.update(f"{name}\0{len(content)}\0".encode())
        whole.update(content)
    return whole.hexdigest()


def _files(package: Path) -> Iterator[str]:
    """Yield each file of the package by its place in it, with slashes on any system: those at its root, then floors."""
    with os.scandir(package) as found:
        entries = list(found)
    yield from (entry.name for entry in entries if entry.name.endswith(".py") and entry.is_file())
    floors = [entry.name for entry in entries if entry.name not in _NOT_INSTALLED and not entry.name.startswith(".")]
    for floor in floors:
        if (package / floor / "__init__.py").is_file():
            yield from _below(package, floor)


def _below(package: Path, folder: str) -> Iterator[str]:
    with os.scandir(f"{package}/{folder}") as found:
        entries = list(found)
    for entry in entries:
        place = f"{folder}/{entry.name}"
        if entry.name.endswith(_SUFFIXES) and not entry.name.startswith("."):
            yield place
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _below(package, place)
