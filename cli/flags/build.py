"""Flags of click, made from the words of verbs: this is the one place where a word becomes a flag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ...app.arguments.options import Opt, WordKind, options_of
from .names import of_catalogue
from .numbers import Named, One, Real, Tokens, Whole

if TYPE_CHECKING:
    pass

F = TypeVar("F", bound=Callable[..., object])


class WordFlag(click.Option):
    """The flag of a word, which is `opt`."""

    opt: Opt


@cache
def flags_of(*records: type) -> tuple[WordFlag, ...]:
    """Return the flags of the words of records, in their order."""
    return tuple(map(flag_of, options_of(*records).values()))


def flag_of(opt: Opt) -> WordFlag:
    """Return the flag of a word."""
    told = opt.default is not None
    flag = WordFlag(
        [*opt.names_both, opt.field],
        is_flag=True if opt.kind is WordKind.SWITCH else None,
        type=None if opt.is_switch else _type_of(opt),
        multiple=opt.is_many,
        required=opt.is_required,
        metavar=opt.metavar or None,
        default=opt.default if told and not opt.is_many and opt.kind is not WordKind.SWITCH else None,
        show_default=opt.is_told,
        help=opt.help,
        shell_complete=of_catalogue(opt.catalogue) if opt.catalogue else None,
    )
    flag.opt = opt
    return flag


def words(*records: type) -> Callable[[F], F]:
    """Give a verb the flags of the words of records."""

    def give(function: F) -> F:
        for flag in reversed(flags_of(*records)):
            click.decorators._param_memo(function, flag)
        return function

    return give


def options_in(params: Iterable[click.Parameter]) -> Mapping[str, Opt]:
    """Return the words among the parameters of a verb, by name."""
    return {param.opt.word: param.opt for param in params if isinstance(param, WordFlag)}


def _type_of(opt: Opt) -> click.types.ParamType[object, object] | click.Path:
    """Return the type of click that reads the value of a word."""
    if opt.choices:
        return Named(opt.choices)
    match opt.kind:
        case WordKind.COUNT:
            return Whole(_whole(opt.least), _whole(opt.most))
        case WordKind.REAL:
            return Real(opt.least, opt.most, opt.is_open_below, opt.is_open_above)
        case WordKind.ONE:
            return One()
        case WordKind.TOKENS:
            return Tokens()
        case WordKind.PATH:
            return click.Path(path_type=Path)
    return click.STRING


def _whole(end: float | None) -> int | None:
    return None if end is None else int(end)
