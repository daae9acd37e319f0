"""A change of a plan in the words of the framework whose launch it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ..ir.plan.words import WORDS
from ..ir.text.json_text import json_text
from ..ir.units import is_digits
from .export import ExportSubject
from .launch import plain
from .reading import BARE
from .registry import VOCABULARIES

# Settings of frameworks whose files are read and not written, by the fields of plans that they say: transformers'
# TrainingArguments and Accelerate's file, nanotron's config.py.
_NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "nanotron": {
            "tp": "parallelism.tp",
            "pp": "parallelism.pp",
            "dp": "parallelism.dp",
            "micro_batch": "tokens.micro_batch_size",
            "num_micro_batches": "tokens.batch_accumulation_per_replica",
            "zero": "optimizer.zero_stage",
            "recompute": "parallelism.recompute_layer",
        },
        "transformers": {
            "micro_batch": "per_device_train_batch_size",
            "num_micro_batches": "gradient_accumulation_steps",
            "zero": "deepspeed_config.zero_stage",
            "recompute": "gradient_checkpointing",
            "num_gpus": "num_processes",
        },
    }
)
_FIELDS = tuple(row.field for row in WORDS.values())
# Fields that follow from others, or that the software decides by them: they need no setting where these have one.
_FOLLOWING = frozenset(
    {"dp", "num_micro_batches", "global_batch", "num_gpus", "sp", "early_stop", "reduce_dtype", "scatter_p2p"}
)
# How a setting and its value stand in a launch.
_FORMS: Mapping[str, str] = MappingProxyType(
    {"torchtitan": "toml", **dict.fromkeys(("deepspeed", "nanotron", "transformers", "tensorrt-llm"), "yaml")}
)


def write_change(framework: str, now: ExportSubject, then: ExportSubject) -> str | None:
    """Return the settings with which a launch of a plan becomes one of another; None where it cannot say it."""
    if framework in VOCABULARIES:
        vocabulary = VOCABULARIES[framework]
        if set(vocabulary.lost(then)) - set(vocabulary.lost(now)):
            return None
        old, new = (_settings(framework, subject) for subject in (now, then))
    elif framework in _NAMES:
        names = _NAMES[framework]
        moved = {f for f in _FIELDS if getattr(now.plan, f) != getattr(then.plan, f)}
        if not moved - _FOLLOWING <= {*names}:
            return None
        # Whole layers are recomputed, or nothing.
        old, new = (
            {name: p.recompute == "full" if f == "recompute" else getattr(p, f) for f, name in names.items()}
            for p in (now.plan, then.plan)
        )
    else:
        return None
    changes = [_written(framework, name, value) for name, value in new.items() if old.get(name, "") != value]
    return " ".join([*changes, *(f"without {name}" for name in old if name not in new)]) or None


def write_words(framework: str, words: Mapping[str, object]) -> str | None:
    """Return words of a server, by their fields, as settings of an engine; None where it has none of that name.

    >>> write_words("vllm", {"tp": 4, "num_gpus": 4}), write_words("sglang", {"kv_dtype": "fp8"})
    ('--tensor-parallel-size 4', '--kv-cache-dtype fp8_e4m3')
    """
    if framework not in VOCABULARIES:
        return None
    said = [(name, value) for name, value in words.items() if name not in _FOLLOWING]
    settings = [VOCABULARIES[framework].setting(name, value) for name, value in said if isinstance(value, int | str)]
    written = [_written(framework, *setting) for setting in settings if setting is not None]
    return " ".join(written) if len(written) == len(said) else None


def write_flags(words: Mapping[str, object]) -> str:
    """Return words of a plan, by their fields, as flags of Slipstick.

    >>> write_flags({"micro_batch": 2, "sp": False, "offload": ("optimizer",), "recompute_layers": 0})
    '--mbs 2 --no-sp without --recompute-layers --offload optimizer'
    """
    return " ".join(_flag(name, words[row.field]) for name, row in WORDS.items() if row.field in words)


def _flag(name: str, value: object) -> str:
    flag, text = f"--{name.replace('_', '-')}", WORDS[name].written(value)
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    return f"{flag} {text}" if value or text else f"without {flag}"


def _settings(framework: str, subject: ExportSubject) -> dict[str, object]:
    """Return the settings of an exported launch by name: flags as they stand, those of files with dots."""
    flags = VOCABULARIES[framework].flags(subject)
    if _FORMS.get(framework) != "toml":
        return dict(flags)
    pattern, flag = BARE[framework]
    pairs = ((re.sub(pattern, flag, name).partition("="), value) for name, value in flags)
    return {plain(name): said or value for (name, _, said), value in pairs}


def _written(framework: str, name: str, value: object) -> str:
    """Return a setting and its value as they stand in a launch."""
    form, text = _FORMS.get(framework, "flag"), " ".join(map(str, value)) if isinstance(value, tuple) else value
    if form == "toml":
        section, _, key = name.rpartition(".")
        said = "true" if text is None else text if is_digits(str(text).replace(".", "")) else json_text(text)
        return f"[{section}] {key} = {said}" if section else f"--{key.replace('_', '-')} {text}"
    if form == "yaml":
        return f"{name}: {json_text(text)}"
    return name if text is None else f"{name} {text}"
