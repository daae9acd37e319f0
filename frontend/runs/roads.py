"""From open sizes to numbers: a recording with open sizes where the code allows it, else one at a length.

1. Sizes stay open. The graph holds wherever the conditions hold that were met on the way; where they do not hold for
   the lengths that are wanted, the module is recorded again with these as examples.
2. Where the code makes a size a plain number (`int(s)`, a loop over positions, a parameter of one length), the size is
   that number: the plan's, else that of the example; where nobody gave an example, the one that the code names. A note
   says so, with the line of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Self

from ...ir.errors import SlipstickError, TraceError, VerifyError
from ...ir.graph import Graph, LengthBound
from ...ir.records import dataclass
from ..record.adapter import FakeWorld
from ..record.failures import asks_data, user_line
from ..workloads import HINTS
from .guards import SizeGuard
from .model_run import ModelRun

_UNKNOWN = "unknown line"


@dataclass
class Attempt:
    """The graph or the error in which one way to record a module ended."""

    graph: Graph | None = None
    error: SlipstickError | None = None

    def record(self, record: Callable[[], Graph], *leading_on: type[SlipstickError]) -> Self:
        """Record; an error that leads on to the next way is kept, any other is raised."""
        try:
            self.graph = record()
        except leading_on as error:
            self.error = error
        return self

    def result(self) -> Graph:
        """Return the graph, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.graph is not None
        return self.graph


@dataclass
class SizedAttempt(Attempt):
    """One recording at example sizes of open dims, with numbers for others, and the worlds it ran in."""

    hints: Mapping[str, int] = field(default_factory=lambda: dict(HINTS))
    fixed: Mapping[str, int] = field(default_factory=dict)
    worlds: list[FakeWorld] = field(default_factory=list)

    def enter(self, world: FakeWorld) -> None:
        """Let a world have the sizes of this attempt."""
        world.hints, world.numbers = self.hints, self.fixed
        self.worlds.append(world)

    @property
    def met(self) -> tuple[SizeGuard, ...]:
        """The conditions that were met in the last world."""
        return self.worlds[-1].conditions() if self.worlds else ()

    @property
    def made_numbers(self) -> tuple[str, ...]:
        """The sizes that became numbers."""
        return tuple(self.worlds[-1].fixed()) if self.worlds else ()

    def broken(self, wanted: Mapping[str, int]) -> SizeGuard | None:
        """The first condition that does not hold for the lengths that are wanted."""
        at = {**self.hints, **{n: v for n, v in wanted.items() if n != "batch" or v > 1}}
        return next((c for c in self.met if not c.holds(at)), None)


