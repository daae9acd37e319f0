"""The vocabulary of the functions as a module: made from the flags of the verbs, so that type checkers know it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from slipstick.cli import root
from slipstick.cli.estimate import OF_SERVING, OF_STEPS
from slipstick.cli.flags.shared import takes_list
from slipstick.cli.output.answers import Answering
from slipstick.cli.python.calls import command_of as find_command
from slipstick.cli.python.calls import words_of
from slipstick.cli.search.axes import REFUSED
from slipstick.cli.serving.size import OF_STEPS as NOT_OF_SIZES

# A function, its verb, and the flags of it that the function says otherwise, or that it would refuse.
FUNCTIONS: Mapping[str, tuple[str, frozenset[str]]] = {
    "estimate": ("estimate", frozenset({"system", *OF_SERVING})),
    "serve": ("estimate", frozenset({"system", "phase", *OF_STEPS})),
    "size": ("size", frozenset({"system", "phase", *NOT_OF_SIZES})),
    "cost": ("cost", frozenset()),
    "mixed": ("mixed", frozenset({"system"})),
    "posttrain": ("posttrain", frozenset({"system"})),
    "recompute": ("recompute", frozenset({"system"})),
    "search": ("search", frozenset({"system", *REFUSED})),
    "sweep": ("sweep", frozenset({"system", "rent"})),
    "optimise": ("design optimise", frozenset({"system", "rent", *REFUSED})),
    "topologies": ("topologies", frozenset({"system"})),
    "compile": ("compile", frozenset({"system"})),
    "trace": ("trace", frozenset()),
}
_HEAD = '''"""The words of each function with their types, for type checkers: made from the flags of its verb.

A test compares this file with the flags; `pytest tests/cli/python --update-golden` writes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict
'''
# A model and a system are arguments; whether a verb speaks is no part of its answer, but is a word.
_NUMBERS = ("N", "R", "N|SIZES", "AXIS", "RATE", "TIME", "X")


def command_of(verb: str) -> tuple[Answering, click.Context]:
    parent = click.Context(root, info_name="slipstick")
    return find_command(verb, parent), parent


def words_of_function(function: str) -> Mapping[str, str]:
    """The words of a function and their types, in the order of `--help`."""
    verb, left_out = FUNCTIONS[function]
    options = words_of(*command_of(verb))
    return {word: _hint(option) for word, option in options.items() if str(option.name) not in left_out}


def words_module() -> str:
    """The text of the module: what all verbs of plans share first, then what each has of its own."""
    found = {function: words_of_function(function) for function in FUNCTIONS}
    of_plans = [words for function, words in found.items() if function not in ("cost", "trace")]
    shared = {w: hint for w, hint in of_plans[0].items() if all(words.get(w) == hint for words in of_plans)}
    lines = [_HEAD, *_typed_dict("PlanWords", "TypedDict", "Words of a plan, its machine and its model.", shared)]
    for function, words in found.items():
        inherits = function not in ("cost", "trace")
        own = {w: hint for w, hint in words.items() if not inherits or w not in shared}
        base = "PlanWords" if inherits else "TypedDict"
        lines += ["", *_typed_dict(f"{function.title()}Words", base, f"Words of `{function}`.", own)]
    return "\n".join(lines) + "\n"


def _typed_dict(name: str, base: str, doc: str, words: Mapping[str, str]) -> Iterator[str]:
    yield from ("", f"class {name}({base}, total=False):", f'    """{doc}"""', "")
    yield from (f"    {word}: {hint}" for word, hint in words.items())


def _hint(option: click.Option) -> str:
    """The type of a word, by the type of its flag and by what stands for its value in `--help`."""
    shown, kind = str(option.metavar), option.type
    if option.is_flag or option.secondary_opts:
        return "bool"
    if option.multiple:
        return "str | Sequence[str] | Mapping[str, object]" if "=" in shown else "str | Sequence[str]"
    if isinstance(kind, click.Choice):
        return f"Literal[{', '.join(_quoted(map(str, kind.choices)))}]"
    if isinstance(kind, click.types.IntParamType):
        return "int"
    if isinstance(kind, click.types.FloatParamType):
        return "float"
    if takes_list(option):
        return "str | Sequence[str]"
    if isinstance(kind, click.Path) or "FILE" in shown:
        return "str | Path"
    return "str | float" if shown in _NUMBERS else "str"


def _quoted(words: Iterator[str] | Sequence[str]) -> list[str]:
    return [f'"{word}"' for word in words]


def words_file() -> Path:
    return Path(__file__).resolve().parents[3] / "cli" / "python" / "words.pyi"
