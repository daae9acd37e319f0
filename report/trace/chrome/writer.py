"""A trace to a file, event by event: memory stays small however long the trace is."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO, cast

from ....ir.text.files import replacing

# Told: processes written, processes in all, events written.
Progress = Callable[[int, int, int], None]


class Traced(Protocol):
    """What can be written: events process by process, and what is said of the whole."""

    @property
    def num_processes(self) -> int:
        """How many processes there are."""
        ...

    def processes(self) -> Iterator[Iterator[str]]:
        """Yield the events of one process after the other."""
        ...

    def about(self) -> Mapping[str, object]:
        """Say what the trace is of."""
        ...


def write_trace(trace: Traced, path: Path, progress: Progress | None = None) -> int:
    """Write a trace, gzipped when the name ends in .gz; the file is complete or not there at all. Return its events."""
    with replacing(path) as out:
        if path.suffix != ".gz":
            with _text(out) as text:
                return print_trace(trace, text, progress)
        # No name and no time inside: the same trace has the same bytes.
        with gzip.GzipFile("", "wb", 6, out, mtime=0) as packed, _text(cast(BinaryIO, packed)) as text:
            return print_trace(trace, text, progress)


def print_trace(trace: Traced, out: TextIO, progress: Progress | None = None) -> int:
    """Print a trace as one JSON object, an event a line; return the number of events."""
    num, whole = 0, trace.num_processes
    out.write('{"displayTimeUnit":"ms","traceEvents":[')
    for done, events in enumerate(trace.processes(), 1):
        for event in events:
            out.write(f",\n{event}" if num else f"\n{event}")
            num += 1
        if progress is not None:
            progress(done, whole, num)
    out.write(f'\n],"otherData":{json.dumps(trace.about())}}}\n')
    return num


@contextmanager
def _text(out: BinaryIO) -> Iterator[TextIO]:
    """Text over bytes that stay open when it is done."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="\n")
    try:
        yield text
    finally:
        text.detach()
