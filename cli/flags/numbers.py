"""Types of flags that take a number: finite, and no larger than anything that is counted."""

from __future__ import annotations

import math

import click

# Degrees, batches, tokens and rows that are more than this are slips of the finger; see `ir/plan/cases.py`.
MOST = 10**9


class Whole(click.IntRange):
    """A whole number up to a billion, or up to the end of the range."""

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with what is allowed."""
        most, text = MOST if self.max is None else int(self.max), str(value)
        # Python reads no number of some thousand digits.
        number = int(super().convert(value, param, ctx)) if len(text) <= 40 else most + 1
        if abs(number) > most:
            self.fail(f"{text if len(text) <= 40 else text[:40] + '...'}: at most {most:,} is allowed.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class Real(click.FloatRange):
    """A finite number of a range: no comparison refuses one that is none."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with what is allowed."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{str(value)[:40]} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()
