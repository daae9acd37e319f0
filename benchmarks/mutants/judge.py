"""Whether tests notice a mutant: each is put into a fork of a process that has imported and collected everything.

Functions get the mutant's code wherever they are already held. What ran on import cannot be changed any more: such a
mutant goes into a fork of a process that has not yet imported the package.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from time import process_time
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from .changes import Mutant, mutated
from .probes import Probes, Sources, install
from .selection import Record, Seen, chosen, statements_of

_SURVIVED, _KILLED = 0, 1
# How much longer than its CPU time a fork may take on a busy machine.
_WALL_FACTOR = 20


class Verdict(Enum):
    """What became of a mutant; that no test runs its statement is a way to survive."""

    KILLED = "killed"
    TOO_LONG = "took too long"
    SURVIVED = "survived"
    UNSEEN = "run by no test"


@dataclass(frozen=True, slots=True)
class Court:
    """What the judging of a mutant needs.

    Attributes:
        root: the checkout.
        paths: folders and files of tests.
        probes: statements with probes.
        record: which test runs which.
        budget_s: CPU time that the tests chosen for one mutant took when they were recorded.
        slowest_s: CPU time of a single test from which on it is not chosen.
    """

    root: Path
    paths: tuple[str, ...]
    probes: Probes
    record: Record
    budget_s: float
    slowest_s: float

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice a mutant."""
        tests = {name: seen for name, seen in self.record.tests.items() if seen.seconds <= self.slowest_s}
        return chosen(tests, statements_of(mutant, self.probes, self.root), self.budget_s)

    def limit_s(self, tests: Sequence[str]) -> int:
        """Return the CPU time after which these tests are taken to hang."""
        return 20 + 5 * int(sum(self.record.tests[name].seconds for name in tests))


def forked(work: Callable[[], int], limit_s: int) -> Verdict:
    """Run something in a fork of this process that prints nothing and ends after a while."""
    child = os.fork()
    if not child:
        with suppress(BaseException):
            _quiet()
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(limit_s * _WALL_FACTOR)
            os._exit(work())
        os._exit(_KILLED)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Verdict.TOO_LONG
    return Verdict.SURVIVED if os.WEXITSTATUS(status) == _SURVIVED else Verdict.KILLED


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


class Warm:
    """A pytest plugin that judges mutants in place of running the tests."""

    def __init__(self, court: Court, mutants: Sequence[Mutant], found: Callable[[Mutant, Verdict, int], None]) -> None:
        self.court, self.mutants, self.found = court, mutants, found
        self.left = list[Mutant]()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record what is not yet recorded, then judge."""
        probes, record = self.court.probes, self.court.record
        at_import = probes.taken()
        items = {item.nodeid: item for item in session.items}
        new = [item for name, item in items.items() if name not in record.tests]
        if new:
            forked(lambda: self._recorded(new), 36000)
            record.read()
        record.tests = {name: seen for name, seen in record.tests.items() if name in items}
        functions = _functions(probes.files)
        for mutant in self.mutants:
            if not mutant.function or any(at_import >> k & 1 for k in statements_of(mutant, probes, self.court.root)):
                self.left.append(mutant)
                continue
            tests = self.court.tests_for(mutant)
            ordered = [items[name] for name in tests]
            verdict = forked(partial(self._judged, mutant, ordered, functions), self.court.limit_s(tests))
            self.found(mutant, verdict if tests else Verdict.UNSEEN, len(tests))
        return True

    def _recorded(self, items: Sequence[pytest.Item]) -> int:
        """Run tests one by one and write down what each ran; one that fails by itself is of no use."""
        for item, after in zip(items, [*items[1:], None], strict=True):
            self.court.probes.taken()
            start = process_time()
            reports = runtestprotocol(item, log=False, nextitem=after)
            seconds = process_time() - start
            if all(report.outcome == "passed" for report in reports):
                self.court.record.add(item.nodeid, Seen(seconds, self.court.probes.taken()))
        return _SURVIVED

    def _judged(
        self, mutant: Mutant, items: Sequence[pytest.Item], functions: Mapping[Place, list[FunctionType]]
    ) -> int:
        """Put a mutant in and run tests up to the first that fails."""
        file = str(self.court.root / mutant.file)
        tree = mutated(Path(file).read_text("utf-8"), mutant)
        for place, code in _codes(compile(tree, file, "exec", dont_inherit=True)):
            for function in functions.get((file, *place), ()):
                function.__code__ = code
        for item, after in zip(items, [*items[1:], None], strict=True):
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
                return _KILLED
        return _SURVIVED


Place = tuple[str, int, str]


def _functions(files: set[str]) -> dict[Place, list[FunctionType]]:
    """All functions there are of some files, under decorators as well, by where they stand."""
    found: dict[Place, list[FunctionType]] = {}
    for held in gc.get_objects():
        # Asked of the type itself: proxies of other packages do work, or warn, when `isinstance` looks at them.
        if type(held) is FunctionType and held.__code__.co_filename in files:
            code = held.__code__
            found.setdefault((code.co_filename, code.co_firstlineno, code.co_qualname), []).append(held)
    return found


def _codes(code: CodeType) -> Iterator[tuple[tuple[int, str], CodeType]]:
    """Code of all functions of a module; not of small functions without a name, of which a line may hold several."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if not inner.co_name.startswith("<"):
                yield (inner.co_firstlineno, inner.co_qualname), inner
            yield from _codes(inner)


def judged_cold(court: Court, mutant: Mutant) -> tuple[Verdict, int]:
    """Judge a mutant of what runs on import, in a fork that imports everything anew."""
    tests = court.tests_for(mutant)
    file = str(court.root / mutant.file)
    tree = mutated(Path(file).read_text("utf-8"), mutant)

    def work() -> int:
        install(Sources({file: tree}))
        return _SURVIVED if pytest.main([*tests, "-x", "-q", *PLAIN]) == 0 else _KILLED

    return (forked(work, 30 + court.limit_s(tests)) if tests else Verdict.UNSEEN), len(tests)


# Neither other processes nor anything kept from run to run.
PLAIN = ("-p", "no:cacheprovider", "-p", "no:xdist")
