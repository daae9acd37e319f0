"""Defaults of one's own: `slipstick.toml` and variables `SLIPSTICK_*`, below plan files and flags."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from ...ir.errors import NotUnderstoodError, ParseError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

FILE: Final = "slipstick.toml"
PREFIX: Final = "SLIPSTICK_"
# The section for all verbs; others are named as their verb.
ALL: Final = "defaults"
# Flags that a file may not set, since they do more than describe a job; the variables of a user may.
_EFFECTS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("output", "best_plan", "best_system", "front", "dump_dir", "deploy", "runs", "study", "timeline", "emit"),
            "writes files",
        ),
        **dict.fromkeys(("plan", "from", "space", "resume", "measured", "input"), "names another job"),
        **dict.fromkeys(("loss", "draft", "verify_sizes"), "may run code"),
        **dict.fromkeys(("address", "allow_download", "port", "executor"), "opens connections"),
        "quiet": "hides messages",
    }
)
# Variables that are no defaults of flags: folders, limits, and how the program itself runs.
RESERVED: Final = frozenset({"CACHE", "CAPTURE", "CONFIG", "DEBUG", "LIMITS", "RUNS"})


class OwnDefaults(Mapping[str, Mapping[str, object]]):
    """Defaults by verb and parameter, read when a verb asks; `say` gets a line that tells what was read and from where.

    The nearest counts: a variable of the verb (`SLIPSTICK_ESTIMATE_ZERO=1`), one of all verbs (`SLIPSTICK_SYSTEM`), the
    section of the verb in the file, and its section `[defaults]`.
    """

    def __init__(self, verbs: click.Group, say: Callable[[str], None]) -> None:
        self._verbs, self._say = verbs, say
        self._read: dict[str, Mapping[str, object]] = {}

    def __getitem__(self, verb: str) -> Mapping[str, object]:
        if verb not in self._read:
            self._read[verb] = self._of(verb)
        return self._read[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verbs.list_commands(click.Context(self._verbs)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _of(self, verb: str) -> Mapping[str, object]:
        command = self._verbs.get_command(click.Context(self._verbs), verb)
        path = _file()
        if command is None or (path is None and not any(name.startswith(PREFIX) for name in os.environ)):
            return {}
        params = command.get_params(click.Context(command))
        # Flags of plans are heavy, and most people have no defaults of their own.
        from .shared import flag_name

        refused = ("help", "help_all", *getattr(command, "refused", ()))
        known = {flag_name(p): p for p in params if isinstance(p, click.Option) and p.name not in refused}
        found: dict[str, tuple[click.Option, object, str]] = {}
        for section in (ALL, verb):
            for name, value in _section(path, section, self).items() if path is not None else ():
                plain = name.replace("-", "_")
                if (effect := _EFFECTS.get(plain)) is not None:
                    flag = f"--{plain.replace('_', '-')}"
                    raise NotUnderstoodError(
                        f"{path} [{section}]: {name}: {flag} {effect}, which a file of defaults may not do; "
                        f"remove it and type {flag}"
                    )
                if plain in known:
                    found[plain] = (known[plain], value, f"{FILE if path is None else path.name} [{section}]")
                elif section != ALL:
                    raise UnknownNameError.of(f"flag in [{verb}] of {path}", name, sorted(known))
        for name, option in known.items():
            upper = name.upper()
            for variable in (upper, f"{verb.upper()}_{upper}"):
                value = os.environ.get(f"{PREFIX}{variable}")
                if value and variable not in RESERVED:
                    found[name] = (option, value, f"{PREFIX}{variable}")
        line = ", ".join(f"--{name.replace('_', '-')} {value} ({source})" for name, (_, value, source) in found.items())
        if line:
            self._say(f"defaults: {line}")
        return {str(option.name): _value(option, value) for option, value, _ in found.values()}


def used(ctx: click.Context) -> Iterator[str]:
    """Yield the defaults that a verb took from a file or the environment, as flags: a command with them says all."""
    settings = None if ctx.parent is None else ctx.parent.default_map
    own = {} if settings is None else settings.get(str(ctx.info_name)) or {}
    default_map = click.core.ParameterSource.DEFAULT_MAP
    for param in ctx.command.get_params(ctx):
        name = str(param.name)
        if name not in own or ctx.get_parameter_source(name) is not default_map:
            continue
        if (ctx.default_map or {}).get(str(name)) is own[name] and param.expose_value:
            yield from _flags(param, own[name])


def _flags(param: click.Parameter, value: object) -> Iterator[str]:
    assert isinstance(param, click.Option)
    name = next(opt for opt in param.opts if opt.startswith("--"))
    if isinstance(value, bool) or param.is_flag:
        yield from (name,) if value and value != "false" else param.secondary_opts[:1]
    else:
        yield from (f"{name}={one}" for one in (value if isinstance(value, list) else [value]))


def _file() -> Path | None:
    """Return the file: the one that SLIPSTICK_CONFIG names, that of the folder, or that of the user."""
    if (named := os.environ.get(f"{PREFIX}CONFIG")) is not None:
        return Path(named) if named else None
    from ...ir.host.folders import home_folder

    home = home_folder()
    folder = os.environ.get("XDG_CONFIG_HOME") or (home and home / ".config")
    places = [Path(FILE), *([Path(folder, "slipstick", FILE)] if folder else [])]
    return next((path for path in places if path.is_file()), None)


def _section(path: Path, name: str, verbs: Mapping[str, object]) -> Mapping[str, object]:
    from ...ir.text.formats import read_toml
    from ...ir.text.untrusted import read_text

    tree = read_toml(read_text(path), str(path))
    allowed = [ALL, *verbs]
    for section, settings in tree.items():
        if not isinstance(settings, Mapping):
            raise ParseError(f"{path}: {section}: a section holds flags, as in [{ALL}] and a line system = 'dgx-h100'")
        if section not in allowed:
            raise UnknownNameError.of(f"section of {path}", section, allowed)
    found = tree.get(name, {})
    assert isinstance(found, Mapping)
    return found


def _value(option: click.Option, value: object) -> object:
    """Return a value as if typed: repeatable flags a list, pairs as KEY=VALUE, lists with commas, all of it text.

    A flag without a value is true or false.
    """
    if isinstance(value, bool) and option.is_flag:
        return value
    if isinstance(value, Mapping):
        value = [f"{key}={_text(one)}" for key, one in value.items()]
    texts = [_text(one) for one in (value if isinstance(value, list) else [value])]
    return texts if option.multiple else ",".join(texts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
