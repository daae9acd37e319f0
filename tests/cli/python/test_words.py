"""The words of a function are the flags of its verb, and a type checker knows each of them."""

from __future__ import annotations

import ast

import pytest

from slipstick.cli.output.answers import TALK

from .conftest import FUNCTIONS, command_of, words_file, words_module, words_of_function


def test_type_checkers_know_the_words_of_the_flags(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        words_file().write_text(words_module(), encoding="utf-8")
    kept = ast.parse(words_file().read_text(encoding="utf-8"))
    # The formatter breaks long lines, and nothing else may differ.
    assert ast.dump(kept) == ast.dump(ast.parse(words_module()))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_flag_is_a_word_or_says_how_an_answer_is_written(function: str) -> None:
    verb, left_out = FUNCTIONS[function]
    command, parent = command_of(verb)
    # Help and the screen are of the command line.
    apart = {"--help", "--help-all", "--color", "--plot"}
    params = {
        str(p.name)
        for p in command.get_params(parent)
        if p.param_type_name == "option" and not apart & {*p.opts} and p not in TALK
    }
    assert len(words_of_function(function)) == len(params - {*command.delivered} - left_out)


def test_words_are_names_that_python_takes() -> None:
    assert all(word.isidentifier() for function in FUNCTIONS for word in words_of_function(function))
