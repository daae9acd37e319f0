"""A word says once what it takes: text, Python and flags are read by the same row."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from slipstick.app.arguments import verbs
from slipstick.app.arguments.options import Opt, WordKind, options_of
from slipstick.cli.flags.build import flag_of
from slipstick.ir.errors import UsageError

WORDS = {word: opt for record in (verbs.ServeWords, verbs.SearchWords) for word, opt in options_of(record).items()}
TEXTS = ("1", "64", "0", "-1", "1.5", "8k", "1,2", "true", "no", "", "fp8", "1_0", "9" * 50, "nan", "a=b", "auto")


def read_by(read: Callable[[object], object], given: object) -> object:
    """What is read, or what is said of what is refused."""
    try:
        return read(given)
    except click.BadParameter as error:
        return error.message
    except UsageError as error:
        return str(error)


@pytest.mark.parametrize("word", WORDS)
def test_a_flag_reads_what_its_word_reads_and_refuses_it_in_the_same_words(word: str) -> None:
    opt, context = WORDS[word], click.Context(click.Command("any"))
    flag = flag_of(opt)
    for text in TEXTS:
        given = (text,) if opt.is_many else text
        of_flag = read_by(lambda given: flag.type_cast_value(context, given), given)
        assert read_by(opt.read, given) == of_flag, (word, text)


@pytest.mark.parametrize("word", WORDS)
def test_what_is_typed_of_a_value_is_read_back(word: str) -> None:
    opt = WORDS[word]
    values = {WordKind.TEXT: "a", WordKind.PATH: "a", WordKind.REAL: 0.25, WordKind.SWITCH: True, WordKind.BOTH: False}
    value: object = opt.choices[0] if opt.choices else values.get(opt.kind, 4096)
    for given in (value, ["a=1", "b=2"]) if opt.is_many else (value,):
        names = {*opt.names, *opt.names_off}
        for text in opt.flags_of(given):
            assert text.partition("=")[0] in names
        texts = [text.partition("=")[2] for text in opt.flags_of(given)]
        assert opt.is_switch or opt.read(texts if opt.is_many else texts[0]) == opt.read(given)


def test_a_list_is_one_value_of_a_word_that_takes_one() -> None:
    with pytest.raises(UsageError, match=r"tp=\[1, 2\]: one value, not 2"):
        WORDS["tp"].read([1, 2])
    assert WORDS["offload"].read(["optimizer", "params"]) == "optimizer,params"
    assert WORDS["set"].read({"chip.clock": "2GHz"}) == ("chip.clock=2GHz",)


def test_the_range_of_a_number_is_said_as_people_read_it() -> None:
    assert Opt("", WordKind.COUNT, least=1).shown_range == "x>=1"
    assert Opt("", WordKind.REAL, least=0.0, most=1.0, is_open_above=True).shown_range == "0.0<=x<1.0"
