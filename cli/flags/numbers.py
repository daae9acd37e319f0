"""Types of flags: what `Opt.read_word` reads, with the errors and the help of click."""

from __future__ import annotations

from typing import SupportsIndex, SupportsInt

import click

from ...app.arguments.options import Opt, WordKind
from ...ir.errors import UsageError


def read_flag(
    opt: Opt,
    kind: click.types.ParamType[object, object],
    value: object,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> str:
    """Return the value of a text as text, or fail with what is allowed."""
    try:
        return str(opt.read_word(str(value)))
    except UsageError as error:
        kind.fail(str(error), param, ctx)


class Named(click.Choice[str]):
    """A choice that answers a wrong word with the nearest right one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, or fail with what was given, what is allowed and the nearest."""
        return read_flag(Opt("", choices=tuple(map(str, self.choices))), self, value, param, ctx)


class Whole(click.IntRange):
    """A whole number up to a billion, or up to the end of the range."""

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with what is allowed."""
        return int(read_flag(Opt("", WordKind.COUNT, least=self.min, most=self.max), self, value, param, ctx))

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class One(click.types.IntParamType):
    """A whole number of one plan; several are told where they may be varied."""

    def convert(
        self, value: SupportsInt | SupportsIndex, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number, or fail with what is allowed."""
        varies = ctx is not None and any(one.name == "vary" for one in ctx.command.get_params(ctx))
        if varies and param is not None and "," in str(value) and str(value).isascii():
            self.fail(f"'{value}' is no single number: --vary {param.name}={value} tries several.", param, ctx)
        return int(read_flag(Opt("", WordKind.ONE), self, value, param, ctx))


class Real(click.FloatRange):
    """A finite number of a range: no comparison refuses one that is none."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with what is allowed."""
        opt = Opt(
            "", WordKind.REAL, least=self.min, most=self.max, is_open_below=self.min_open, is_open_above=self.max_open
        )
        return float(read_flag(opt, self, value, param, ctx))

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class Tokens(click.types.IntParamType):
    """A length in tokens: 8192, or 8k."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with what is allowed."""
        return int(read_flag(Opt("", WordKind.TOKENS), self, value, param, ctx))
