"""Rows of a search of plans: a plan of a step on a system each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...cost.money import Terms
from ...driver.estimate import Estimate, estimate
from ...explore.best import Columns
from ...explore.goals import Goal, MetricLimit
from ...explore.machine import MachineChoice
from ...explore.plans.job import PlanJob, PlanMachine
from ...frameworks.export import config_of
from ...ir.plan import Plan
from ...ir.plan.files import Word, Words
from ...ir.plan.word import SearchAxis
from ...ir.plan.words import WORDS
from ...ir.records import dataclass
from ...ir.schedules.registry import USUAL
from ..advice import stack_warnings
from ..labels import stack_label

_CHOSEN = (SearchAxis.NUMBER, SearchAxis.CHOICE)


@dataclass(frozen=True, slots=True)
class PlanRows:
    """What rows of a job stand for; `said` is what was asked besides plans and machines, as plan files say it."""

    job: PlanJob
    said: Words

    @property
    def machines(self) -> Sequence[PlanMachine]:
        """All machines that are searched."""
        return self.job.machines

    @property
    def search(self) -> PlanJob:
        """What is searched."""
        return self.job

    @property
    def goals(self) -> Sequence[Goal]:
        """What was searched for."""
        return self.job.goals

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """What every row keeps."""
        return self.job.limits

    @property
    def digest(self) -> str:
        """Of the search."""
        return self.job.digest

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Of columns whose numbers stand for words, the words."""
        return self.job.words

    @property
    def metrics(self) -> Sequence[str]:
        """Columns that are metrics."""
        return self.job.metrics

    @property
    def shown(self) -> Sequence[str]:
        """The metrics that people look at first."""
        of_samples = "samples_per_s_per_gpu"
        rate = of_samples if of_samples in self.job.metrics else "tokens_per_s_per_gpu"
        return ("step_time_s", rate, "mfu", "peak_mem_bytes")

    @property
    def hidden(self) -> Sequence[str]:
        """Columns that say nothing outside of the search."""
        return ("part",) if len(self.job.bases) > 1 else ("part", "base")

    @property
    def of(self) -> str:
        """Families and systems."""
        families = len({self.job.parts[block.part].family for block in self.job.blocks()})
        several = len(self.job.machines) > 1
        systems = f"{len(self.job.machines):,} systems" if several else str(self.job.machines[0])
        systems += f", {software_of_machines(self.job.machines)}"
        return f"{families:,} famil{'y' if families == 1 else 'ies'} on {systems}"

    def label(self, rows: Columns, at: int) -> str:
        """Return a row's plan as people write it."""
        return plan_label(self.job.plan_of(rows, at))

    def others(self, rows: Columns, at: int) -> Mapping[str, str]:
        """Return the system where there are several, and types, kernels and the like where they are varied."""
        told: dict[str, str] = {}
        if len(self.job.space.degrees.num_gpus) > 1:
            told["GPUs"] = f"{int(rows['gpus'][at])}"
        if len(self.job.bases) > 1:
            told["with"] = self.job.words["base"][int(rows["base"][at])]
        if len(self.job.machines) > 1:
            words = [(one.name, *one.overrides) for one in self.job.machines]
            mine = words[int(rows["system"][at])]
            told["system"] = " ".join(word for word in mine if not all(word in others for others in words))
        return told

    def answer(self, rows: Columns, at: int) -> Estimate:
        """Return the whole answer of a row."""
        return estimate(self.job.graph, self.machine(rows, at).load(), self.job.plan_of(rows, at), self.job.convention)

    def warnings(self, rows: Columns, at: int) -> Sequence[str]:
        """Return what the software of a row does not run of its plan."""
        model = str(self.said["model"])
        chosen = frozenset(name for name, row in WORDS.items() if row.word.axis in _CHOSEN)
        return tuple(stack_warnings(self.answer(rows, at), model, config_of(model), chosen))

    def around(self, rows: Columns, at: int) -> Words:
        """Return what a plan file says of a row besides its plan."""
        return {**self.said, **machine_words(self.machine(rows, at))}

    @property
    def terms(self) -> Terms | None:
        """The ownership model of machines; None where money is left out."""
        return self.job.terms

    def machine(self, rows: Columns, at: int) -> PlanMachine:
        """Return the machine of a row."""
        return self.job.machines[int(rows["system"][at])]


def software_of_machines(machines: Sequence[MachineChoice]) -> str:
    """Name the software of machines, each once."""
    labels = (stack_label(one.stack or "default", one.assumed) for one in machines)
    return " or ".join(dict.fromkeys(labels))


def machine_words(machine: MachineChoice) -> Words:
    """Return the words of plan files that name a machine."""
    told: dict[str, Word | None] = {
        "system": machine.name,
        "stack": machine.stack,
        "calibration": machine.calibration,
        "prices": machine.prices,
        "set": machine.overrides or None,
    }
    return {name: word for name, word in told.items() if word is not None}


def plan_label(plan: Plan) -> str:
    """Return degrees and words of a plan as people write them.

    >>> from slipstick.ir.plan import Family, make_plan
    >>> plan_label(make_plan(num_gpus=16, seq_len=4096, family=Family(sp=True, zero=1), tp=8, global_batch=64))
    'tp8 dp2 mbs1 sp zero1'
    """
    f = plan.family
    words = [
        f"mbs{plan.micro_batch}",
        "sp" if f.sp else "",
        f"zero{f.zero}" if f.zero else "",
        f.cp if plan.cp > 1 else "",
        f"ulysses{plan.cp_ulysses}" if plan.cp_ulysses > 1 else "",
        f.schedule if plan.pp > 1 and f.schedule != USUAL else "",
        f"recompute={f.recompute}" if f.recompute != "none" else "",
        f.precision if f.precision != "none" else "",
        f"offload={'+'.join(f.offload)}" if f.offload else "",
    ]
    return " ".join((plan.degrees, *filter(None, words)))
