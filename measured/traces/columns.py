"""What is kept of the events of a trace, as columns: some fifty bytes an event, so that millions of them fit."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import field

import numpy as np

from ...ir.errors import NotUnderstoodError
from ...ir.records import dataclass

_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_OPS = frozenset({"cpu_op", "operator"})
STEP = "ProfilerStep#"
# Optimizers of PyTorch set a mark around their steps, which runs nothing of its own.
OPTIMIZER = "Optimizer."
_UPDATE = "Optimizer.step#"
# Of an operator over lists of tensors, as optimizers call them, shapes would take kilobytes each.
_MOST_INPUTS = 24
# A float counts whole microseconds so far, and nothing that is profiled runs for a year.
_LAST_US, _LONGEST_US = 2.0**53, 365 * 86400e6
# What is kept of a collective, in this order.
_MESSAGE = ("Collective name", "Group size", "dtype", "In msg nelems", "Out msg nelems", "Process Group Description")


class TextTable:
    """Texts by number: millions of events have a few hundred names and shapes."""

    def __init__(self) -> None:
        """Know the empty text alone, as 0."""
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """Return the number of a text; what is new gets the next one."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, by their numbers."""
        return tuple(self._numbers)


def _ints() -> array[int]:
    return array("q")


def _floats() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Events:
    """Columns of events of one kind; a column that a kind does not have stays empty.

    `place` is the thread, or the stream of a kernel; `word` what an operator reads or a collective sends; `link` the
    number by which a kernel and its launch know one another, `external` that by which a kernel knows its operator.
    """

    name: array[int] = field(default_factory=_ints)
    place: array[int] = field(default_factory=_ints)
    start_us: array[float] = field(default_factory=_floats)
    time_us: array[float] = field(default_factory=_floats)
    word: array[int] = field(default_factory=_ints)
    link: array[int] = field(default_factory=_ints)
    external: array[int] = field(default_factory=_ints)


@dataclass(slots=True)
class KeptEvents:
    """The events of a file: kernels, operators with the marks of optimizers, launches, and the steps that are marked.

    `updates` are the marks of optimizers' steps alone. A kernel that copies has a name that begins with a line break,
    which no kernel's own does.
    """

    kernels: Events = field(default_factory=Events)
    ops: Events = field(default_factory=Events)
    launches: Events = field(default_factory=Events)
    steps: list[tuple[str, float, float]] = field(default_factory=list)
    updates: list[tuple[str, float, float]] = field(default_factory=list)
    names: TextTable = field(default_factory=TextTable)
    words: TextTable = field(default_factory=TextTable)
    places: TextTable = field(default_factory=TextTable)

    def keep(self, event: Mapping[str, object]) -> None:
        """Take what is used of an event; most of a file goes by."""
        category = str(event.get("cat", "")).lower()
        name, given = str(event.get("name", "")), event.get("args")
        args = given if isinstance(given, dict) else {}
        if category in _OPS:
            self._row(self.ops, event, name, self._thread(event), _inputs(args))
            self.ops.external.append(_id(args, "External id", "external id"))
        elif category in _KERNELS:
            whole = name if category == "kernel" else f"\n{name}"
            sends = "Collective name" in args or "In msg nelems" in args
            message = "|".join(str(args.get(key, "")).replace("|", " ") for key in _MESSAGE) if sends else ""
            self._row(self.kernels, event, whole, str(args.get("stream", "")), message)
            self.kernels.link.append(_id(args, "correlation"))
            self.kernels.external.append(_id(args, "External id", "external id"))
        elif category.endswith(("runtime", "driver")):
            if (link := _id(args, "correlation")) >= 0:
                self._row(self.launches, event, "", self._thread(event), "")
                self.launches.link.append(link)
        elif category != "gpu_user_annotation" and name.startswith(STEP):
            self.steps.append((name, number_of(event.get("ts")), number_of(event.get("dur"))))
        elif category == "user_annotation" and name.startswith(OPTIMIZER):
            self._row(self.ops, event, name, self._thread(event), "")
            self.ops.external.append(-1)
            if name.startswith(_UPDATE):
                self.updates.append((name, number_of(event.get("ts")), number_of(event.get("dur"))))

    def check_times(self, origin: str) -> None:
        """Refuse times that no run has; NotUnderstoodError with the first."""
        for times, least, most in self._times():
            values = np.asarray(times)
            for value in values[~((values >= least) & (values <= most))][:1].tolist():
                raise NotUnderstoodError(
                    f"{origin}: an event has a time of {value:g} us: a start is at most {_LAST_US:.3g} us from zero, a "
                    f"duration from 0 to {_LONGEST_US:.3g} us, which is a year"
                )

    def _times(self) -> Iterator[tuple[array[float], float, float]]:
        """Yield columns of times, each with the least and the most that it may hold."""
        marks = [*self.steps, *self.updates]
        starts, lasting = array("d", [mark[1] for mark in marks]), array("d", [mark[2] for mark in marks])
        columns = [(events.start_us, events.time_us) for events in (self.kernels, self.ops, self.launches)]
        for start_us, time_us in (*columns, (starts, lasting)):
            yield start_us, -_LAST_US, _LAST_US
            yield time_us, 0.0, _LONGEST_US

    def _row(self, events: Events, event: Mapping[str, object], name: str, place: str, word: str) -> None:
        events.name.append(self.names.number(name))
        events.place.append(self.places.number(place))
        events.start_us.append(number_of(event.get("ts")))
        events.time_us.append(number_of(event.get("dur")))
        events.word.append(self.words.number(word))

    def _thread(self, event: Mapping[str, object]) -> str:
        return f"{event.get('pid')} {event.get('tid')}"


def number_of(value: object) -> float:
    """Return a number, 0 for anything else; some traces write numbers as text.

    >>> number_of("2.5"), number_of(True), number_of("nan"), number_of(10**400)
    (2.5, 0.0, nan, inf)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        return float(value)
    except ValueError:
        return 0.0
    except OverflowError:
        return float("inf")


def _id(args: Mapping[str, object], *names: str) -> int:
    # What 64 bits do not hold is no number of an event.
    found = next((one for name in names if isinstance(one := args.get(name), int)), -1)
    return found if abs(found) < 2**63 else -1


def _inputs(args: Mapping[str, object]) -> str:
    """The shapes of an operator's inputs, as JSON has them, behind the type of the first."""
    dims, types = args.get("Input Dims", args.get("Input dims")), args.get("Input type")
    if not isinstance(dims, list) or len(dims) > _MOST_INPUTS:
        return ""
    if any(d and isinstance(d, list) and isinstance(d[0], list) for d in dims):
        return ""
    first = types[0] if isinstance(types, list) and types else ""
    return f"{first} {dims}"
