"""Folded graphs on disk by content key, and those of the catalogue: a known model is answered without torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..ir.errors import ParseError
from ..ir.graph import Graph
from ..ir.records import dataclass
from ..ir.text.files import TextCache, cache_folder, load_graph
from ..ir.text.stages import told

# Raise when the recorder, the importer or the folding changes what they write.
TRACER_VERSION = 15
_SUFFIX = ".graph.gz"
# Graphs that are part of the package: `python -m benchmarks.graphs --write` records them.
SHIPPED = Path(__file__).parent / "catalogue" / "graphs"


@dataclass(frozen=True, slots=True)
class GraphCache:
    """A folder of graphs; one that cannot be read, or was changed, counts as absent (`ir/text/files.py`)."""

    folder: Path

    @classmethod
    def default(cls) -> GraphCache:
        """Return the cache in the user's cache folder; SLIPSTICK_CACHE or XDG_CACHE_HOME move it."""
        return cls(cache_folder())

    def get(self, key: str) -> Graph | None:
        """Return the graph of a key, None when there is none."""
        from ..ir.text.parse import parse_graph

        text = self._texts.get(f"{key}{_SUFFIX}")
        if text is None:
            return None
        try:
            found = parse_graph(text)
        except ParseError:
            return None
        told(f"graph of {found.name} ({found.workload}): from the cache, {self._texts.folder / key}{_SUFFIX}")
        return found

    def put(self, key: str, graph: Graph) -> None:
        """Keep a graph, which was verified when it was recorded."""
        from ..ir.text.printer import print_graph

        if self._texts.put(f"{key}{_SUFFIX}", print_graph(graph)):
            told(f"graph of {graph.name} ({graph.workload}): kept in the cache, {self._texts.folder / key}{_SUFFIX}")

    @property
    def _texts(self) -> TextCache:
        return TextCache(self.folder / "graphs")


def graph_key(*parts: str) -> str:
    """Return the key of a recording: what was recorded, and the versions of everything that shaped it."""
    versions = [f"{name}={_version(name)}" for name in ("torch", "transformers")]
    text = "\n".join([str(TRACER_VERSION), *versions, *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # 40 ms, and the catalogue needs none of it

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
