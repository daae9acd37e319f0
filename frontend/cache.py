"""Folded graphs on disk by content key, and those of the catalogue: a known model is answered without torch."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

from ..ir.errors import ParseError
from ..ir.graph import Graph
from ..ir.records import dataclass
from ..ir.text.files import cache_folder, load_graph, write_atomically
from ..ir.text.parse import parse_graph
from ..ir.text.printer import print_graph
from ..ir.text.stages import told
from ..ir.text.untrusted import read_text

# Raise when the recorder, the importer or the folding changes what they write.
TRACER_VERSION = 15
# Behind the text of a graph that is kept: it was verified when it was recorded.
_CHECKSUM = "checksum "
# Graphs that are part of the package: `python -m benchmarks.graphs --write` records them.
SHIPPED = Path(__file__).parent / "catalogue" / "graphs"


@dataclass(frozen=True, slots=True)
class GraphCache:
    """A folder of graphs with checksums; a file that cannot be read, or was changed, counts as absent."""

    folder: Path

    @classmethod
    def default(cls) -> GraphCache:
        """Return the cache in the user's cache folder; SLIPSTICK_CACHE or XDG_CACHE_HOME move it."""
        return cls(cache_folder())

    def get(self, key: str) -> Graph | None:
        """Return the graph of a key, None when there is none."""
        path = self._path(key)
        if not path.exists():
            return None
        try:
            text, _, digest = read_text(path).rpartition(_CHECKSUM)
            # Whoever changed an entry did not record it: it is recorded anew.
            if digest.strip() != _digest(text):
                told(f"cache: {path} was changed, so it is not read")
                return None
            found = parse_graph(text)
            told(f"graph of {found.name} ({found.workload}): from the cache, {path}")
            return found
        except (OSError, ParseError):
            return None

    def put(self, key: str, graph: Graph) -> None:
        """Keep a graph; a folder that cannot be written only costs time, so it is no error."""
        text = print_graph(graph)
        try:
            data = gzip.compress(f"{text}{_CHECKSUM}{_digest(text)}\n".encode(), mtime=0)
            write_atomically(self._path(key), data)
            told(f"graph of {graph.name} ({graph.workload}): kept in the cache, {self._path(key)}")
        except OSError:
            return

    def _path(self, key: str) -> Path:
        return self.folder / "graphs" / f"{key}.graph.gz"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
