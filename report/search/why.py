"""Why one plan beats another: what they do otherwise, and the parts of time and memory that follow, largest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ...driver.estimate import Estimate
from ...driver.serve.answer import ServeEstimate
from ...explore.goals import Goal
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..compare.comparison import Change, Comparison, ComparisonSection, compare
from ..compare.saved import Saved, saved
from ..json_report import report_json
from ..labels import part_label, request_part_label
from ..readable import percent, shown, shown_both
from ..serving.json import serving_json

Answer: TypeAlias = Estimate | ServeEstimate
# What is said of steps, and of servers, beside the goals of a search; where both have it and it differs.
_OF_STEPS = ("step_time_s", "tokens_per_s_per_gpu", "mfu", "peak_mem_bytes", "usd_per_mtok")
_OF_SERVERS = (
    "ttft_s",
    "tpot_s",
    "e2el_s",
    "tokens_per_s_per_gpu",
    "requests_per_s",
    "batch",
    "usd_per_mtok_output",
    "usd_per_mtok",
)
# Inputs that follow from others, or that say in digits what others say in words.
_FOLLOW = (
    "tool_version",
    "plan.num_micro_batches",
    "plan.layers_by_stage",
    "system.numbers_sha256",
    "model.graph_sha256",
    "money.prices_sha256",
    "system.memory_bytes",
)
# Parts that a line names, and the share of all that moved below which it does not.
_MOST, _LEAST = 5, 0.03


@dataclass(frozen=True, slots=True)
class Why:
    """A winner beside its runner-up; differences are those of the winner against the other.

    Attributes:
        winner: what tells its plan.
        runner_up: of the other, likewise.
        goals: what they were ranked by, with both values.
        metrics: other numbers that people ask for, where they differ.
        differs: inputs in which they differ: name, the winner's, the runner-up's.
        time: the parts of the time and their sum; of a server those of one request.
        memory: the parts of the memory of the fullest device and their sum.
        is_server: whether requests are answered, not steps made.
    """

    winner: str
    runner_up: str
    goals: Sequence[Change]
    metrics: Sequence[Change]
    differs: Sequence[tuple[str, str, str]]
    time: ComparisonSection | None
    memory: ComparisonSection | None
    is_server: bool = False


def why(winner: Answer, runner_up: Answer, goals: Sequence[Goal] = ()) -> Why:
    """Compare a winner with its runner-up, of the same system or of another; UsageError for a step and a server.

    `goals` are what they were ranked by; without any, the time of a step, or of a request.
    """
    server = isinstance(winner, ServeEstimate)
    if server != isinstance(runner_up, ServeEstimate):
        raise UsageError("a step and a server: compare two of one kind")
    found = compare(_saved(runner_up, "runner-up"), _saved(winner, "winner"))
    usual = _OF_SERVERS if server else _OF_STEPS
    ranked = [goal.name for goal in goals if goal.name in found.metrics] or [found.headline.name]
    others = [name for name in usual if name in found.metrics and name not in ranked]
    names = list(_labels(winner, runner_up))
    return Why(
        names[0],
        names[1],
        [found.metrics[name] for name in ranked],
        [change for name in others if (change := found.metrics[name]).difference],
        list(_differs(found)),
        _section(found, "breakdown"),
        _section(found, "memory"),
        server,
    )


def _saved(answer: Answer, called: str) -> Saved:
    return saved(serving_json(answer) if isinstance(answer, ServeEstimate) else report_json(answer), called)


def _labels(*answers: Answer) -> Iterator[str]:
    """Yield what tells plans apart, with their systems where these differ."""
    names = [
        (answer.server.system.name if isinstance(answer, ServeEstimate) else answer.table.system.name)
        for answer in answers
    ]
    for answer, name in zip(answers, names, strict=True):
        yield f"{_label(answer)} on {name}" if len(set(names)) > 1 else _label(answer)


def _label(answer: Answer) -> str:
    plan = answer.server.plan if isinstance(answer, ServeEstimate) else answer.plan
    batch = "" if isinstance(answer, ServeEstimate) else f" mbs{plan.micro_batch}"
    return f"{plan.degrees}{batch}"


def _section(found: Comparison, name: str) -> ComparisonSection | None:
    return next((section for section in found.sections if section.name == name), None)


def _differs(found: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield inputs in which both differ, without what follows from them."""
    alike = all(report.inputs.get("plan.etp") == report.inputs.get("plan.tp") for report in (found.a, found.b))
    left_out = (*_FOLLOW, "plan.etp") if alike else _FOLLOW
    for one in found.inputs:
        if one.name not in left_out:
            name = one.name.removeprefix("plan.").removeprefix("engine.")
            yield name, "-" if one.after is None else one.after, "-" if one.before is None else one.before


def why_text(found: Why) -> str:
    """Return the reasons as a few lines that read by themselves."""
    return "\n".join(_lines(found))


def _lines(found: Why) -> Iterator[str]:
    yield f"{found.winner} against {found.runner_up}: {'; '.join(map(_both, found.goals))}"
    if found.differs:
        yield f"  differs: {', '.join(f'{name} {mine}, not {its}' for name, mine, its in found.differs)}"
    time_of = "a request" if found.is_server else "a step"
    if found.time is not None:
        label = request_part_label if found.is_server else part_label
        yield f"  time of {time_of}: {_sum(found.time, label)}"
    if found.memory is not None:
        yield f"  memory of a GPU: {_sum(found.memory, _memory_label)}"
    if found.metrics:
        yield f"  also: {'; '.join(map(_both, found.metrics))}"


def _memory_label(name: str) -> str:
    return name.replace("_", " ")


def _both(change: Change) -> str:
    """Return `step time 12.6 s, not 13 s (-3.1 %)`."""
    its, mine = shown_both(change)
    moved = f" ({percent(change.relative)})" if change.before and change.difference else ""
    label = Goal(change.name).label
    return f"{label} {mine}, not {its}{moved}" if change.difference else f"{label} {mine} both"


def _sum(section: ComparisonSection, label: Callable[[str], str]) -> str:
    """Return `0.42 s less: 0.53 s less bubble, 0.11 s more tp communication`; what is small is put together."""
    moved = [change for change in section.parts if change.difference]
    whole = section.whole
    if not moved:
        return "the same in every part"
    least = _LEAST * sum(abs(change.difference) for change in moved)
    named = [change for change in moved if abs(change.difference) >= least][:_MOST]
    rest = [change for change in moved if change not in named]
    parts = [f"{_amount(change)} {label(change.name)}" for change in named]
    if rest:
        left = Change("", whole.unit, 0.0, sum(change.difference for change in rest))
        parts.append(f"{_amount(left)} in {len(rest)} other{'' if len(rest) == 1 else 's'}")
    head = f"{_amount(whole)}" if whole.difference else "the same"
    return f"{head}: {', '.join(parts)}"


def _amount(change: Change) -> str:
    """Return `0.42 s less`, or more."""
    return f"{shown(abs(change.difference), change.unit)} {'less' if change.difference < 0 else 'more'}"
