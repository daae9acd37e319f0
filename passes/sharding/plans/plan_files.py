"""A file of tensor-parallel styles (YAML, JSON or TOML) to a plan, and a plan to the text of such a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ....ir.errors import UnknownNameError, UsageError
from ....ir.text.formats import read_toml, yaml_node
from ....ir.text.untrusted import read_settings
from .plans import Style, TpPlan, style_of

SUFFIXES = (".json", ".toml", ".yaml", ".yml")
_EAGER = "eager_grads"


def names_file(name: str) -> bool:
    """Whether a plan's name is the path of a file."""
    return name.endswith(SUFFIXES)


def read_plan(path: str) -> TpPlan:
    """Read a plan from a file of `pattern: style` entries; the first match wins.

    `eager_grads: true` says that each layer reduces its own input gradient. UsageError names file, line and key.
    """
    entries: list[tuple[str, Style]] = []
    eager = False
    try:
        text = read_settings(Path(path))
    except OSError as error:
        raise UsageError(f"cannot read tensor-parallel plan '{path}': {error.strerror}") from error
    for pattern, word, where in _pairs(path, text):
        if pattern == _EAGER:
            if word not in ("true", "false"):
                raise UsageError(f"{where}: {_EAGER} is '{word}'; allowed: true, false")
            eager = word == "true"
        else:
            entries.append((pattern, _style(pattern, word, where)))
    if not entries:
        raise UsageError(f"'{path}' names no layer; an entry looks like `model.layers.*.mlp.up_proj: colwise`")
    return TpPlan(path, tuple(entries), eager_grads=eager, doc=f"read from '{path}'")


def plan_text(plan: TpPlan, parameters: Mapping[str, Style]) -> str:
    """Write what a plan does with each parameter as a file that `read_plan` reads back (YAML, in the plan's order)."""
    lines = [f"# tensor-parallel plan '{plan.name}', parameter by parameter; what is not named is replicated"]
    lines += [f"{_EAGER}: true"] if plan.eager_grads else []
    lines += [f'"{name}": {style}' for name, style in parameters.items() if style is not Style.REPLICATE]
    return "\n".join(lines) + "\n"


def _style(pattern: str, word: str, where: str) -> Style:
    try:
        return style_of(word)
    except UnknownNameError as error:
        raise UnknownNameError(f"{where}: '{pattern}': {error}") from error


def _pairs(path: str, text: str) -> Iterator[tuple[str, str, str]]:
    """Yield pattern, style and place of each entry."""
    yield from _from_toml(path, text) if path.endswith(".toml") else _from_yaml(path, text)


def _from_toml(path: str, text: str) -> Iterator[tuple[str, str, str]]:
    for key, value in read_toml(text, path).items():
        where = f"{path}, key '{key}'"
        if not isinstance(value, str | bool):
            raise UsageError(f"{where}: a pattern with dots is written in quotes, and its style is a word")
        yield key, str(value).lower() if isinstance(value, bool) else value, where


def _from_yaml(path: str, text: str) -> Iterator[tuple[str, str, str]]:
    """JSON is YAML too; nodes know their lines, which loaded values do not."""
    import yaml

    root = yaml_node(text, path, yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"'{path}' holds no mapping; an entry looks like `model.layers.*.mlp.up_proj: colwise`")
    for key, value in root.value:
        where = f"{path}, line {key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            raise UsageError(f"{where}: an entry is a pattern and one word, such as `model.layers.*.up_proj: colwise`")
        yield str(key.value), str(value.value), where
