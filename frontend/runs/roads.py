"""From open sizes to numbers: a recording with open sizes where the code allows it, else one at a length.

1. Sizes stay open. The graph holds wherever the conditions hold that were met on the way; where they do not hold for
   the lengths that are wanted, the module is recorded again with these as examples.
2. Where the code makes a size a plain number (`int(s)`, a loop over positions, a parameter of one length), the size is
   that number: the one that the code names, else the one that is wanted, else that of the example. A note says so, with
   the line of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from ...ir.errors import TraceError, VerifyError
from ...ir.graph import Graph, LengthBound
from ...ir.records import dataclass
from ..example_inputs import ExampleSizes
from ..record.adapter import FakeWorld
from ..record.failures import asks_data, user_line
from ..workloads import HINTS
from .guards import SizeGuard

_UNKNOWN = "unknown line"


@dataclass
class Attempt:
    """One recording: its sizes, the worlds it ran in, and the graph or the error that it ended in."""

    sizes: ExampleSizes
    worlds: list[FakeWorld] = field(default_factory=list)
    graph: Graph | None = None
    error: TraceError | VerifyError | None = None

    def enter(self, world: FakeWorld) -> None:
        """Let a world have the sizes of this attempt."""
        world.hints, world.numbers = self.sizes.hints, self.sizes.fixed
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
        at = {**self.sizes.hints, **{n: v for n, v in wanted.items() if n != "batch" or v > 1}}
        return next((c for c in self.met if not c.holds(at)), None)


Record = Callable[[Attempt], Graph]


@dataclass(frozen=True, slots=True)
class WantedSizes:
    """The names of open sizes, the plan's lengths where one is known, those of examples, and what the user has fixed.

    `guessed` says that nobody named the open dims, so that a dim of one size need not be a batch or a length at all;
    `settable` that a user may fix sizes.
    """

    names: frozenset[str]
    plan: Mapping[str, int]
    examples: Mapping[str, int]
    fixed: Mapping[str, int]
    guessed: bool = False
    settable: bool = True

    @property
    def lengths(self) -> Mapping[str, int]:
        """The lengths that a graph must hold for: those of the plan, else those of the examples."""
        found = {**self.examples, **self.plan}
        return {name: size for name, size in found.items() if name in self.names and name not in self.fixed}


def along_roads(record: Record, wanted: WantedSizes) -> Graph:
    """Record a module by the first road that leads to a graph; the error of the first one where none does.

    Where a module cannot run at the lengths that are wanted, the graph is that of those at which it can, and says so.
    """
    first = _tried(record, ExampleSizes(dict(HINTS), dict(wanted.fixed)))
    if first.graph is not None:
        broken = first.broken(wanted.lengths)
        if broken is None:
            return _finished(first, wanted)
        second = _tried(record, ExampleSizes(_hints(wanted.lengths), dict(wanted.fixed)))
        if second.graph is not None:
            at = ", ".join(f"{n}={wanted.lengths[n]}" for n in broken.sizes if n in wanted.lengths)
            place = f" at {broken.place}" if broken.place else ""
            return _finished(second, wanted, f"recorded for {at}: what the code does{place} depends on that length")
        return _fixed(record, second, wanted, named=False) or _finished(first, wanted)
    assert first.error is not None
    if asks_data(first.error):
        raise first.error
    failed = first
    if _hints(wanted.lengths) != HINTS:
        longer = _tried(record, ExampleSizes(_hints(wanted.lengths), dict(wanted.fixed)))
        if longer.graph is not None:  # as where strided convolutions leave nothing of a short example
            return _finished(longer, wanted)
        tells = longer.made_numbers and not first.made_numbers and not any(c.wanted() for c in first.met)
        failed = longer if tells else first
    third = _fixed(record, failed, wanted, named=True)
    if third is None:
        raise first.error
    return third


def _tried(record: Record, sizes: ExampleSizes) -> Attempt:
    attempt = Attempt(sizes)
    try:
        attempt.graph = record(attempt)
    except (TraceError, VerifyError) as error:  # the latter where a size of one was taken for one that is spread
        attempt.error = error
    return attempt


def _hints(plan: Mapping[str, int]) -> dict[str, int]:
    """The plan's lengths as examples, where they are no two alike: torch takes equal sizes for one."""
    found = dict(HINTS)
    for name, size in plan.items():
        if size > 1 and size not in [v for n, v in found.items() if n != name]:
            found[name] = size
    return found


