"""The threads of one process: streams by name, numbered in a fixed order, their slices one behind the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....ir.records import dataclass
from ..nodes import COMPUTE, COPY_DOWN, COPY_UP, HOST
from .events import complete, nanoseconds, thread

TASKS, SENDS, PHASES = "tasks", "pp send", "phases"
ONCE = " (once a step)"
_AXES = ("tp", "cp", "ep", "fsdp", "dp", "pp")
_ALONE = (*_AXES, COPY_DOWN, COPY_UP, HOST)
_ORDER = (PHASES, TASKS, COMPUTE, *_AXES, COPY_DOWN, COPY_UP, HOST, *(name + ONCE for name in _ALONE), SENDS)


def received_from(stage: int) -> str:
    """Return the stream on which what a stage sends arrives."""
    return f"pp from stage {stage}"


def number_of(stream: str) -> int:
    """Return the number of a stream's thread; viewers show threads in this order, those that receive last.

    >>> number_of("compute") < number_of("tp") < number_of("pp send") < number_of("pp from stage 3")
    True
    """
    if stream in _ORDER:
        return 1 + _ORDER.index(stream)
    return 1 + len(_ORDER) + int(stream.rpartition(" ")[2])


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice to write; `args` are members of a JSON object."""

    name: str
    category: str
    start_s: float
    end_s: float
    args: str = ""


class Tracks:
    """The threads of a process while its slices are written."""

    def __init__(self, pid: int) -> None:
        """Begin with no thread."""
        self.pid = pid
        self._free: dict[str, int] = {}

    def add(self, stream: str, piece: Slice, inside: Sequence[Slice] = ()) -> Iterator[str]:
        """Yield a slice behind all before it on its stream, and slices inside it; nothing of a slice without length."""
        number = number_of(stream)
        if stream not in self._free:
            yield from thread(self.pid, number, stream)
        start = max(nanoseconds(piece.start_s), self._free.get(stream, 0))
        end = max(nanoseconds(piece.end_s), start)
        self._free[stream] = end
        yield from self._one(number, piece, start, end)
        for part in inside:
            first = min(max(nanoseconds(part.start_s), start), end)
            start = min(max(nanoseconds(part.end_s), first), end)
            yield from self._one(number, part, first, start)

    def _one(self, number: int, piece: Slice, start_ns: int, end_ns: int) -> Iterator[str]:
        if end_ns > start_ns:
            yield complete(self.pid, number, piece.name, piece.category, start_ns, end_ns, piece.args)
