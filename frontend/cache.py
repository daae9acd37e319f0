"""Folded graphs on disk by content key, and those of the catalogue: a known model is answered without torch."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..ir.errors import ParseError
from ..ir.graph import Graph
from ..ir.text.files import load_graph, save_graph

# Raise when the recorder, the importer or the folding changes what they write.
TRACER_VERSION = 15
# Graphs that are part of the package: `python -m benchmarks.graphs --write` records them.
SHIPPED = Path(__file__).parent / "catalogue" / "graphs"


@dataclass(frozen=True, slots=True)
class GraphCache:
    """A folder of graphs; a file that cannot be read counts as absent and is written anew."""

    folder: Path

    @classmethod
    def default(cls) -> GraphCache:
        """Return the cache in the user's cache folder; SLIPSTICK_CACHE or XDG_CACHE_HOME move it."""
        own = os.environ.get("SLIPSTICK_CACHE")
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return cls(Path(own) if own else Path(base) / "slipstick")

    def get(self, key: str) -> Graph | None:
        """Return the graph of a key, None when there is none."""
        path = self._path(key)
        if not path.exists():
            return None
        try:
            return load_graph(path)
        except ParseError:
            return None

    def put(self, key: str, graph: Graph) -> None:
        """Keep a graph; a folder that cannot be written only costs time, so it is no error."""
        try:
            save_graph(graph, self._path(key))
        except OSError:
            return

    def _path(self, key: str) -> Path:
        return self.folder / "graphs" / f"{key}.graph.gz"


def graph_key(*parts: str) -> str:
    """Return the key of a recording: what was recorded, and the versions of everything that shaped it."""
    versions = [f"{name}={_version(name)}" for name in ("torch", "transformers")]
    text = "\n".join([str(TRACER_VERSION), *versions, *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def shipped_path(name: str, config: str, kind: str, dtype: str, *variant: str) -> Path:
    """Return where the package has the graph of a model of the catalogue, whatever torch is there to record it.

    The name says what it is of to people, and its digest to us: a config that was changed, or a recorder that writes
    something else, finds none.
    """
    digest = hashlib.sha256("\n".join([str(TRACER_VERSION), config, kind, dtype, *variant]).encode()).hexdigest()[:12]
    return SHIPPED / f"{'.'.join((name, kind, dtype, *variant, digest))}.graph.gz"


def shipped_graph(path: Path) -> Graph | None:
    """Return a graph of the package, None where it has none."""
    return load_graph(path, verified=True) if path.is_file() else None
