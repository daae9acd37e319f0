"""A space as a file: what a search may choose, in the words of the flags; lists are axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...ir.errors import UnknownNameError, UsageError
from ...ir.plan.word import Value
from ...ir.text.formats import read_yaml
from ...ir.text.untrusted import read_settings
from .axes import Asked, is_path, numbers_of, parameter, values_of
from .sampling import KEYS as SAMPLING
from .sampling import Sampling, schema

SCHEMA = "slipstick/space/1"
# Keys of the file besides flags.
MODEL, SET, VARY, OBJECTIVES, CONSTRAINTS = "model", "set", "vary", "objectives", "constraints"
ROWS = "block_rows"
_KEYS = ("schema", MODEL, SET, VARY, OBJECTIVES, CONSTRAINTS, ROWS, *SAMPLING)


def read_space(path: Path) -> Asked:
    """Read a file of a space.

    Raises:
        UsageError: a file that cannot be read, or a value that a flag does not have.
        UnknownNameError: a key that is no flag, the nearest named.
    """
    try:
        return space_of(read_settings(path), str(path))
    except OSError as error:
        raise UsageError(f"cannot read space '{path}': {error.strerror}") from None


def space_of(text: str, name: str) -> Asked:
    """Read the text of a file of a space; errors as `read_space`."""
    tree = read_yaml(text, name)
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise UsageError(f"{name}: a space is a mapping, as in 'tp: [1, 2, 4, 8]'")
    if tree.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"{name}: schema '{tree['schema']}' is not '{SCHEMA}'")
    flags = {key: value for key, value in tree.items() if key not in _KEYS}
    return Asked(
        model=str(tree.get(MODEL, "")),
        flags=dict(_flags(flags, name)),
        paths=dict(_paths(tree, name)),
        objectives=_texts(tree.get(OBJECTIVES), name, OBJECTIVES),
        constraints=_texts(tree.get(CONSTRAINTS), name, CONSTRAINTS),
        rows_at_once=_rows(tree.get(ROWS), name),
        sampling=Sampling.of(tree, name),
    )


def space_yaml(asked: Asked) -> str:
    """Return what was asked as a file of a space, from which the same can be asked again.

    >>> print(space_yaml(Asked(model="m", flags={"tp": (1, 8), "gpus": (64,)}, objectives=("mfu",))), end="")
    schema: slipstick/space/1
    model: m
    tp: [1, 8]
    gpus: 64
    objectives: [mfu]
    """
    words: dict[str, object] = {"schema": SCHEMA, MODEL: asked.model}
    words |= {name: _written(name, values) for name, values in asked.flags.items()}
    # A range, which is one text, or a list.
    words |= {
        key: value
        for key, value in (
            (SET, [f"{path}={values[0]}" for path, values in asked.paths.items() if not _is_varied(values)]),
            (
                VARY,
                {
                    path: values[0] if len(values) == 1 else list(values)
                    for path, values in asked.paths.items()
                    if _is_varied(values)
                },
            ),
            (OBJECTIVES, list(asked.objectives)),
            (CONSTRAINTS, list(asked.constraints)),
            (ROWS, asked.rows_at_once),
        )
        if value
    }
    words |= asked.sampling.given()
    return "".join(f"{key}: {_dumped(value)}\n" for key, value in words.items())


def _is_varied(values: Sequence[str]) -> bool:
    from ...explore.ranges import is_range

    return len(values) > 1 or is_range(values[0])


def _dumped(value: object) -> str:
    """A value on one line, as YAML has it."""
    import yaml

    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").rstrip("\n")


def space_schema() -> dict[str, object]:
    """Return the JSON Schema of such a file."""
    from .axes import SINGLE, takes_many, words_of_a_space

    value = {"type": ["string", "number", "boolean", "null"]}
    listed = {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]}
    texts = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    flags = {
        opt.field: {
            **(value if opt.field in SINGLE - {"system"} and not takes_many(opt.field) else listed),
            "description": opt.help,
        }
        for opt in words_of_a_space()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "space",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "schema": {"const": SCHEMA},
            MODEL: {"type": "string"},
            **flags,
            SET: texts,
            VARY: {"type": "object", "additionalProperties": listed},
            OBJECTIVES: texts,
            CONSTRAINTS: texts,
            ROWS: {"type": "integer", "minimum": 1},
            **schema(),
        },
    }


def _written(name: str, values: tuple[Value, ...]) -> object:
    words = [_word(value) for value in values]
    return words if len(words) > 1 else words[0]


def _word(value: Value) -> object:
    if value is None:
        return "none"
    return value.replace(",", "+") if isinstance(value, str) else list(value) if isinstance(value, tuple) else value


def _flags(given: Mapping[str, object], name: str) -> Iterator[tuple[str, tuple[Value, ...]]]:
    for key, value in given.items():
        if isinstance(value, dict):
            raise UsageError(f"{name}: {key}: a value, or a list of values")
        try:
            if isinstance(value, list):
                yield parameter(key), values_of(key, value)
            else:
                yield (
                    parameter(key),
                    values_of(
                        key, [("none" if value is None else str(value))] if not isinstance(value, str) else value
                    ),
                )
        except UnknownNameError as error:
            raise UnknownNameError(f"{name}: {error}") from None
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None


def _rows(value: object, name: str) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise UsageError(f"{name}: {ROWS}: '{value}' is no number of candidates: 1 or more")
    return value


def _paths(tree: Mapping[str, object], name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for text in _texts(tree.get(SET), name, SET):
        path, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{name}: set: '{text}': PATH=VALUE")
        yield path.strip(), (value.strip(),)
    varied = tree.get(VARY) or {}
    if not isinstance(varied, dict):
        raise UsageError(f"{name}: vary: a mapping of paths, as in 'chip.memory.hbm.bandwidth: 2TB/s:10TB/s:9'")
    for path, values in varied.items():
        if not is_path(str(path)):
            raise UsageError(f"{name}: vary: '{path}' is no path of a number of the system; flags stand outside of it")
        yield str(path), numbers_of(str(path), values if isinstance(values, list) else str(values))


def _texts(value: object, name: str, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{name}: {key}: a text, or a list of texts")
    return tuple(value)
