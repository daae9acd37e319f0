"""-q and -v: how much a verb says on stderr while it works."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import click

# Where a context keeps that -v or -q was given.
_VERBOSE, _QUIET = "slipstick.verbose", "slipstick.quiet"


def talk_flags(told: bool = True) -> tuple[click.Option, click.Option]:
    """Return the flags of less and more talk; `told`: the verb's function gets the first."""
    quiet = click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=told,
        callback=None if told else lambda ctx, _, value: ctx.meta.__setitem__(_QUIET, value),
        help="Show no progress.",
    )
    verbose = click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=lambda ctx, _, value: ctx.meta.__setitem__(_VERBOSE, value),
        help="Log the files read and the seconds of each stage to stderr.",
    )
    return quiet, verbose


class Watched(click.Command):
    """A verb that runs under these flags."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function."""
        with watched(ctx):
            return super().invoke(ctx)


def watched(ctx: click.Context) -> AbstractContextManager[None]:
    """Return what shows the stages of a verb as its flags say: all with -v, the running one on a terminal."""
    verbose, quiet = bool(ctx.meta.get(_VERBOSE)), bool(ctx.params.get("quiet") or ctx.meta.get(_QUIET))
    if not verbose and (quiet or not sys.stderr.isatty()):
        return nullcontext()
    from ..output.watching import watching

    return watching(verbose)
