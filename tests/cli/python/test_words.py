"""The words of a function are the flags of its verb, its parameters say them, and a type checker knows each."""

from __future__ import annotations

import inspect
from typing import get_args, get_origin

import pytest

import slipstick
from slipstick.app.arguments.options import options_of
from slipstick.app.arguments.plan import BatchArgs, LoweringArgs, PhaseArgs, PlanArgs
from slipstick.cli.flags.build import options_in
from slipstick.ir.plan.words import WORDS
from slipstick.ir.types import DType

from .conftest import FUNCTIONS, command_of

# Of one verb of the command line, two functions.
OF_STEPS = {"sensitivity"}
OF_SYSTEMS = {"system"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_word_of_a_verb_is_one_of_its_function_or_says_how_an_answer_is_written(function: str) -> None:
    record, verb = FUNCTIONS[function]
    command, parent = command_of(verb)
    flags = {
        word: opt for word, opt in options_in(command.get_params(parent)).items() if opt.field not in command.delivered
    }
    words = options_of(record)
    others = {opt for name, (_, of) in FUNCTIONS.items() if of == verb for opt in options_of(FUNCTIONS[name][0])}
    assert set(flags) - OF_SYSTEMS <= others | OF_SYSTEMS
    assert {word: flags[word] for word in words} == dict(words)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_parameters_of_a_function_are_its_words_with_their_defaults(function: str) -> None:
    record = FUNCTIONS[function][0]
    found = inspect.signature(getattr(slipstick, function)).parameters
    words = options_of(record)
    assert set(found) - {"model", "system"} == set(words) - {"system"}
    for word, opt in words.items():
        assert found[word].kind is inspect.Parameter.KEYWORD_ONLY or word == "system"
        if not opt.is_required and word in WORDS:
            assert found[word].default in (opt.default, WORDS[word].unsaid, (), None, False)
    assert all(word in str(getattr(slipstick, function).__doc__) for word in words) or function == "cost"


def test_words_of_plans_have_the_types_of_the_table() -> None:
    """The records of words repeat names, types and defaults of the table, so that type checkers can read them."""
    fields = {
        name: (field.type, field.default)
        for record in (PhaseArgs, BatchArgs, PlanArgs, LoweringArgs)
        for name, field in record.__dataclass_fields__.items()
        if name in WORDS
    }
    assert set(fields) == set(WORDS)
    for name, (hint, default) in fields.items():
        row, plain = WORDS[name], [one for one in get_args(hint) or (hint,) if one is not type(None)]
        assert default == (() if row.unsaid == () else row.unsaid) or not row.word.is_told or row.word.one_way, name
        # A schedule is one file, which no type spells out.
        if row.word.choices and not row.word.others and name != "schedule":
            literal = (
                hint if get_origin(hint) is not None and set(get_args(hint)) == set(row.word.choices) else plain[0]
            )
            assert set(get_args(literal)) == set(row.word.choices), name
        elif row.kind in (int, float, bool):
            assert plain[0] is row.kind, name
        else:
            assert plain[0] is str or row.kind is DType, name


def test_a_module_of_a_verbs_name_has_the_signature_of_the_function() -> None:
    import slipstick.cost.money

    assert next(iter(inspect.signature(slipstick.cost).parameters)) == "system"


def test_the_package_lists_its_public_names_alone() -> None:
    assert dir(slipstick) == sorted(slipstick.__all__)
