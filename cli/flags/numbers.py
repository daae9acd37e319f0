"""Types of flags: a word of several, or a number, finite and no larger than anything that is counted."""

from __future__ import annotations

import math
from typing import SupportsIndex, SupportsInt

import click

from ...ir.errors import did_you_mean
from ...ir.units import is_digits

# Degrees, batches, tokens and rows that are more than this are slips of the finger; see `ir/plan/cases.py`.
MOST = 10**9


def tokens_of(text: str) -> str:
    """Return the digits of a length in tokens; k and m count as in the names of models, by 1024.

    >>> tokens_of("8192"), tokens_of("8k"), tokens_of("1M"), tokens_of("8q")
    ('8192', '8192', '1048576', '8q')
    """
    digits, scale = text[:-1].strip(), {"k": 2**10, "m": 2**20}.get(text[-1:].lower())
    return str(int(digits) * scale) if scale and is_digits(digits) and len(digits) <= 9 else text


def check_digits(
    kind: click.types.ParamType[object, object], value: object, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    """Fail for a text with digits other than 0 to 9, or with underscores between them: Python reads these too."""
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        kind.fail(f"'{value[:40]}' is no number: its digits are 0 to 9.", param, ctx)


class Named(click.Choice[str]):
    """A choice that answers a wrong word with the nearest right one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, or fail with what was given, what is allowed and the nearest."""
        if value in self.choices:
            return value
        allowed = [str(c) for c in self.choices]
        self.fail(f"'{value}' is not allowed{did_you_mean(value, allowed)} allowed: {', '.join(allowed)}", param, ctx)


class Whole(click.IntRange):
    """A whole number up to a billion, or up to the end of the range."""

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with what is allowed."""
        check_digits(self, value, param, ctx)
        most, text = MOST if self.max is None else int(self.max), str(value)
        # Python reads no number of some thousand digits.
        number = int(super().convert(value, param, ctx)) if len(text) <= 40 else most + 1
        if abs(number) > most:
            self.fail(f"{text if len(text) <= 40 else text[:40] + '...'}: at most {most:,} is allowed.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class One(click.types.IntParamType):
    """A whole number of one plan; several are told where they may be varied."""

    def convert(
        self, value: SupportsInt | SupportsIndex, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number, or fail with what is allowed."""
        check_digits(self, value, param, ctx)
        if "," in str(value) and param is not None and ctx is not None:
            varies = any(one.name == "vary" for one in ctx.command.get_params(ctx))
            cure = f"--vary {param.name}={value} tries several" if varies else "give one"
            self.fail(f"'{value}' is no single number: {cure}.", param, ctx)
        return int(super().convert(value, param, ctx))


class Real(click.FloatRange):
    """A finite number of a range: no comparison refuses one that is none."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with what is allowed."""
        check_digits(self, value, param, ctx)
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{str(value)[:40]} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class Tokens(click.types.IntParamType):
    """A length in tokens: 8192, or 8k."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with what is allowed."""
        check_digits(self, value, param, ctx)
        try:
            return int(tokens_of(str(value).strip()))
        except ValueError:
            self.fail(f"{str(value)[:40]!r} is not a valid integer.", param, ctx)
