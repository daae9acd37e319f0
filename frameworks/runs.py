"""What a software stack runs: plans that its framework can say, with values of words that its record has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import PlanError
from ..ir.graph import Workload
from ..ir.plan import Family, Plan, PlanTable, PlanWords, plan_of
from ..ir.plan.word import Value, changed
from ..ir.plan.words import WORDS
from ..ir.records import dataclass
from ..ir.schedules.registry import SCHEDULES
from .export import ExportSubject, config_of, lost_schedule
from .registry import VOCABULARIES

if TYPE_CHECKING:
    from ..backends.machine.software.stack import StackConstants

# Chunks that no framework can say where it does not say the layers of each.
_UNEVEN = (2, 1, 3, 1)
# Sequences and tokens of a plan that is asked about for one of its words: whatever a schedule needs.
_MANY = 4096


def not_run(subject: ExportSubject) -> Iterator[str]:
    """Yield what the stack of a subject does not run of its plan, a line each: words, a colon, why."""
    if subject.stack is None:
        return
    plan, words = subject.plan, subject.plan.words
    for name, values in subject.stack.runs.items():
        row = WORDS[name]
        value = row.told(getattr(words, row.field))
        is_idle = row.word.needs and getattr(plan, row.word.needs) == 1
        if value not in values.split(", ") and not is_idle:
            yield f"{name} {value}: it runs {values}"
    framework, trains = subject.stack.framework, plan.family.workload is Workload.TRAIN
    vocabulary = VOCABULARIES.get(framework or "")
    if vocabulary is not None and trains == vocabulary.trains:
        yield from vocabulary.lost(subject)
    elif framework == "nanotron" and trains:
        yield from lost_schedule(subject, "nanotron", "nanotron")


def words_in(line: str) -> frozenset[str]:
    """Return the words of a plan that a line of `not_run` is about: those in front of its colon.

    >>> words_in("zero 3: it runs 0, 1"), sorted(words_in("pp 4 with mbs 2: 3 micro-batches, and it asks for vpp"))
    (frozenset({'zero'}), ['mbs', 'pp'])
    """
    return frozenset(WORDS.keys() & re.split(r"[ ,]+", line.partition(":")[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpace:
    """The plans of a space that a stack runs, so far as a search chooses them.

    Attributes:
        stack: the software.
        model: as people name it.
        dtype: of weights and activations.
        free: words that the search chooses; what is said of other words alone is no fault of its.
        excuses: whether a line about typed and free words together is none either.
        num_blocks: layers that stages share out.
        config: the model's config.json, None where it has none.
    """

    stack: StackConstants = field(repr=False)
    model: str
    dtype: str
    free: tuple[str, ...]
    excuses: bool = False
    num_blocks: int
    config: Mapping[str, object] | None = field(default=None, repr=False, hash=False)

    def __str__(self) -> str:
        """Name the stack."""
        return self.stack.name

    def runs(self, plan: Plan) -> bool:
        """Whether a stack runs what a search chose of a plan."""
        lines = map(words_in, not_run(self._subject(plan)))
        return not any(words <= self._free if self.excuses else words & self._free for words in lines if words)

    def takes(self, word: str, value: Value, workload: Workload) -> bool:
        """Whether a stack runs any plan with a value of a word: no line is about this word alone."""
        if word not in self.free:
            return True
        chunks = SCHEDULES[str(value)].chunks if word == "schedule" else 1
        cut = {"pp": 2, "cp": 2, "dp": 2, "vpp": chunks, "global_batch": _MANY} if workload is Workload.TRAIN else {}
        said = {**cut, "tp": 2, "seq_len": _MANY, "phase": str(workload), WORDS[word].field: value}
        try:
            plan = plan_of(changed(PlanWords(), said))
        except PlanError:
            return True
        return not any(words_in(line) == {word} for line in not_run(self._subject(plan)))

    @property
    def _free(self) -> frozenset[str]:
        return frozenset(self.free)

    def alike(self, family: Family, plans: PlanTable) -> NDArray[np.int64]:
        """Return the class of each plan of a family: a stack runs all plans of one, or none.

        What exporters ask of numbers, besides which degrees are above one: how many chunks and micro-batches stages
        have, whether layers divide, whether experts lie over all ranks; and numbers that the stack lists.
        """
        one = np.ones(len(plans))
        pp, vpp, ep = (one if column is None else column for column in (plans.pp, plans.vpp, plans.ep))
        num, is_even = plans.num_micro_batches, self.num_blocks % (pp * vpp) == 0
        asked = [vpp > 1, num % pp == 0, num < pp, is_even, ep == plans.tp * plans.dp, plans.dp > 1]
        for name in self.stack.runs:
            column = getattr(plans, WORDS[name].field, None)
            if column is not None:
                asked.append(np.isin(column, [float(v) for v in self.stack.runs[name].split(", ")]))
        return np.asarray(sum(flag.astype(np.int64) << k for k, flag in enumerate(asked)), dtype=np.int64)

    def _subject(self, plan: Plan) -> ExportSubject:
        num = plan.pp * plan.family.pipeline.chunks_of(plan.vpp)
        even = (self.num_blocks // num,) * num
        return ExportSubject(
            plan=plan,
            model=self.model,
            dtype=self.dtype,
            config=self.config,
            stack=self.stack,
            layers=() if plan.pp == 1 else even if self.num_blocks % num == 0 else _UNEVEN,
        )


def runs_server(stack: StackConstants, plan: Plan, model: str, dtype: str, free: tuple[str, ...]) -> bool:
    """Return whether a stack runs a server's plan, so far as the words in `free` say it."""
    space = StackSpace(stack=stack, model=model, dtype=dtype, free=free, num_blocks=0, config=config_of(model))
    return space.runs(plan)
