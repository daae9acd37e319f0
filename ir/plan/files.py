"""A plan as a file in the words of the flags: what `--plan FILE` reads back as the same plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..errors import PlanError
from ..graph import Workload
from .case import PlanCase
from .low_inference import AS_PUBLISHED
from .plan import Plan, differences, numbers_first, plan_of_case
from .structure import structure_of
from .word import Value
from .words import PLAIN, WORDS

SCHEMA = "slipstick/plan/1"
Word: TypeAlias = str | int | float | bool | Sequence[str]
Words: TypeAlias = Mapping[str, Word]
SERVE = "serve"


def plan_yaml(plan: Plan, around: Words, comments: Sequence[str] = (), phase: str | None = None) -> str:
    """Return a plan as YAML.

    Args:
        plan: what is written, every part of it that is not as the flags have it by themselves.
        around: what else flags say, by their words: `model`, `system`, `stack`, `dtype`, `set`, ...; `set` is a list.
        comments: lines above it.
        phase: `serve` for a server whose decode steps run under `plan`; else that of the plan.

    Raises:
        PlanError: flags cannot say this plan.
    """
    import yaml

    told = plan_words(plan, phase)
    words = {"schema": SCHEMA, **_first(around, "model", "system", "stack"), **told}
    words |= {name: word for name, word in around.items() if name not in words}
    clean = {name: list(word) if isinstance(word, tuple) else word for name, word in words.items()}
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump(clean, sort_keys=False, width=120, allow_unicode=True)


def _first(around: Words, *names: str) -> dict[str, Word]:
    return {name: around[name] for name in names if name in around}


def plan_words(plan: Plan, phase: str | None = None) -> dict[str, Word]:
    """Return what flags say for a plan; what they would choose by themselves is said too, so that nothing is chosen.

    `phase` is `serve` for a server, whose engine says how many sequences run: the plan is that of its decode steps.
    PlanError for a family that flags do not make of these degrees.

    >>> from slipstick.ir.plan import Family, make_plan
    >>> plan_words(make_plan(num_gpus=16, seq_len=4096, family=Family(sp=True, zero=1), tp=8, global_batch=64))
    {'phase': 'train', 'gpus': 16, 'tp': 8, 'mbs': 1, 'gbs': 64, 'seq': 4096, 'scatter_p2p': False, 'sp': True, \
'zero': 1, 'kernels': 'plain'}
    """
    words = plan.words
    check_said(plan, plan_of_case(PlanCase.of(words, structure_of(words))))
    train, serves = plan.family.workload is Workload.TRAIN, phase == SERVE
    if serves and plan.family.workload is not Workload.DECODE:
        raise PlanError(f"the plan of a server is that of its decode steps, not of {plan.family.workload}")
    said: dict[str, Value] = {"phase": phase or words.phase}
    said |= {row.name: row.written(getattr(words, row.field)) for row in numbers_first() if row.name != "phase"}
    # The engine says how many sequences run, and requests how long they are; inference has no batch of a step.
    left_out = {"seq", "mbs", "gbs"} if serves else {"gbs"} if not train else set()
    left_out |= {name for name, is_read in _read(plan).items() if not is_read}
    always = {"phase", "gpus", "seq", "mbs", "gbs"}
    if plan.family.published_of:
        said["precision"] = AS_PUBLISHED
    return {
        name: _listed(value)
        for name, value in said.items()
        if value is not None and name not in left_out and (name in always or value != WORDS[name].unsaid)
    }


def _read(plan: Plan) -> Mapping[str, bool]:
    """Return whether anything depends on each word that a stack decides, or it is as nobody says it."""
    reads = {"early_stop": plan.recompute != "none", "reshard": plan.zero == 3, "pp_layout": plan.pp > 1}
    return {name: reads or getattr(plan, name) != getattr(PLAIN, name) for name, reads in reads.items()}


def _listed(value: Value) -> Word:
    assert value is not None
    return list(value) if isinstance(value, tuple) else value


def check_said(plan: Plan, made: Plan) -> None:
    """Raise PlanError where a plan is not the one that flags make of its words."""
    if wrong := [*differences(made, plan)]:
        raise PlanError(f"no flags make this plan: they give {'; '.join(wrong)}")
