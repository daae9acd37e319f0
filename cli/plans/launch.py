"""`--from` and `--env`: a launch says what neither the command line nor a plan file does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from .file import defaults, read_plan_file

if TYPE_CHECKING:
    from ...frameworks.imported import LaunchAround

F = TypeVar("F", bound=Callable[..., object])
# Parameters that a launch is read with, and those that name one.
_READ = ("launch", "plan", "gpus", "system", "model", "environment")
_ENV = ("--env", "environment")
_ENV_HELP = "Environment variable for the script of a launch. Repeatable."

FROM = click.Option(
    ["--from", "--launch", "launch"],
    metavar="FILE|COMMAND",
    expose_value=False,
    help="Launch of another framework, read as by `slipstick import`: a script, a file of settings, or a command as "
    "one quoted word. Flags on the command line override it.",
)
ENV = click.Option(_ENV, multiple=True, expose_value=False, metavar="NAME=VALUE", help=_ENV_HELP)


def environment_option(function: F) -> F:
    """Give a verb the same flag as a parameter."""
    return click.option(*_ENV, multiple=True, metavar="NAME=VALUE", help=_ENV_HELP)(function)


def use_launch(ctx: click.Context, args: list[str]) -> Mapping[str, object]:
    """Make a launch the defaults of a verb, read with what is typed of its GPUs, system, model and variables.

    A plan file beside it overrides the launch, and is part of what the launch is read with. Returns the GPUs as the
    launch counts them, which override what is typed of them.
    """
    if ctx.resilient_parsing:
        return {}
    typed = _typed_values(ctx, args)
    given = typed.get("launch") or (ctx.default_map or {}).get("launch")
    if given is None:
        return {}
    from ...frameworks.imported import import_launch

    path = typed.get("plan") or (ctx.default_map or {}).get("plan")
    above = {**({} if path is None else read_plan_file(str(path), ctx)), **typed}
    plan = import_launch((str(given),), _around(above))
    ctx.default_map = {**(ctx.default_map or {}), **defaults(plan.text, str(given), ctx)}
    place = "the launch" if " " in str(given) else given
    for line in plan.notes:
        click.echo(f"note: {place}: {line}", err=True)
    return {"gpus": plan.words["gpus"]} if above.get("gpus") else {}


def _around(values: Mapping[str, object]) -> LaunchAround:
    """Return what is said around a launch, of values by the names of a verb's parameters."""
    from ...frameworks.imported import LaunchAround

    gpus, system, model = (values.get(name) for name in ("gpus", "system", "model"))
    listed = values.get("environment")
    return LaunchAround(
        num_gpus=gpus if isinstance(gpus, int) else None,
        system=None if system is None else str(system),
        model=None if model is None else str(model),
        environment=tuple(map(str, listed)) if isinstance(listed, list | tuple) else (),
    )


def _typed_values(ctx: click.Context, args: list[str]) -> Mapping[str, object]:
    """Return what is typed, by the names of a verb's parameters, as their types read it."""
    raw = ctx.command.make_parser(ctx).parse_args(list(args))[0]
    params = {str(param.name): param for param in ctx.command.get_params(ctx)}
    known = (name for name, value in raw.items() if isinstance(value, str | list | tuple))
    wanted = (name for name in known if name in _READ)
    return {name: params[name].type_cast_value(ctx, raw[name]) for name in wanted}
