"""Rows of a search of servers: replicas, or workers of prompts and of answers, under so many requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...cost.money import Terms
from ...driver.serve.answer import ServeEstimate
from ...explore.best import Columns
from ...explore.goals import Goal, MetricLimit
from ...explore.machine import MachineChoice
from ...explore.servers.answers import PROMPTS, Row, answer_of, command_of
from ...explore.servers.job import ServingJob
from ...ir.records import dataclass
from ..labels import stack_label


@dataclass(frozen=True, slots=True)
class ServerRows:
    """What rows of a search of servers stand for."""

    search: ServingJob

    @property
    def machines(self) -> Sequence[MachineChoice]:
        """All machines that are searched."""
        return self.search.space.systems

    @property
    def goals(self) -> Sequence[Goal]:
        """What was searched for."""
        return self.search.goals

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """What every row keeps, besides latencies."""
        return self.search.limits

    @property
    def digest(self) -> str:
        """Of the search."""
        return self.search.digest

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Of columns whose numbers stand for words, the words."""
        return self.search.words

    @property
    def metrics(self) -> Sequence[str]:
        """Columns that are metrics."""
        return self.search.metrics

    @property
    def shown(self) -> Sequence[str]:
        """The metrics that people look at first."""
        return ("tokens_per_s_per_gpu", "tokens_per_s_per_user", "requests_per_s", "ttft_s", "tpot_s")

    @property
    def hidden(self) -> Sequence[str]:
        """Columns that say nothing outside of the search: of none."""
        return ()

    @property
    def of(self) -> str:
        """Settings and devices."""
        space = self.search.space
        first, *more = space.systems
        systems = f"{len(space.systems):,} systems" if more else first.name
        systems += f", {stack_label(' or '.join(space.engines), first.assumed)}"
        target = f" within {space.target}" if space.target else ""
        num = len(space.settings)
        return f"{num:,} kind{'' if num == 1 else 's'} of servers on {space.gpus:,} GPUs of {systems}{target}"

    @property
    def terms(self) -> Terms:
        """The ownership model of machines."""
        return self.search.space.terms

    def machine(self, rows: Columns, at: int) -> MachineChoice:
        """Return the machine of a row."""
        return self.search.space.systems[int(rows["system"][at])]

    def label(self, rows: Columns, at: int) -> str:
        """Return a row's server as people write it: replicas, or prefill and decode workers, and their load."""
        row = _row(rows, at)
        own, load = _shape(row), f"concurrency {row['concurrency']:g}"
        if not row["apart"]:
            return f"{own}, {load}"
        return f"prefill {_shape(row, PROMPTS)} batch {int(row['prefill_batch'])}, decode {own}, {load}"

    def others(self, rows: Columns, at: int) -> Mapping[str, str]:
        """Return the words that are varied, and the GPUs."""
        words = {name: found[int(rows[name][at])] for name, found in self.words.items() if len(found) > 1}
        words.pop("apart", None)
        return words | {"GPUs": f"{int(rows['gpus'][at])}"}

    def answer(self, rows: Columns, at: int) -> ServeEstimate:
        """Return the whole answer of a row."""
        return answer_of(self.search, _row(rows, at))

    def warnings(self, rows: Columns, at: int) -> Sequence[str]:
        """Return nothing: units of servers are those that their engine runs."""
        return ()

    def command(self, rows: Columns, at: int) -> str:
        """Return the command line that estimates a row."""
        return command_of(self.search, _row(rows, at))


def _row(rows: Columns, at: int) -> Row:
    return {name: float(column[at]) for name, column in rows.items()}


def _shape(row: Row, of: str = "") -> str:
    """Workers and their degrees, as `2 x tp4`."""
    degrees = [("tp", row[f"{of}tp"]), ("pp", row[f"{of}pp"]), ("cp", row["cp"]), ("ep", row["ep"])]
    words = [f"{name}{int(degree)}" for name, degree in degrees if degree > 1 or name == "tp"]
    return f"{int(row[f'{of}dp'])} x {' '.join(words)}"
