"""`--plan FILE`: a file in the words of the flags, which say what is not typed; and a plan as such a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ...ir.text.formats import yaml_node
from ...ir.text.untrusted import read_settings
from ..flags.shared import flag_name, takes_list, words_of

if TYPE_CHECKING:
    import yaml

# Frameworks whose launches are read.
FRAMEWORKS = (
    "megatron",
    "torchtitan",
    "deepspeed",
    "transformers",
    "nanotron",
    "maxtext",
    "vllm",
    "sglang",
    "tensorrt-llm",
    "lmdeploy",
)
_SCHEMA, _FRAMEWORK = "schema", "framework"
# Where a context keeps the framework whose launch its plan comes from.
_OF_LAUNCH = "slipstick.framework"
_EXAMPLE = "an entry looks like `tp: 8`"


@dataclass(frozen=True, slots=True)
class PlanFileEntry:
    """One entry of a plan file: its key as written, its value as text or as texts, and its line."""

    key: str
    value: str | tuple[str, ...]
    line: int


def use_plan_file(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Let a plan file say what the command line does not: what a file says is a default of its flag."""
    if path is None or ctx.resilient_parsing:
        return path
    ctx.default_map = {**(ctx.default_map or {}), **read_plan_file(path, ctx)}
    return path


def read_plan_file(path: str, ctx: click.Context) -> Mapping[str, object]:
    """Return what a plan file says, as `defaults`; UsageError where it cannot be read."""
    try:
        text = read_settings(Path(path))
    except OSError as error:
        raise UsageError(f"cannot read plan '{path}': {error.strerror}") from error
    return defaults(text, path, ctx)


def defaults(text: str, path: str, ctx: click.Context) -> Mapping[str, object]:
    """Return what a plan file says as values of the parameters of a verb, by their names; keep whose launch it is of.

    UnknownNameError for a key that is none, UsageError for a value that its flag refuses, both with the line.
    """
    known = _words_of_files(ctx)
    flags = {name: p for p in ctx.command.get_params(ctx) if (name := flag_name(p)) in known}
    found: dict[str, object] = {}
    for entry in entries(text, path):
        if entry.key == _FRAMEWORK:
            ctx.meta[_OF_LAUNCH] = _framework(entry, path)
            continue
        flag = _flag(entry, flags, path, ctx)
        if str(flag.name) in found:
            raise UsageError(
                f"{path}:{entry.line}: {entry.key}: said twice, under two names of one flag: leave one out"
            )
        found[str(flag.name)] = _value(entry, flag, path, ctx)
    return found


def plan_file_flag() -> click.Option:
    """Return the flag that reads a plan file, before all others."""
    return click.Option(
        ["--plan"],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=use_plan_file,
        help="Plan file (YAML, JSON): values of other flags under their names: `tp: 8`, `gbs: 2048`, also `model` "
        "and `system`. Flags on the command line override it. See `slipstick schema plan`.",
    )


def add_listed(ctx: click.Context) -> None:
    """Put what is typed of a repeatable flag behind what the plan file says of it: the last holds, as among the typed.

    `--set` beside a file that sets another number changes both.
    """
    typed = click.core.ParameterSource.COMMANDLINE
    for param in ctx.command.get_params(ctx):
        name = str(param.name)
        if param.multiple and name in (ctx.default_map or {}) and ctx.get_parameter_source(name) is typed:
            ctx.params[name] = (*(ctx.lookup_default(name) or ()), *ctx.params[name])


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether a flag was typed, or said by a plan file."""
    given = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.DEFAULT_MAP)
    return ctx.get_parameter_source(name) in given


def entries(text: str, path: str) -> Sequence[PlanFileEntry]:
    """Read the entries of a plan file, but for its schema; UsageError names the line of what is none."""
    import yaml

    top = yaml_node(text, path, yaml.BaseLoader)
    if not isinstance(top, yaml.MappingNode) or not top.value:
        raise UsageError(f"'{path}' is no plan: it has no entries; {_EXAMPLE}")
    found = [
        PlanFileEntry(
            str(key.value), _words(value, f"{path}:{key.start_mark.line + 1}: {key.value}"), key.start_mark.line + 1
        )
        for key, value in top.value
    ]
    from ...ir.plan.files import SCHEMA

    given = next((entry for entry in found if entry.key == _SCHEMA), None)
    if given is not None and given.value != SCHEMA:
        raise UsageError(f"{path}:{given.line}: schema {given.value}: this version reads {SCHEMA}")
    return tuple(entry for entry in found if entry.key != _SCHEMA)


def framework_of(ctx: click.Context) -> str | None:
    """Return the framework whose launch the plan of a verb comes from; None where it is of no launch."""
    framework = ctx.meta.get(_OF_LAUNCH)
    return None if framework is None else str(framework)


def _framework(entry: PlanFileEntry, path: str) -> str:
    """Return the framework that an entry names; UnknownNameError with the line for another."""
    if entry.value not in FRAMEWORKS:
        named = UnknownNameError.of("framework", str(entry.value), FRAMEWORKS)
        raise UnknownNameError(f"{path}:{entry.line}: {named}")
    return str(entry.value)


def _words_of_files(ctx: click.Context) -> Mapping[str, click.Parameter]:
    """What a plan file may say, whatever verb reads it: flags of `estimate`, which has all words of a plan."""
    root = ctx.find_root()
    whole = root.command.get_command(root, "estimate") if isinstance(root.command, click.Group) else ctx.command
    return words_of(getattr(whole, "more", ()))


def _words(value: yaml.Node, where: str) -> str | tuple[str, ...]:
    """Return a value as it is written; what it means is for its flag to say."""
    import yaml

    if isinstance(value, yaml.SequenceNode):
        found = [_words(one, where) for one in value.value]
        if all(isinstance(one, str) for one in found):
            return tuple(str(one) for one in found)
    if not isinstance(value, yaml.ScalarNode):
        raise UsageError(f"{where}: a value is a number, a word, true or false, or a list of these; {_EXAMPLE}")
    if value.style is None and value.value in ("", "null", "~"):
        raise UsageError(f"{where}: says nothing: leave it out")
    return str(value.value)


def _flag(entry: PlanFileEntry, flags: Mapping[str, click.Parameter], path: str, ctx: click.Context) -> click.Parameter:
    """Return the parameter that a key names by any of its long names, - and _ alike."""
    name = entry.key.replace("-", "_")
    for flag in flags.values():
        if name in {opt.lstrip("-").replace("-", "_") for opt in flag.opts}:
            return flag
    if name in _words_of_files(ctx):
        raise UsageError(
            f"{path}:{entry.line}: {entry.key}: `slipstick {ctx.info_name}` takes no such flag: leave it out"
        )
    raise UnknownNameError(f"{path}:{entry.line}: {UnknownNameError.of('key', entry.key, [_SCHEMA, *flags])}")


def _value(entry: PlanFileEntry, flag: click.Parameter, path: str, ctx: click.Context) -> object:
    """Read a value as its flag reads it; UsageError with the line for what it refuses."""
    given: str | tuple[str, ...] = entry.value
    if flag.multiple:
        given = (given,) if isinstance(given, str) else given
    elif not isinstance(given, str):
        if not takes_list(flag):
            raise UsageError(f"{path}:{entry.line}: {entry.key}: a list, and it takes one value; {_EXAMPLE}")
        given = ",".join(given)
    try:
        return flag.type_cast_value(ctx, given)
    except click.BadParameter as error:
        raise UsageError(f"{path}:{entry.line}: {entry.key}: {error.message}") from error
