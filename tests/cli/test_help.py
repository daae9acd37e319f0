"""Help on one screen, by topic, and all of it."""

import re
from collections.abc import Callable
from subprocess import CompletedProcess

import click
import pytest

from slipstick.cli import VERBS, root
from slipstick.cli.designs.design import DesignCommand
from slipstick.cli.help import USUAL, sections_of, topic_of

Cli = Callable[..., "CompletedProcess[str]"]


def sections(verb: str) -> dict[str, list[str]]:
    """The long names of a verb's flags, by topic."""
    context = click.Context(root, info_name="slipstick", help_option_names=["-h", "--help"])
    name, *inner = verb.split()
    command = root.get_command(context, name)
    assert command is not None
    for word in inner:
        assert isinstance(command, DesignCommand)
        command = command.part(word)
        assert command is not None
    found = sections_of(click.Context(command, info_name=verb, parent=context))
    return {
        topic_of(title): [name for p in params for name in p.opts if name.startswith("--")] for title, params in found
    }


@pytest.mark.parametrize("verb", USUAL)
def test_the_help_of_a_verb_is_one_screen(cli: Cli, verb: str) -> None:
    lines = cli(*verb.split(), "--help").stdout.splitlines()
    assert len(lines) <= 60
    assert any(f"slipstick {verb} --help-all" in line for line in lines)


@pytest.mark.parametrize("verb", USUAL)
def test_every_usual_flag_is_one_of_the_verb(cli: Cli, verb: str) -> None:
    flags = {name.lstrip("-") for names in sections(verb).values() for name in names}
    assert set(USUAL[verb]) <= flags
    text = cli(*verb.split(), "--help").stdout
    assert all(f"\n  --{name}" in text for name in USUAL[verb])


@pytest.mark.parametrize("verb", USUAL)
def test_all_flags_are_in_the_whole_help_and_each_in_one_topic(cli: Cli, verb: str) -> None:
    whole = cli(*verb.split(), "--help-all").stdout
    by_topic = sections(verb)
    names = [name for flags in by_topic.values() for name in flags]
    assert len(set(names)) == len(names)
    assert all(re.search(rf"{re.escape(name)}\b", whole) for name in names)
    topic = list(by_topic)[-1]
    text = cli("help", *verb.split(), topic).stdout
    assert all(name in text for name in by_topic[topic])
    assert by_topic["plan"][0] not in text


def test_the_help_of_a_verb_is_that_of_its_flag(cli: Cli) -> None:
    assert cli("help", "cost").stdout == cli("cost", "--help").stdout
    assert cli("help").stdout == cli("--help").stdout


def test_a_topic_alone_is_one_of_estimates(cli: Cli) -> None:
    assert cli("help", "training-run").stdout == cli("help", "estimate", "training-run").stdout
    assert "--mtbf" in cli("help", "training-run").stdout


@pytest.mark.parametrize(
    ("words", "near"),
    [(("estimat",), "'estimate'"), (("mony",), "'money'"), (("search", "spaces"), "'space'")],
)
def test_an_unknown_topic_names_the_nearest(cli: Cli, words: tuple[str, ...], near: str) -> None:
    done = cli("help", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"did you mean {near}?" in done.stderr


@pytest.mark.parametrize(
    ("word", "instead"), [("version", "--version"), ("serve", "estimate --phase serve"), ("tune", "search")]
)
def test_a_verb_of_another_tool_is_told_where_it_is_here(cli: Cli, word: str, instead: str) -> None:
    done = cli(word)
    assert done.returncode == 2
    assert f"see `slipstick {instead}`;" in done.stderr
    assert word not in VERBS


def test_the_version_has_a_short_flag(cli: Cli) -> None:
    assert cli("-V").stdout == cli("--version").stdout
