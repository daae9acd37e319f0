"""The vocabulary of plans: each word of the table is a flag, a key of plan files, a line of reports and has an axis."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import click
import pytest

from slipstick.app.arguments.options import option_of
from slipstick.app.plans.schema import plan_schema
from slipstick.app.search.axes import CHOICES, NUMBERS, REFUSED, SINGLE, words_of_a_space
from slipstick.cli.flags.build import flag_of
from slipstick.cli.flags.command import shared_flags
from slipstick.ir.errors import PlanError, UnknownNameError
from slipstick.ir.plan import WORDS, Family, LoweringPolicy, PlanWords, check_family, structure_of
from slipstick.ir.plan.files import plan_words
from slipstick.ir.plan.plan import plan_of
from slipstick.ir.plan.word import SearchAxis, Word, changed, rows_of
from slipstick.ir.plan.words import words_said
from slipstick.ir.types import DType

ROOT = Path(__file__).resolve().parents[3]
FLAGS = {str(flag.name): flag for flags in shared_flags().values() for flag in flags}
# Words that a degree decides in the structure, or a rule or the stack by default.
DECIDED = {"sp", "kernels", "scatter_p2p", "early_stop", "reshard", "pp_layout"}
OWN = {row.field for row in WORDS.values()} - {f.name for f in fields(LoweringPolicy)} | DECIDED


@pytest.mark.parametrize("name", WORDS)
def test_a_word_is_a_flag_with_its_help_and_a_key_of_plan_files(name: str) -> None:
    flag, properties = FLAGS[name], plan_schema()["properties"]
    assert isinstance(flag, click.Option)
    assert isinstance(properties, dict)
    assert flag.help == WORDS[name].word.help
    entry = properties[name]
    assert isinstance(entry, dict)
    assert entry["description"] == flag.help
    assert {*WORDS[name].word.also} <= {*flag.opts}


@pytest.mark.parametrize("name", WORDS)
def test_the_default_of_a_word_is_that_of_its_flag(name: str) -> None:
    row, flag = WORDS[name], FLAGS[name]
    with click.Command("any", params=[flag]).make_context("any", []) as ctx:
        assert row.read(ctx.params[name]) == row.default == getattr(PlanWords(), row.field)


@pytest.mark.parametrize("name", WORDS)
def test_a_search_knows_what_to_make_of_a_word(name: str) -> None:
    of_a_space = {opt.field for opt in words_of_a_space()}
    axis = WORDS[name].word.axis
    assert (name in NUMBERS, name in CHOICES, name in SINGLE, name in REFUSED) == (
        axis is SearchAxis.NUMBER, axis is SearchAxis.CHOICE, axis is SearchAxis.ONE, axis is SearchAxis.NONE,
    )  # fmt: skip
    assert (name in of_a_space) == (axis is not SearchAxis.NONE)


def test_words_of_a_policy_are_the_structure_as_they_stand() -> None:
    said = PlanWords(zero=3, grad_dtype=DType.BF16, offload=("optimizer", "params"), reshard="step")
    family = structure_of(said)
    assert all(
        getattr(family, f.name) == getattr(said, f.name) for f in fields(LoweringPolicy) if f.name not in DECIDED
    )


def test_a_value_that_is_no_choice_is_refused_with_the_nearest() -> None:
    named = [row for row in WORDS.values() if row.word.noun]
    assert len(named) == 8
    for row in named:
        near = row.word.choices[-1][:-1] + "_"
        with pytest.raises(UnknownNameError, match=f"unknown {row.word.noun} '{near}'"):
            check_family(changed(Family(), {row.field: near}))


def test_a_number_that_is_too_small_is_refused() -> None:
    with pytest.raises(PlanError, match="recompute_every=0: 1 or more"):
        words_said({"recompute_every": 0})


def test_what_is_written_is_read_again() -> None:
    words = PlanWords(
        num_gpus=32, tp=2, pp=2, ep=4, seq_len=128, global_batch=64, zero=3, dp_shard=2, capacity_factor=1.25,
        recompute="selective", recompute_modules=("mlp",), offload=("optimizer",), grad_dtype=DType.BF16,
        reduce_dtype=DType.BF16, routing_nodes=2, kernels="fused",
    )  # fmt: skip
    plan = plan_of(words)
    assert plan_of(words_said(plan_words(plan))) == plan


@dataclass(frozen=True, slots=True, kw_only=True)
class More(PlanWords):
    """The table with one word more, in one place."""

    chatter: Annotated[str, Word("How much ranks talk.", choices=("low", "high"), behind="tp")] = "low"


def test_a_new_word_is_one_field_of_the_table() -> None:
    row = rows_of(More)["chatter"]
    flag = flag_of(option_of(row))
    assert (flag.opts, flag.default, flag.help) == (["--chatter"], "low", "How much ranks talk.")
    assert (row.read("high"), row.written("high"), row.word.axis) == ("high", "high", SearchAxis.GIVEN)


def test_words_that_a_graph_is_lowered_for_stand_in_the_table_alone() -> None:
    # Flags, requests, plan files, their schema, the report and the axes of plans name none of them.
    general = [
        ROOT / f"{name}.py"
        for name in (
            "cli/flags/command",
            "app/request",
            "app/plans/file",
            "app/plans/schema",
            "app/plans/text",
            "app/search/axes",
            "app/search/space_file",
        )
    ]
    general += [
        ROOT / "ir" / "plan" / f"{name}.py" for name in ("cases", "files", "plan", "structure", "table", "word")
    ]
    told = {
        f"{path.name}: {row.name}"
        for path in general
        for line in path.read_text(encoding="utf-8").splitlines()
        for row in WORDS.values()
        if row.field not in OWN and f'"{row.name}"' in line and ">>>" not in line
    }
    # A plan that is split anew for its degree, and the recipe that a checkpoint names.
    assert told == {"files.py: precision", "plan.py: tp_plan", "structure.py: schedule", "structure.py: tp_plan"}
