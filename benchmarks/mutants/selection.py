"""Which tests may notice a mutant: those that run its statement, cheap and particular ones first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .changes import Mutant
from .probes import Probes


@dataclass(frozen=True, slots=True)
class Seen:
    """A test that was run once: CPU seconds that it took, and the statements that it ran, one bit each."""

    seconds: float
    statements: int


class Record:
    """What tests ran: one line a test in a file, kept from run to run; good for one state of product and tests."""

    def __init__(self, path: Path, root: Path, probes: Probes) -> None:
        self.path, self.root = path, root
        self.product = _digest(tuple(sorted(probes.files)))
        self.tests: dict[str, Seen] = {}
        self.read()

    def read(self) -> None:
        """Take in what is still true."""
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            name, product, tests, seconds, bits = json.loads(line)
            if (product, tests) == (self.product, self._file(name)):
                self.tests[name] = Seen(seconds, int(bits, 16))

    def add(self, name: str, seen: Seen) -> None:
        """Keep one test more."""
        line = json.dumps([name, self.product, self._file(name), round(seen.seconds, 4), f"{seen.statements:x}"])
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def _file(self, name: str) -> str:
        return _digest((str(self.root / file_of(name)),))


@cache
def _digest(files: tuple[str, ...]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(Path(file).read_bytes() if Path(file).exists() else b"-")
    return found.hexdigest()[:16]


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def chosen(tests: Mapping[str, Seen], statements: Iterable[int], budget_s: float) -> list[str]:
    """Return tests that run one of some statements, cheap and particular ones first, for so much CPU time in all."""
    mask = sum(1 << k for k in set(statements))
    able = [
        (seen.seconds + seen.statements.bit_count() * 1e-5, name)
        for name, seen in tests.items()
        if seen.statements & mask
    ]
    found, spent = list[str](), 0.0
    for _, name in sorted(able):
        if spent + tests[name].seconds <= budget_s:
            found.append(name)
            spent += tests[name].seconds
    return found


def statements_of(mutant: Mutant, probes: Probes, root: Path) -> list[int]:
    """Return the statement of a mutant in a function; of one that runs on import, all of its file."""
    file = str(root / mutant.file)
    if mutant.function:
        return [probes.number[file, mutant.line]] if (file, mutant.line) in probes.number else []
    return [k for (name, _), k in probes.number.items() if name == file]
