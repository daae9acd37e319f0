"""What a stack runs: a search under it chooses no plan that its framework cannot say, and leaves out no other."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from slipstick.backends.machine.load import load_stack, stack_names
from slipstick.explore.goals import Goal
from slipstick.explore.plans.degrees import Degrees
from slipstick.explore.plans.job import PlanJob, PlanMachine
from slipstick.explore.plans.space import Choices, PlanSpace
from slipstick.explore.plans.tables import plan_of
from slipstick.frameworks.export import ExportSubject
from slipstick.frameworks.registry import FRAMEWORKS
from slipstick.frameworks.runs import StackSpace, not_run, words_in
from slipstick.frontend import GraphCache, load
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.ir.layers import num_layers
from slipstick.ir.plan import Family, Plan
from slipstick.ir.plan.word import SearchAxis
from slipstick.ir.plan.words import WORDS

CHOSEN = tuple(name for name, row in WORDS.items() if row.word.axis in (SearchAxis.NUMBER, SearchAxis.CHOICE))
STACKS = ("megatron-core", "megatron-2022", "torchtitan", "nanotron", "composer-fsdp", "megatron-deepspeed")
# Plans that are asked about, of each model and stack.
SAMPLES = 24


def job_under(model: str, stack: str | None, gpus: int) -> PlanJob:
    """The search of all training plans of a model."""
    graph = load(model, cache=GraphCache.default())
    software = load_stack(stack or "default")
    own = (Family(kernels=software.decides.kernels, early_stop=True),)
    runner = None if stack is None else StackSpace(
        stack=software, model=model, dtype="bf16", free=(*CHOSEN, "pp_layout"), num_blocks=num_layers(graph),
        config=json.loads(read_config(model).text),
    )  # fmt: skip
    return PlanJob(
        graph=graph, goals=(Goal("step_time_s"),),
        space=PlanSpace(degrees=Degrees(num_gpus=(gpus,), global_batch=(4 * gpus,)), choices=Choices(), seq_len=4096),
        machines=(PlanMachine(name="dgx-h100", bases=own, runner=runner),),
    )  # fmt: skip


def some_plans(job: PlanJob, rng: random.Random) -> Iterator[Plan]:
    """Candidates of parts of a job, drawn evenly."""
    for block in rng.choices(list(job.blocks()), k=SAMPLES):
        part = job.parts[block.part]
        numbers = job.numbers(part)[:, rng.randrange(block.first, block.last)]
        yield plan_of(job.space, part.family, numbers.tolist())


def subject(plan: Plan, model: str, stack: str, num_blocks: int) -> ExportSubject:
    """A plan with the layers of its stages; uneven ones are such as no framework names."""
    chunks = plan.pp * plan.vpp
    layers = (num_blocks // chunks,) * chunks if num_blocks % chunks == 0 else (2, 1, 3, 1)
    config = json.loads(read_config(model).text)
    return ExportSubject(
        plan=plan, model=model, config=config, stack=load_stack(stack), layers=layers if plan.pp > 1 else ()
    )


@pytest.mark.parametrize("model", ["llama-3.1-8b", pytest.param("mixtral-8x7b", marks=pytest.mark.deep)])
@pytest.mark.parametrize("stack", STACKS)
def test_a_search_chooses_what_its_stack_runs_and_all_of_it(model: str, stack: str) -> None:
    rng = random.Random(f"{model} {stack}")
    job, whole = job_under(model, stack, 64), job_under(model, None, 64)
    for plan in some_plans(job, rng):
        told = [line for line in not_run(subject(plan, model, stack, job.num_blocks)) if words_in(line) & {*CHOSEN}]
        assert not told, (plan.degrees, plan.family, told)
    mine = {part.family for part in job.parts if job.numbers(part).size}
    for plan in some_plans(whole, rng):
        lines = list(not_run(subject(plan, model, stack, job.num_blocks)))
        # A family of the stack's own kernels; where nothing is said against a plan, it is in the space.
        if not any(words_in(line) & {*CHOSEN, "pp_layout"} for line in lines):
            family = replace(plan.family, kernels=load_stack(stack).decides.kernels)
            assert family in mine, (plan.degrees, family)


def test_a_stack_that_says_nothing_keeps_the_whole_space() -> None:
    whole, same = job_under("llama-3.1-8b", None, 16), job_under("llama-3.1-8b", "default", 16)
    assert sum(map(len, whole.blocks())) == sum(map(len, same.blocks()))


@pytest.mark.parametrize("name", stack_names())
def test_stacks_name_frameworks_and_words_that_there_are(name: str) -> None:
    stack = load_stack(name)
    assert stack.framework in {"", *FRAMEWORKS}
    for word, values in stack.runs.items():
        row = WORDS[word]
        read = [int(value) if row.kind is int else value for value in values.split(", ")]
        assert not row.word.choices or {*read} <= {*row.word.choices}
        assert ", ".join(row.told(value) for value in read) == values
