"""A plan that does not fit: what it lacks, and the changes that fit, in the words of the launch it came from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..driver.estimate import Estimate
from ..driver.remedies import ENOUGH, Remedy, find_remedies
from ..frameworks.export import ExportSubject
from ..frameworks.runs import not_run, words_in
from ..ir.plan import PlanTable
from ..ir.records import dataclass
from ..ir.sizes.points import Points
from ..ir.units import format_bytes, format_time

if TYPE_CHECKING:
    from ..driver.estimate import Lowered
    from ..ir.plan import Plan, PlanWords


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a plan came from: its words as they were said, and the launch of a framework that says it, if one does."""

    asked: PlanWords | None = None
    framework: str | None = None
    subject: ExportSubject | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """A change with which a plan fits, in words; None for the time of one that comes nearest and does not fit."""

    change: str
    step_time_s: float | None
    peak_mem_bytes: float
    plan: Plan

    @property
    def record(self) -> Mapping[str, str | float | None]:
        """The change and what a plan takes with it, as JSON has them."""
        return {"change": self.change, "step_time_s": self.step_time_s, "peak_mem_bytes": self.peak_mem_bytes}

    @property
    def line(self) -> str:
        """The change, what a step takes then and what a device needs."""
        need = format_bytes(self.peak_mem_bytes)
        if self.step_time_s is None:
            return f"{self.change}, which comes nearest, and still needs {need}"
        return f"{self.change} ({format_time(self.step_time_s)}, {need})"


def verdict(answer: Estimate) -> str | None:
    """Say what a plan lacks in memory of a device or of a host; None where it fits."""
    if answer.fits:
        return None
    system, needs = answer.table.system, answer.metrics
    parts = (
        []
        if needs["peak_mem_bytes"] <= system.chip.hbm_bytes
        else [lack(needs["peak_mem_bytes"], float(system.chip.hbm_bytes))]
    )
    if system.host is not None:
        kept = needs.get("host_mem_bytes", 0.0) * min(system.node_size, answer.plan.num_gpus)
        parts += [f"{lack(kept, system.host.num_bytes)} of host memory a node"] if kept > system.host.num_bytes else []
    return f"DOES NOT FIT: needs {' and '.join(parts)}"


def lack(need: float, have: float) -> str:
    """Say how much memory is needed of what there is.

    >>> lack(201 * 2**30, 179 * 2**30), lack(2**41, 2**40 - 2**38)
    ('201 of 179 GiB', '2 TiB of 768 GiB')
    """
    size, of = format_bytes(need), format_bytes(have)
    same_unit = size.rpartition(" ")[2] == of.rpartition(" ")[2]
    return f"{size.partition(' ')[0] if same_unit else size} of {of}"


def find_advice(answer: Estimate, origin: Origin | None = None) -> Sequence[Advice]:
    """Return the three changes that cost least time, each with what its plan takes; none where the plan fits.

    They are in the words of the launch as far as these say them, else in flags.
    """
    if answer.fits:
        return ()
    at = origin or Origin()
    write: Callable[[Remedy], str | None] = partial(_in_launch, answer, at)
    found = find_remedies(answer, at.asked, lambda remedy: write(remedy) is not None) if at.framework else ()
    if not any(remedy.step_time_s for remedy in found):
        from ..frameworks.changes import write_flags

        write, found = (lambda remedy: write_flags(remedy.words)), find_remedies(answer, at.asked)
    return [Advice(str(write(r)), r.step_time_s, r.peak_mem_bytes, r.plan) for r in found[:ENOUGH]]


def shortage(answer: Estimate, advice: Sequence[Advice] | None = None) -> str | None:
    """Say in a line what a plan lacks and what fits; None where it fits."""
    lacking = verdict(answer)
    return lacking and f"{lacking}. {next_steps(find_advice(answer) if advice is None else advice)}"


def next_steps(advice: Iterable[Advice]) -> str:
    """Return changes in one line."""
    lines = [one.line for one in advice]
    return f"Try {'; or '.join(lines)}" if lines else "Nothing fits: take a shorter --seq"


def _in_launch(answer: Estimate, origin: Origin, remedy: Remedy) -> str | None:
    """Return a remedy in the words of a launch; None where there is none, or it has no words for it."""
    from ..frameworks.changes import write_change

    if origin.framework is None or origin.subject is None:
        return None
    now, then = (
        replace(origin.subject, plan=plan, layers=layers_of(lowered, plan))
        for lowered, plan in ((answer.table.lowered, answer.plan), (remedy.lowered, remedy.plan))
    )
    return write_change(origin.framework, now, then)


def layers_of(lowered: Lowered, plan: Plan) -> tuple[int, ...]:
    """Return the layers of each chunk of a stage of a training plan, in the order of the model; none without stages."""
    if plan.pp == 1 or plan.phase != "train":
        return ()
    table = PlanTable.of([plan])
    return tuple(lowered.stages.evaluate(table, Points(table)).layouts[0].blocks)


def stack_warnings(
    answer: Estimate, model: str, config: Mapping[str, object] | None, words: Container[str]
) -> Iterator[str]:
    """Yield a warning for each of some words of an estimated plan that its stack does not run."""
    plan, table = answer.plan, answer.table
    subject = ExportSubject(
        plan=plan,
        model=model,
        dtype=str(table.lowered.source.dtype),
        config=config,
        stack=table.system.stack,
        layers=table.staging.layouts[0].blocks if plan.pp > 1 else (),
    )
    for line in not_run(subject):
        if any(word in words for word in words_in(line)):
            yield f"{table.system.stack.name} does not run this plan: {line}"
