"""A call of Python as a command line: words become flags, and the verb itself reads, checks and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import click

from ...ir.errors import UnknownNameError, UsageError, did_you_mean
from ...ir.text.untrusted import allow_typed_code
from .. import root
from ..flags.settings import OwnDefaults
from ..flags.shared import flag_name, takes_list
from ..output.answers import TALK, Answering

if TYPE_CHECKING:
    from ...report.results.result import Result

# Python says nothing while it works and leaves nothing on the disk, unless it is asked to.
USUAL: Mapping[str, bool] = {"quiet": True, "ledger": False}


def answered(verb: str, given: Sequence[str], words: Mapping[str, object], objects: Mapping[str, object]) -> Result:
    """Return the result of a verb for arguments and words; `objects` are parameters that no flag can say.

    Raises:
        UnknownNameError: a word that the verb does not have, with the nearest one.
        UsageError: what the command line would refuse, with what it would say.
    """
    try:
        with click.Context(root, info_name="slipstick") as parent:
            command = command_of(verb, parent)
            parent.default_map = cast("MutableMapping[str, object]", OwnDefaults(root, lambda line: None))
            known = words_of(command, parent)
            arguments = [*given, *_flags(verb, words, known)]
            with allow_typed_code(arguments), command.make_context(verb, arguments, parent=parent) as ctx:
                ctx.params |= objects
                found = command.answer(ctx)
    except click.ClickException as error:
        raise UsageError(error.format_message()) from None
    # No command line says an object.
    return replace(found, command="") if objects else found


def command_of(verb: str, parent: click.Context) -> Answering:
    """Return the command of a verb, or of one with a word behind it: `design optimise`."""
    word, _, part = verb.partition(" ")
    command = root.get_command(parent, word)
    if part:
        from ..designs.design import DesignCommand

        assert isinstance(command, DesignCommand)
        command = command.part(part)
    assert isinstance(command, Answering)
    return command


def words_of(command: Answering, parent: click.Context) -> Mapping[str, click.Option]:
    """Return the flags of a verb that are words of its function: all but how an answer is written."""
    params = command.get_params(click.Context(command, parent))
    left_out = ("help", "help_all", "color", "plot")
    options = (p for p in params if isinstance(p, click.Option) and flag_name(p) not in left_out and p not in TALK)
    return {flag_name(p): p for p in options if p.name not in command.delivered}


def _flags(verb: str, words: Mapping[str, object], known: Mapping[str, click.Option]) -> Iterator[str]:
    """Yield words as flags, in their order; a word that is None says nothing."""
    usual = {name: value for name, value in USUAL.items() if name in known}
    if words.get("resume") is not None:
        usual.pop("ledger")
    for name, value in {**usual, **words}.items():
        if name not in known:
            near = did_you_mean(name, list(known))
            told = f"its words are the flags of `slipstick {verb} --help`, with _ for -"
            raise UnknownNameError(f"{verb} has no word '{name}'{near} {told}")
        if value is not None:
            yield from _flag(known[name], value)


def _flag(option: click.Option, value: object) -> Iterator[str]:
    name = next((opt for opt in option.opts if opt.startswith("--")), option.opts[0])
    if option.is_flag or option.secondary_opts:
        if not isinstance(value, bool):
            raise UsageError(f"{flag_name(option)}={value!r}: True or False")
        # A switch that can only be turned on says nothing where it is off.
        yield from (name,) if value else option.secondary_opts[:1]
        return
    for text in _texts(option, value):
        yield f"{name}={text}"


def _texts(option: click.Option, value: object) -> Iterator[str]:
    """Yield the texts of a value: one, or those of a flag that is repeated."""
    if isinstance(value, Mapping):
        yield from (f"{key}={_text(one)}" for key, one in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if option.multiple:
            yield from map(_text, value)
        elif takes_list(option):
            yield _text(value)
        else:
            raise UsageError(f"{flag_name(option)}={value!r}: one value, not {len(value)}")
    else:
        yield _text(value)


def _text(value: object) -> str:
    """Return a value as people type it: those of a list with commas between them.

    >>> _text([1, 2, 8]), _text(True), _text(0.5)
    ('1,2,8', 'true', '0.5')
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
