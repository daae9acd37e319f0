"""Keys and values as the product states them: what a schema or a verb learns is tried by itself."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TypeAlias, cast

import click

from slipstick.cli.flags.names import flag_name
from slipstick.cli.plans.schemas import schema_of

from .judge import CODE
from .mutate import ODD, Tree, times
from .seeds import TRAINING
from .words import GOOD, good_value, options_of, value_of

Schema: TypeAlias = "dict[str, Tree]"
_DEEPEST = 6


@cache
def _whole(kind: str) -> Schema:
    return cast("Schema", schema_of(kind))


def grown(rng: random.Random, tree: Tree, kind: str) -> Tree:
    """Return a file of a kind with one to four keys of its schema put where they may stand; most values fit."""
    found, whole = copy.deepcopy(tree), _whole(kind)
    records = list(_records(found, whole, whole))
    for _ in range(times(rng, [1, 1, 2, 4]) if records else 0):
        record, properties = rng.choice(records)
        key = rng.choice(sorted(properties))
        record[key] = _value(rng, properties[key], whole, 0)
    return found


def _forms(schema: Tree, whole: Schema) -> Iterator[Schema]:
    """Yield the schemas that a value may follow, references and choices resolved."""
    if not isinstance(schema, dict):
        return
    reference, choices = schema.get("$ref"), schema.get("anyOf", schema.get("oneOf"))
    if isinstance(reference, str):
        definitions = whole["$defs"]
        assert isinstance(definitions, dict)
        yield from _forms(definitions[reference.rpartition("/")[2]], whole)
    elif isinstance(choices, list) and "properties" not in schema:
        for one in choices:
            # A quantity says its units once, above the forms that it may have.
            told = {"description": schema["description"]} if "description" in schema else {}
            yield from _forms({**one, **told} if isinstance(one, dict) else one, whole)
    else:
        yield schema


def _records(tree: Tree, schema: Tree, whole: Schema) -> Iterator[tuple[dict[str, Tree], Schema]]:
    """Yield each record of a file with the properties that it may have."""
    for form in _forms(schema, whole):
        if isinstance(tree, dict):
            properties, others = form.get("properties"), form.get("additionalProperties")
            known = properties if isinstance(properties, dict) else {}
            if known:
                yield tree, known
            for key, value in tree.items():
                yield from _records(value, known.get(key, others), whole)
        elif isinstance(tree, list):
            for value in tree:
                yield from _records(value, form.get("items"), whole)


def _value(rng: random.Random, schema: Tree, whole: Schema, depth: int) -> Tree:
    forms = list(_forms(schema, whole))
    if rng.random() < 0.1 or not forms or depth > _DEEPEST:
        return copy.deepcopy(rng.choice((*ODD, *CODE)))
    form = rng.choice(forms)
    if "const" in form:
        return form["const"]
    choices, types = form.get("enum"), form.get("type", "string")
    if isinstance(choices, list):
        return rng.choice(choices)
    kind = rng.choice(types) if isinstance(types, list) else types
    if kind == "object":
        return _record(rng, form, whole, depth)
    if kind == "array":
        return [_value(rng, form.get("items"), whole, depth + 1) for _ in range(rng.choice([1, 1, 2, 3]))]
    if kind in ("integer", "number"):
        return rng.choice([1, 2, 4, 8, 64, *([0.5, 1.5, 3e9] if kind == "number" else [])])
    return {"boolean": rng.random() < 0.7, "null": None}.get(str(kind), _text(rng, form))


def _record(rng: random.Random, form: Schema, whole: Schema, depth: int) -> Tree:
    properties, needed = form.get("properties"), form.get("required", [])
    if not isinstance(properties, dict) or not isinstance(needed, list):
        return {rng.choice(["bf16", "default", "x"]): _value(rng, form.get("additionalProperties"), whole, depth + 1)}
    names = {str(name) for name in needed} | {rng.choice(sorted(properties))}
    return {name: _value(rng, properties[name], whole, depth + 1) for name in sorted(names) if name in properties}


def _text(rng: random.Random, form: Schema) -> str:
    """Return a text: a number with a unit where the schema says which there are."""
    told = re.search(r"Units: ([^.]+)", str(form.get("description", "")))
    if told and rng.random() < 0.9:
        return f"{rng.choice(GOOD)} {rng.choice(told[1].split(', '))}"
    return rng.choice((*GOOD, "x", "full", "bf16", "h100-sxm-80gb", *CODE))


@cache
def _flags(verb: str) -> Mapping[str, click.Option]:
    """Return options of a verb by the names that files of defaults have for them."""
    return {flag_name(option): option for option in options_of(verb)}


def write_defaults(rng: random.Random, verb: str) -> str:
    """Return a file of defaults, in TOML, that says flags of a verb: half of them of a plan, beside one that fits."""
    words: dict[str, Tree] = {"tp": 2}
    if is_good := rng.random() < 0.6:
        plan = rng.choice(TRAINING)
        names = [name for name in plan if name in _flags(verb) and name not in ("phase", "schema")]
        words |= {name: plan[name] for name in rng.sample(names, times(rng, [1, 2, 3]))}
    for _ in range(times(rng, [0, 0, 1] if is_good else [1, 1, 2, 4])):
        name = rng.choice(sorted(_flags(verb)))
        odd = not is_good and rng.random() < 0.4
        words[name] = rng.choice((*ODD, *CODE)) if odd else _word(rng, _flags(verb)[name], is_good)
    lines = [f"{name} = {_toml(value)}" for name, value in words.items()]
    return "\n".join([f"[{rng.choice(['defaults', verb])}]", *lines, ""])


def _word(rng: random.Random, option: click.Option, is_good: bool) -> Tree:
    if option.is_flag:
        return rng.random() < 0.7
    text = good_value(rng, option) if is_good else value_of(rng, option)
    return [text] if option.multiple else text


def _toml(value: Tree) -> str:
    # TOML has no null; JSON's strings, lists and numbers are its own.
    return "nan" if value is None else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
