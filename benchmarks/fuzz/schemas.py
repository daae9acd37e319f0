"""Keys and values as the product states them: a new flag is tried in plans and files of defaults by itself."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache

import click

from slipstick.cli.flags.shared import flag_name

from .mutate import ODD, Tree
from .words import GOOD, commands, value_of

# What a plan file of training steps may not be without, and what the seed says anyway.
_KEPT = ("help", "help_all", "plan", "model", "system", "schema", "phase")


@cache
def keys(verb: str) -> Mapping[str, click.Option]:
    """Return options of a verb by the names that files have for them."""
    options = [param for param in commands()[verb].params if isinstance(param, click.Option) and not param.is_eager]
    return {name: option for option in options if (name := flag_name(option)) not in _KEPT}


def grow_words(rng: random.Random, verb: str, words: Mapping[str, Tree]) -> dict[str, Tree]:
    """Return words of a file with one to four options of a verb put in; most have a value of their type."""
    grown = dict(words)
    for name in rng.sample(sorted(keys(verb)), rng.choice([1, 1, 2, 4])):
        option = keys(verb)[name]
        grown[name] = rng.choice(ODD) if rng.random() < 0.1 else _value(rng, option)
    return grown


def write_defaults(rng: random.Random, verb: str) -> str:
    """Return a file of defaults with a section of a verb, in TOML."""
    lines = [f"{name} = {_toml(value)}" for name, value in grow_words(rng, verb, {}).items()]
    return "\n".join([f"[{rng.choice(['defaults', verb, verb, verb])}]", *lines, ""])


def _value(rng: random.Random, option: click.Option) -> Tree:
    if option.is_flag:
        return rng.random() < 0.7
    text = rng.choice(GOOD) if isinstance(option.type, click.types.IntParamType) else value_of(rng, option)
    value: Tree = int(text) if text.isascii() and text.isdigit() and len(text) < 300 else text
    return [value] if option.multiple else value


def _toml(value: Tree) -> str:
    # TOML has no null; JSON's strings, lists and numbers are its own.
    return "nan" if value is None else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