def _finished(attempt: Attempt, wanted: WantedSizes, note: str = "") -> Graph:
    """Give a graph with open sizes the lengths that it holds for."""
    assert attempt.graph is not None
    found = attempt.worlds[-1].bounds() if attempt.worlds else ()
    told = _bounds_of_fixed(wanted.fixed)
    notes = tuple(n for n in (note, *(f"{n} is fixed at {s}, as asked for" for n, s in wanted.fixed.items())) if n)
    return replace(attempt.graph, bounds=(*told, *found), notes=(*attempt.graph.notes, *notes))


def _bounds_of_fixed(fixed: Mapping[str, int], where: str = "") -> tuple[LengthBound, ...]:
    return tuple(LengthBound(name, size, size, where=where) for name, size in fixed.items())


def _fixed(record: Record, failed: Attempt, wanted: WantedSizes, named: bool) -> Graph | None:
    """Record with numbers for the sizes that could not stay open; None when that fails, too.

    Without `named` numbers that the code names are left alone: it runs at others.
    """
    for choice, where, is_codes in _choices(failed, wanted):
        if is_codes and not named:
            continue
        sizes = ExampleSizes(dict(failed.sizes.hints), {**wanted.fixed, **choice})
        attempt = _tried(record, sizes)
        if attempt.graph is None:
            continue
        is_bound = not (is_codes and wanted.guessed and all(wanted.examples.get(n) == s for n, s in choice.items()))
        graph = _finished(attempt, wanted)
        told = _bounds_of_fixed(choice, where) if is_bound else ()
        note = _told(choice, where, is_codes, wanted.settable)
        return replace(graph, bounds=(*told, *graph.bounds), notes=(*graph.notes, note))
    return None


def _choices(failed: Attempt, wanted: WantedSizes) -> Sequence[tuple[dict[str, int], str, bool]]:
    """Numbers to try, the line that asks for them, and whether the code itself names them."""
    met, error = failed.met, failed.error
    line = user_line(error.__cause__ or error) if error is not None else ""
    asked_for = [(c.place, found) for c in reversed(met) if (found := c.wanted()) is not None]
    named = [({name: size}, place if line == _UNKNOWN else line, True) for place, (name, size) in asked_for]
    # Of each size the first line that makes it a number, else the first one that asks anything of it.
    places = {n: c.place for last in (False, True) for c in reversed(met) if c.is_number is last for n in c.sizes}
    first = failed.made_numbers or tuple(n for n in ("seq", "kv") if n in wanted.names)
    asked = [first, tuple(n for n in ("batch", *first) if n in wanted.names)]
    numbers = [{n: s for n in names if (s := wanted.lengths.get(n)) is not None} for names in asked]
    place = places.get(first[0], "") if first else ""
    kept = [(n, place or (line if line != _UNKNOWN else ""), False) for n in numbers if n]
    return [*named[:1], *(k for i, k in enumerate(kept) if k[0] not in [o[0] for o in kept[:i]])]


def _told(choice: Mapping[str, int], where: str, is_codes: bool, settable: bool) -> str:
    sizes = " and ".join(f"{n} is fixed at {s}" for n, s in choice.items())
    place = where or "its code"
    if is_codes:
        return f"{sizes}: {place} works at that size alone"
    said = f"{sizes}: {place} makes it a plain number, so this graph is of that size alone"
    return f"{said} (--fixed sets another)" if settable else said
