"""The form of a launch: a script, or settings in a file of JSON, TOML or YAML, with its variables filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

from ..ir.errors import ParseError
from ..ir.records import dataclass
from ..ir.text.formats import check_settings, read_json, read_toml, read_yaml
from .launch import Value, flattened, plain
from .shell.marks import UNKNOWN

_SUFFIXES = (".json", ".toml", ".yaml", ".yml")
# `$NAME`, `${NAME}`, and with a value where nobody sets it `${NAME:-value}` or, as Primus has it, `${NAME:value}`.
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-?([^{}]*))?\})")


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Settings of a file: by plain name, how each stands there, and the framework that the file names."""

    values: Mapping[str, Value]
    shown: Mapping[str, str]
    framework: str | None = None


def documents_of(text: str, name: str) -> list[object] | None:
    """Return the documents of a file of settings, each as mappings and lists; None for a script or a command line.

    ParseError with the line of what is no such file.
    """
    suffix, where = PurePath(name).suffix.lower(), name or "the launch"
    if suffix == ".json" or (suffix not in _SUFFIXES and text.lstrip().startswith("{")):
        return [read_json(text, where)]
    if suffix == ".toml":
        return [read_toml(text, where)]
    if suffix in (".yaml", ".yml"):
        return _yaml(text, where)
    check_settings(text, where)
    return None


def _yaml(text: str, where: str) -> list[object]:
    """Read the documents of a file of YAML, each with as many empty lines before it as it has in the file."""
    check_settings(text, where)
    found, before = [], 0
    for part in re.split(r"^---(?:[ \t].*)?$\n?", text, flags=re.MULTILINE):
        document = read_yaml("\n" * before + part, where) if part.strip() else None
        found += [] if document is None else [document]
        before += part.count("\n") + 1
    return found


def settings_in(tree: object, environment: Mapping[str, str]) -> FileSettings:
    """Return the settings of a file; what is null there is not said.

    Of a test case of Megatron-LM these are its arguments, of an experiment of Primus what it overrides.
    """
    if not isinstance(tree, Mapping):
        raise ParseError("a file of settings holds a mapping, and this is a list or a single value")
    arguments, framework = tree, None
    listed = tree.get("modules")
    modules = listed.values() if isinstance(listed, Mapping) else ()
    if "MODEL_ARGS" in tree:
        arguments = tree.get("MODEL_ARGS") or tree.get("modules", {})
        if not isinstance(arguments, Mapping):
            raise ParseError("MODEL_ARGS is no mapping of flags")
        # A flag that is false there is not given.
        arguments = {name: value for name, value in arguments.items() if value is not False}
    elif module := next((one for one in modules if isinstance(one, Mapping) and "framework" in one), None):
        framework = {"light_megatron": "megatron"}.get(str(module["framework"]), str(module["framework"]))
        overrides = module.get("overrides")
        arguments = {**(overrides if isinstance(overrides, Mapping) else {}), "model": module.get("model")}
    values = {name: _filled(value, environment) for name, value in flattened(arguments).items() if value is not None}
    return FileSettings(values, {plain(str(key)): str(key) for key in arguments}, framework)


def _filled(value: Value, environment: Mapping[str, str]) -> Value:
    """Fill variables in; what nobody sets stands as unknown."""
    if not isinstance(value, str):
        return value

    def set_to(match: re.Match[str]) -> str:
        found = environment.get(match[1] or match[2], match[3])
        return f"{UNKNOWN}{match[0]}{UNKNOWN}" if found is None else found

    return _VARIABLE.sub(set_to, value)
