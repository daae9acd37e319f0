"""A sweep over many models, one after another: results kept one a line, and a page when all are there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Generic, Protocol, TypeVar

from .coverage.case import model_types
from .workers import Failed, Measure, measure_all

ROOT = Path(__file__).resolve().parents[1]


class Kept(Protocol):
    """What is found of a model type, kept as a line of JSON."""

    @property
    def model_type(self) -> str:
        """The type as transformers calls it."""
        ...

    def to_json(self) -> str:
        """Return the line."""
        ...


Row = TypeVar("Row", bound=Kept)


@dataclass(frozen=True)
class Sweep(Generic[Row]):
    """What is measured of a type, how it is kept and what is written of it.

    Attributes:
        name: of the module that is run, and of the file of results.
        doc: what its help says.
        page: where the page goes, relative to the checkout.
        timeout_s: how long a type may take unless the caller says otherwise.
        measure: a type to its rows.
        failed: a type and why it failed to its rows.
        from_json: a line to a row.
        text: the rows of all types, in order, to the page.
        line: the rows of one type to what is said while the sweep runs.
        names: everything that there is to measure, in order.
        missing: packages that are not installed, of which nothing is measured.
    """

    name: str
    doc: str
    page: str
    timeout_s: float
    measure: Measure[Row]
    failed: Failed[Row]
    from_json: Callable[[str], Row]
    text: Callable[[list[Row]], str]
    line: Callable[[list[Row]], str]
    names: Callable[[], Sequence[str]] = model_types
    missing: Callable[[], Sequence[str]] = tuple

    def main(self, words: Sequence[str] | None = None) -> None:
        """Measure what is asked for, keep the results, and write the page when all types have one."""
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}", description=self.doc)
        parser.add_argument("only", nargs="*", metavar="TYPE", help="model types to measure again (default: all)")
        parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
        parser.add_argument(
            "--timeout", type=float, default=self.timeout_s, metavar="S", help="seconds a type (default %(default)g)"
        )
        parser.add_argument("--resume", action="store_true", help="keep results of the last run")
        kept, page = ROOT / f"results/{self.name}.jsonl", ROOT / self.page
        parser.add_argument("--results", type=Path, default=kept, metavar="FILE", help="where results are kept")
        parser.add_argument("--page", type=Path, default=page, metavar="FILE", help=f"page (default {self.page})")
        given = parser.parse_args(words)
        found = self._read(given.results) if given.resume or given.only else {}
        wanted = given.only or [name for name in self.names() if name not in found]
        found |= self._measured(wanted, given.jobs, given.timeout, given.results, found)
        missing = [name for name in self.names() if name not in found]
        if missing:
            print(f"no page: {len(missing)} types have no result; run with --resume", file=sys.stderr)
            return
        text = self.text([row for name in self.names() for row in found[name]])
        absent = f"\nNot installed, and so not measured: {', '.join(self.missing())}.\n" if self.missing() else ""
        given.page.write_text(f"{text}{absent}", encoding="utf-8")
        print(f"{absent.strip()}\nwrote {given.page}".strip(), file=sys.stderr)

    def _read(self, path: Path) -> dict[str, list[Row]]:
        """Results of the last run; of a type that was measured again, the last ones."""
        found: dict[str, list[Row]] = {}
        last = ""
        for row in map(self.from_json, path.read_text(encoding="utf-8").splitlines() if path.exists() else ()):
            found[row.model_type] = [*(found[row.model_type] if row.model_type == last else []), row]
            last = row.model_type
        return found

    def _measured(
        self, wanted: Sequence[str], jobs: int, timeout_s: float, path: Path, known: dict[str, list[Row]]
    ) -> dict[str, list[Row]]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(_lines(row for rows in known.values() for row in rows)), encoding="utf-8")
        start, found = perf_counter(), dict[str, list[Row]]()
        with path.open("a", encoding="utf-8") as file:
            for rows in measure_all(wanted, jobs, self.measure, self.failed, timeout_s):
                file.write("".join(_lines(rows)))
                file.flush()
                found[rows[0].model_type] = rows
                told = f"{len(found)}/{len(wanted)} {perf_counter() - start:.0f} s"
                print(f"{told}  {rows[0].model_type}: {self.line(rows)}", file=sys.stderr, flush=True)
        return found


def _lines(rows: Sequence[Row] | Iterator[Row]) -> Iterator[str]:
    return (f"{row.to_json()}\n" for row in rows)
