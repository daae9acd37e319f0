"""Defaults of one's own: `slipstick.toml` and variables `SLIPSTICK_*`, below plan files and flags."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ...ir.errors import NotUnderstoodError, ParseError, UnknownNameError
from ..arguments.options import Opt, text_of
from ..sources import Layer, Setting, Source

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


def has_own_defaults() -> bool:
    """Return whether a file or the environment says anything."""
    return _file() is not None or any(name.startswith(PREFIX) for name in os.environ)


def read_own_defaults(verb: str, known: Mapping[str, Opt], verbs: Sequence[str], say: Callable[[str], None]) -> Layer:
    """Return the defaults of a verb with these words, by fields, as if typed; `say` gets what was read and from where.

    The nearest counts: a variable of the verb (`SLIPSTICK_ESTIMATE_ZERO=1`), one of all verbs (`SLIPSTICK_SYSTEM`), the
    section of the verb in the file, and its section `[defaults]`. With `verbs`, sections of others are refused.
    """
    path = _file()
    found: dict[str, tuple[Setting, str]] = {}
    for section in (ALL, verb):
        for name, value in _section(path, section, verbs).items() if path is not None else ():
            plain = name.replace("-", "_")
            if (effect := _EFFECTS.get(plain)) is not None:
                flag = f"--{plain.replace('_', '-')}"
                raise NotUnderstoodError(
                    f"{path} [{section}]: {name}: {flag} {effect}, which a file of defaults may not do; "
                    f"remove it and type {flag}"
                )
            if plain in known:
                found[plain] = Setting(value, Source.FOLDER), f"{FILE if path is None else path.name} [{section}]"
            elif section != ALL:
                raise UnknownNameError.of(f"flag in [{verb}] of {path}", name, sorted(known))
    for name in known:
        upper = name.upper()
        for variable in (upper, f"{verb.upper()}_{upper}"):
            value = os.environ.get(f"{PREFIX}{variable}")
            if value and variable not in RESERVED:
                found[name] = Setting(value, Source.ENVIRONMENT), f"{PREFIX}{variable}"
    line = ", ".join(f"--{name.replace('_', '-')} {one.value} ({where})" for name, (one, where) in found.items())
    if line:
        say(f"defaults: {line}")
    return {known[name].field: Setting(_value(known[name], one.value), one.source) for name, (one, _) in found.items()}


def used_defaults(known: Mapping[str, Opt], own: Layer, settings: Layer) -> tuple[str, ...]:
    """Return the defaults that count as flags: a command with them says all."""
    fields = {opt.field: opt for opt in known.values()}
    flags = (
        (fields[name], one) for name, one in own.items() if name in settings and settings[name].source is one.source
    )
    return tuple(flag for opt, one in flags for flag in opt.flags_of(one.value))


def _file() -> Path | None:
    """Return the file: the one that SLIPSTICK_CONFIG names, that of the folder, or that of the user."""
    if (named := os.environ.get(f"{PREFIX}CONFIG")) is not None:
        return Path(named) if named else None
    from ...ir.host.folders import home_folder

    home = home_folder()
    folder = os.environ.get("XDG_CONFIG_HOME") or (home and home / ".config")
    places = [Path(FILE), *([Path(folder, "slipstick", FILE)] if folder else [])]
    return next((path for path in places if path.is_file()), None)


def _section(path: Path, name: str, verbs: Sequence[str]) -> Mapping[str, object]:
    from ...ir.text.formats import read_toml
    from ...ir.text.untrusted import read_text

    tree = read_toml(read_text(path), str(path))
    allowed = [ALL, *verbs]
    for section, settings in tree.items():
        if not isinstance(settings, Mapping):
            raise ParseError(f"{path}: {section}: a section holds flags, as in [{ALL}] and a line system = 'dgx-h100'")
        if verbs and section not in allowed:
            raise UnknownNameError.of(f"section of {path}", section, allowed)
    found = tree.get(name, {})
    assert isinstance(found, Mapping)
    return found


def _value(opt: Opt, value: object) -> object:
    """Return a value as if typed: repeatable flags a list, pairs as KEY=VALUE, lists with commas, all of it text.

    A flag without a value is true or false.
    """
    if isinstance(value, bool) and opt.is_switch:
        return value
    if isinstance(value, Mapping):
        value = [f"{key}={text_of(one)}" for key, one in value.items()]
    texts = [text_of(one) for one in (value if isinstance(value, list) else [value])]
    return texts if opt.is_many else ",".join(texts)
