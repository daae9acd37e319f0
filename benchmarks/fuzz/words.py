"""Hostile command lines: flags of every verb with values that are none, too large, or of another flag."""

from __future__ import annotations

import random
from functools import cache

import click

from slipstick.cli import VERBS, root

_MODELS = ("", "nope", "/dev/null", ".", "os:getcwd", "x:y", "\x1b[31m", "a" * 300, "../../etc/passwd")
_SYSTEMS = ("", "../x", "=cmd()", "<script>", "tpu-v5p-pod", "gb200-nvl72", "\x1b[31m")
_NUMBERS = (
    "0", "-1", "9" * 20, "9" * 500, "nan", "inf", "", "1e3", "\u0663", "0x10", "1.5", "1_000", "+4", "2147483648",
    "9223372036854775808", "1e308", "5e-324", "-0.0", "1/3",
)  # fmt: skip
_WORDS = (
    "", "-", "--", "{}", "a=b", "=", "*", "re:(a+)+$", "\n", "%d", "{0.__class__}", "$(id)", "\x1b[31m", "None", ",",
    "1:2", "-1:-1", "../../etc/passwd", "/dev/null", "poisson:nan", "poisson:5,n=1000000000", "closed:0",
    "burst:100000", "lognormal:-1,nan", "128..1", "1..1000000000", "tp=1..4", "chip.clock=nan",
    "chip.memory.hbm.bandwidth=0GB/s",
    "network.x.bandwidth=1TB/s", "step_time_s<nan", "mfu", "fp8", "none", "all", "1e999TB/s", "-5GB/s", "10 parsecs",
    "p99:500ms", "1h/x", "N5", "a" * 3000,
)  # fmt: skip
_NAMED = ("dgx-h100",) * 4 + ("base.json", "tiny.graph", "systems", "matmul", "mfu", "plan", "8")
GOOD = ("1", "2", "4", "8", "16", "128", "512")
# Verbs that take a model and flags; the rest as often as these together.
_OFTEN = ("estimate", "estimate", "estimate", "size", "export", "compile", "cost", "posttrain", "choose")
# What stands before the flags of a verb where it is no step on a machine.
_STEP = ("tiny.graph", "--system", "dgx-h100", "--gpus", "8", "--seq", "256", "--gbs", "16")
_USUAL = {
    "cost": ("dgx-h100",),
    "size": ("tiny.json", "--system", "dgx-h100", "--target-rps", "4", "--isl", "128", "--osl", "64"),
    "export": (*_STEP, "--to", "megatron"),
    "choose": (*_STEP, "--tokens", "1B"),
    "posttrain": ("tiny.json", "--system", "dgx-h100", "--gpus", "8", "--prompts", "8", "--max-tokens", "64"),
}
# What would work for long with any value, listens on a port, or measures this machine.
_LEFT_OUT = ("ui", "calibrate", "doctor", "sweep", "validate", "search", "recompute")
_QUIET = ("--trials", "--jobs", "--executor", "--address", "--full", "--help-all", "--watch", "--open")


@cache
def commands() -> dict[str, click.Command]:
    """Return the verbs that hostile words are given to."""
    context = click.Context(root)
    found = {verb: root.get_command(context, verb) for verb in VERBS if verb not in _LEFT_OUT}
    return {verb: command for verb, command in found.items() if command is not None}


@cache
def options_of(verb: str) -> tuple[click.Option, ...]:
    """Return the flags of a verb, with those that are made when it runs."""
    command = commands()[verb]
    given = (param for param in command.get_params(click.Context(command)) if isinstance(param, click.Option))
    return tuple(option for option in given if not option.is_eager and not set(option.opts) & set(_QUIET))


def command_line(rng: random.Random) -> list[str]:
    """Return a verb with some of its flags; a third of the lines have values that it may not take."""
    if rng.random() < 0.65:
        verb = rng.choice(_OFTEN)
        words, flag = [verb, *_USUAL.get(verb, _STEP)], rng.choice(options_of(verb))
        return [*words, flag.opts[0]] if flag.is_flag else [*words, flag.opts[0], good_value(rng, flag)]
    verb = rng.choice(_OFTEN) if rng.random() < 0.7 else rng.choice(list(commands()))
    if verb in _OFTEN:
        words = [word if word.startswith("-") else _or(rng, word) for word in _USUAL.get(verb, _STEP)]
    else:
        named = [given for given in commands()[verb].params if isinstance(given, click.Argument)]
        words = [rng.choice((*_NAMED, *_SYSTEMS)) for _ in named]
    flags = options_of(verb)
    for flag in rng.sample(flags, min(len(flags), rng.choice([1, 1, 2, 3, 6]))):
        words += [flag.opts[0]] if flag.is_flag else [flag.opts[0], value_of(rng, flag)]
    return [verb, *words]


def _or(rng: random.Random, usual: str) -> str:
    others = _NUMBERS if usual.isdigit() else _SYSTEMS if usual == "dgx-h100" else _MODELS
    return usual if rng.random() < 0.93 else rng.choice(others)


def good_value(rng: random.Random, flag: click.Option) -> str:
    """Return a word that a flag takes as far as its type says; a word of another one where it says nothing."""
    if choices := getattr(flag.type, "choices", ()):
        return str(rng.choice(list(choices)))
    if isinstance(flag.type, click.IntRange | click.types.IntParamType):
        return rng.choice(GOOD)
    if isinstance(flag.type, click.types.FloatParamType):
        return rng.choice(("0.1", "0.5", "0.9", "1"))
    return rng.choice((*GOOD, "0.5", "1ms", "1GB/s", "1B", "none", "auto", "on"))


def value_of(rng: random.Random, flag: click.Option) -> str:
    """Return a word for a flag: often one that it may take."""
    choices = getattr(flag.type, "choices", ())
    if "output" in flag.opts[0] or flag.name in ("output", "rows", "best_plan", "runs", "emit_dir"):
        return rng.choice(("-", "o.json", "o.csv", "sub/o.txt", "", "x" * 300, ".", "a\nb", "/dev/null"))
    kind = rng.random()
    if choices and kind < 0.9:
        return str(rng.choice(list(choices)))
    return rng.choice(GOOD) if kind < 0.6 else rng.choice(_NUMBERS) if kind < 0.8 else rng.choice(_WORDS)
