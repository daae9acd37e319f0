"""A change of a plan in the words of the framework whose launch it came from."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from ..ir.plan.words import WORDS
from ..ir.text.json_text import json_text
from ..ir.units import is_digits
from .export import Export, ExportSubject
from .launch import flattened, settings_of
from .reading import BARE
from .writers.deepspeed import deepspeed
from .writers.megatron import megatron
from .writers.torchtitan import torchtitan
from .writers.vllm import vllm

Settings: TypeAlias = Mapping[str, object]
_EXPORTERS: Mapping[str, Callable[[ExportSubject], Export]] = MappingProxyType(
    {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed, "vllm": vllm}
)
# Settings of frameworks that no plan is exported to, by the fields of plans that they say. Names as the importers
# read them: nanotron's parallelism_config.py, transformers' TrainingArguments and Accelerate's file, SGLang's
# server_args.py, `trtllm-serve --help`, `lmdeploy serve api_server --help`.
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
        "vllm": {
            "tp": "--tensor-parallel-size",
            "pp": "--pipeline-parallel-size",
            "kv_dtype": "--kv-cache-dtype",
            "precision": "--quantization",
        },
        "sglang": {
            "tp": "--tp-size",
            "pp": "--pp-size",
            "kv_dtype": "--kv-cache-dtype",
            "precision": "--quantization",
        },
        "tensorrt-llm": {"tp": "--tp_size", "pp": "--pp_size", "kv_dtype": "kv_cache_config.dtype"},
        "lmdeploy": {"tp": "--tp"},
    }
)
# What words are in engines that have another name for them.
_VALUES: Mapping[str, Mapping[str, str]] = MappingProxyType({"sglang": {"fp8": "fp8_e4m3"}})
_FIELDS = tuple(row.field for row in WORDS.values())
# Fields that follow from others, or that the software decides by them: they need no setting where these have one.
_FOLLOWING = frozenset(
    {"dp", "num_micro_batches", "global_batch", "num_gpus", "sp", "early_stop", "reduce_dtype", "scatter_p2p"}
)
# How a setting and its value stand in a launch.
_FORMS: Mapping[str, str] = MappingProxyType(
    {"torchtitan": "toml", "deepspeed": "yaml", "nanotron": "yaml", "transformers": "yaml"}
)


def write_change(framework: str, now: ExportSubject, then: ExportSubject) -> str | None:
    """Return the settings with which a launch of a plan becomes one of another; None where it cannot say it."""
    if framework in _EXPORTERS:
        first, second = (_EXPORTERS[framework](subject) for subject in (now, then))
        if set(second.lost) - set(first.lost):
            return None
        old, new = (_settings(framework, export.text) for export in (first, second))
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
    names, said = _NAMES.get(framework, {}), {name: words[name] for name in words if name not in _FOLLOWING}
    if not all(name in names for name in said):
        return None
    values = _VALUES.get(framework, {})
    return " ".join(_written(framework, names[name], values.get(str(value), value)) for name, value in said.items())


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


def _settings(framework: str, text: str) -> dict[str, object]:
    """Return the settings of an exported launch by name: flags as they stand, those of files with dots."""
    if text.startswith("{"):
        return dict(flattened(json.loads(text)))
    pattern, flag = BARE.get(framework, (r"(?!)", ""))
    given, shown, _ = settings_of([re.sub(pattern, flag, word) for word in shlex.split(text.replace("\\\n", " "))])
    return {name if _FORMS.get(framework) == "toml" else shown[name]: value for name, value in given.items()}


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