@dataclass(frozen=True, slots=True)
class SizeSearch:
    """The ways to record a run of a module, from open sizes to numbers.

    `recorded` records at the sizes of an attempt. `names` are those of open dims, `plan` the plan's lengths where one
    is known, `examples` those of examples; `settable` says that a user may fix sizes.
    """

    run: ModelRun
    recorded: Callable[[SizedAttempt], Graph]
    names: Collection[str]
    plan: Mapping[str, int]
    examples: Mapping[str, int]
    settable: bool = True

    def find(self) -> Attempt:
        """Record in the first way that leads to a graph; the error is that of open sizes where none does.

        Where a module cannot run at the lengths that are wanted, the graph is that of those at which it can, and says
        so.
        """
        first = self._attempt(HINTS, {})
        if first.error is not None and asks_data(first.error):
            return first
        ways: list[Callable[[], Graph | None]] = [partial(self._record_at, first, at) for at in self._choices()]
        ways.append(partial(self._finish, first) if first.graph is not None else partial(self._record_named, first))
        graph = next((graph for way in ways if (graph := way()) is not None), None)
        return first if graph is None else Attempt(graph)

    def _choices(self) -> Sequence[Mapping[str, int]]:
        """The lengths that a graph must hold for, those wanted most first: the plan's, then the examples'."""
        both = ({**self.examples, **self.plan}, self.examples)
        open_ = [{n: v for n, v in sizes.items() if n in self.names and n not in self.run.fixed} for sizes in both]
        return open_ if self.examples and open_[0] != open_[1] else open_[:1]

    def _attempt(self, hints: Mapping[str, int], numbers: Mapping[str, int]) -> SizedAttempt:
        attempt = SizedAttempt(hints=dict(hints), fixed={**self.run.fixed, **numbers})
        # The latter where a size of one was taken for one that is spread.
        return attempt.record(partial(self.recorded, attempt), TraceError, VerifyError)

    def _record_at(self, first: SizedAttempt, lengths: Mapping[str, int]) -> Graph | None:
        """Return a graph that holds at these lengths: with open sizes, recorded there, or with numbers."""
        broken = first.broken(lengths) if first.graph is not None else None
        if first.graph is not None and broken is None:
            return self._finish(first)
        failed, hints = first, _hints(lengths)
        if hints != HINTS:
            second = self._attempt(hints, {})
            if second.graph is not None and second.broken(lengths) is None:
                return self._finish(second, _note_of(broken, lengths))
            # Strided convolutions leave nothing of a short example: what a longer one makes a number says more.
            tells = second.made_numbers and not first.made_numbers and not any(c.wanted() for c in first.met)
            failed = second if first.graph is not None or tells else first
        return self._record_fixed(failed, self._numbers(failed, lengths))

    def _record_named(self, failed: SizedAttempt) -> Graph | None:
        """Record at the one size that the code names, where nobody gave an example of another."""
        choice, where = _named(failed)
        if any(self.examples.get(name, size) != size for name, size in choice.items()):
            return None
        return self._record_fixed(failed, [(choice, where)] if choice else [])

    def _record_fixed(self, failed: SizedAttempt, choices: Sequence[tuple[Mapping[str, int], str]]) -> Graph | None:
        """Record with numbers for sizes that could not stay open, each with the line that asks; None where all fail."""
        # Nobody named the open dims, so that a dim of one size need not be a batch or a length at all.
        is_guessed = self.run.inputs is not None and self.run.dynamic is None
        for choice, where in choices:
            attempt = self._attempt(failed.hints, choice)
            if attempt.graph is None:
                continue
            is_codes = choice == _named(failed)[0]
            is_bound = not (is_codes and is_guessed and all(self.examples.get(n) == s for n, s in choice.items()))
            graph = self._finish(attempt)
            bounds = _bounds_of_fixed(choice, where) if is_bound else ()
            note = _told(choice, where, is_codes, self.settable)
            return replace(graph, bounds=(*bounds, *graph.bounds), notes=(*graph.notes, note))
        return None

    def _finish(self, attempt: SizedAttempt, note: str = "") -> Graph:
        """Give a graph with open sizes the lengths that it holds for."""
        fixed = self.run.fixed
        found = attempt.worlds[-1].bounds() if attempt.worlds else ()
        notes = tuple(n for n in (note, *(f"{n} is fixed at {s}, as asked for" for n, s in fixed.items())) if n)
        graph = attempt.result()
        return replace(graph, bounds=(*_bounds_of_fixed(fixed), *found), notes=(*graph.notes, *notes))

    def _numbers(self, failed: SizedAttempt, lengths: Mapping[str, int]) -> Sequence[tuple[Mapping[str, int], str]]:
        """Sizes to make numbers of, fewest first, and the line that asks for it."""
        met, error = failed.met, failed.error
        line = user_line(error.__cause__ or error) if error is not None else ""
        # Of each size the first line that makes it a number, else the first one that asks anything of it.
        places = {n: c.place for last in (False, True) for c in reversed(met) if c.is_number is last for n in c.sizes}
        first = failed.made_numbers or tuple(n for n in ("seq", "kv") if n in self.names)
        names = (first, tuple(n for n in ("batch", *first) if n in self.names))
        place = places.get(first[0], "") if first else ""
        where = place or (line if line != _UNKNOWN else "")
        choices = [{n: size for n in few if (size := lengths.get(n)) is not None} for few in names]
        return [(choice, where) for i, choice in enumerate(choices) if choice and choice not in choices[:i]]


def _note_of(broken: SizeGuard | None, lengths: Mapping[str, int]) -> str:
    if broken is None:
        return ""
    at = ", ".join(f"{n}={lengths[n]}" for n in broken.sizes if n in lengths)
    place = f" at {broken.place}" if broken.place else ""
    return f"recorded for {at}: what the code does{place} depends on that length"


def _hints(plan: Mapping[str, int]) -> dict[str, int]:
    """The plan's lengths as examples, where they are no two alike: torch takes equal sizes for one."""
    found = dict(HINTS)
    for name, size in plan.items():
        if size > 1 and size not in [v for n, v in found.items() if n != name]:
            found[name] = size
    return found


def _bounds_of_fixed(fixed: Mapping[str, int], where: str = "") -> tuple[LengthBound, ...]:
    return tuple(LengthBound(name, size, size, where=where) for name, size in fixed.items())


def _named(failed: SizedAttempt) -> tuple[Mapping[str, int], str]:
    """The one size at which code that failed would have gone on, and the line that asks for it; empty for any other.

    What we cannot record (a transform over an open size) names no size: the conditions in front of it are torch's own.
    """
    error = failed.error
    if error is None or not error.__cause__ or isinstance(error.__cause__, SlipstickError):
        return {}, ""
    line = user_line(error.__cause__)
    asked_for = ((c.place, size) for c in reversed(failed.met) if (size := c.wanted()) is not None)
    place, named = next(asked_for, ("", None))
    return dict([named] if named else []), place if line == _UNKNOWN else line


def _told(choice: Mapping[str, int], where: str, is_codes: bool, settable: bool) -> str:
    sizes = " and ".join(f"{n} is fixed at {s}" for n, s in choice.items())
    place = where or "its code"
    if is_codes:
        return f"{sizes}: {place} works at that size alone"
    said = f"{sizes}: {place} makes it a plain number, so this graph is of that size alone"
    return f"{said} (--fixed sets another)" if settable else said
