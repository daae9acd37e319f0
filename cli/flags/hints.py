"""What a wrong command line meant: words of other tools and of habit, with the words that say the same here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import click

_BATCH = "--mbs N (sequences per replica and pass) or --gbs N (sequences per step)"
_GPUS = "--gpus N, of all nodes together"
_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "--batch-size": _BATCH,
        "--bs": _BATCH,
        "--nodes": _GPUS,
        "--num-nodes": _GPUS,
        "--nnodes": _GPUS,
        "--context": "--seq N",
        "--context-length": "--seq N, or of a server --max-model-len N",
        "--ctx": "--seq N",
        "--sequence-length": "--seq N",
        "--input-length": "--isl N",
        "--output-length": "--osl N",
        "--fsdp": "--zero 3",
        "--hsdp": "--zero 3 --dp-shard N",
        "--ddp": "--zero 0, the default",
        "--distributed-optimizer": "--zero 1",
        "--use-distributed-optimizer": "--zero 1",
        "--bf16": "--dtype bf16, the default",
        "--fp16": "--dtype fp16",
        "--fp8": "--precision fp8",
        "--int4": "--precision w4a16",
        "--awq": "--precision w4a16",
        "--gptq": "--precision w4a16",
        "--quantization": "--precision RECIPE",
        "--activation-checkpointing": "--recompute full",
        "--gradient-checkpointing": "--recompute full",
        "--gradient-accumulation-steps": "--gbs N: it is --gbs / (--mbs x dp)",
        "--sequence-parallel": "--sp",
        "--model": "the model behind the verb, as in `slipstick estimate llama-3.1-8b`",
        "--gpu": "--system NAME",
        "--machine": "--system NAME",
        "--hardware": "--system NAME",
        "--cluster": "--system NAME",
        "--num-layers": "a config.json or file.py:factory of a model of your own",
        "--qps": "--request-rate R; of `slipstick size` --target-rps R",
        "--json": "--format json",
        "--csv": "--format csv",
    }
)
_VALUES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        **{("precision", word): f"--dtype {word}" for word in ("bf16", "fp16", "fp32")},
        **{("precision", word): "--precision w4a16" for word in ("int4", "awq", "gptq")},
        ("phase", "inference"): "--phase serve for requests, --phase prefill or decode for one step",
        ("phase", "serving"): "--phase serve",
        ("phase", "training"): "--phase train",
        ("phase", "generate"): "--phase decode",
        **{("recompute", word): "--recompute full" for word in ("true", "yes", "on", "all", "uniform", "block")},
    }
)
_EXTRA = re.compile(r"Got unexpected extra argument \((\S+)\)")
_GIVEN = re.compile(r"^'(.*?)' is not allowed")


def hinted(error: click.ClickException) -> str:
    """Return the message of an error, with what was meant where that is known."""
    message = error.message
    if isinstance(error, click.NoSuchOption) and error.option_name in _FLAGS:
        # Final to type checkers alone, as the message is: what is near in spelling is not what was meant.
        object.__setattr__(error, "possibilities", None)
        return f"No such option '{error.option_name}'; here it is {_FLAGS[error.option_name]}."
    if isinstance(error, click.BadParameter) and error.param is not None and (given := _GIVEN.match(message)):
        meant = _VALUES.get((str(error.param.name), given[1].lower()))
        allowed = message.rpartition("allowed:")[2]
        return message if meant is None else f"{given[0]}; use {meant}; allowed:{allowed}"
    if extra := _EXTRA.match(message):
        from .names import names_of

        if extra[1].lower() in names_of("systems") or extra[1].endswith((".yaml", ".yml")):
            return f"{message}; a system has a flag: --system {extra[1]}"
    return message
