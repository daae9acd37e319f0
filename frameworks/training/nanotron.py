"""Files of nanotron, into the words of a plan.

Names as in huggingface/nanotron at commit 2411b022a75f: src/nanotron/config/config.py and parallelism_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.errors import ParseError
from ...ir.schedules.registry import SCHEDULES
from ..launch import Launch, Reading, Value

# What its Llama and Qwen2 name of their shape is what a config.json names.
_SHAPE = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "tie_word_embeddings",
    "max_position_embeddings",
    "hidden_act",
)
_DTYPES: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def nanotron(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return a launch of nanotron; ParseError for values that are none of a setting's."""
    r = Reading("nanotron", given, shown)
    r.words["phase"], r.words["stack"] = "train", "nanotron"
    p = "parallelism."
    dp, tp, pp = (r.count(f"{p}{name}") or 1 for name in ("dp", "tp", "pp"))
    cp, ep = (r.count(f"{p}{name}") or 1 for name in ("context_parallel_size", "expert_parallel_size"))
    num_ranks = dp * tp * pp * cp
    if num_gpus not in (None, num_ranks):
        raise ParseError(f"dp {dp} x tp {tp} x pp {pp} x cp {cp} are {num_ranks} GPUs, and the launch has {num_gpus}")
    r.words["gpus"] = num_ranks
    for word, name, degree in (("tp", "tp", tp), ("pp", "pp", pp), ("cp", "context_parallel_size", cp)):
        r.say(word, degree if degree > 1 else None, f"{p}{name}")
    r.say("ep", ep if ep > 1 else None, f"{p}expert_parallel_size")
    r.understand("degrees", f"{p}dp")
    mode = (r.text(f"{p}tp_mode") or "ALL_REDUCE").upper()
    r.say("sp", mode == "REDUCE_SCATTER" and tp > 1, f"{p}tp_mode")
    engine = r.text(f"{p}pp_engine")
    schedule = next((kind.name for kind in SCHEDULES.values() if engine in kind.names.get("nanotron", ())), None)
    r.say("schedule", schedule if pp > 1 else None, *([f"{p}pp_engine"] if schedule or pp == 1 else []))
    r.say("recompute", "full" if r.flag(f"{p}recompute_layer") else None, f"{p}recompute_layer")
    mbs, steps = r.count("tokens.micro_batch_size") or 1, r.count("tokens.batch_accumulation_per_replica") or 1
    r.say("mbs", mbs, "tokens.micro_batch_size")
    r.say("gbs", mbs * steps * dp, "tokens.batch_accumulation_per_replica")
    r.say("seq", r.count("tokens.sequence_length"), "tokens.sequence_length")
    r.say("zero", r.count("optimizer.zero_stage", least=0) or 0, "optimizer.zero_stage")
    dtype = r.text("model.dtype")
    r.say("dtype", _DTYPES.get(dtype or "bfloat16"), *(["model.dtype"] if dtype in _DTYPES else []))
    # It sums gradients in the type of the weights where nothing else is said.
    sums = not r.flag("optimizer.accumulate_grad_in_fp32")
    r.say("grad_dtype", "bf16" if sums and dtype == "bfloat16" else None, "optimizer.accumulate_grad_in_fp32")
    r.config = _shape(r)
    return r.done()


def _shape(r: Reading) -> dict[str, object] | None:
    """Return the shape of its Llama or Qwen2 as a config.json; None where it has none, or experts."""
    m = "model.model_config."
    if not r.has(f"{m}hidden_size") or any(name.startswith(f"{m}moe_config.") for name in r.given):
        return None
    config: dict[str, object] = {name: r.given[f"{m}{name}"] for name in _SHAPE if f"{m}{name}" in r.given}
    kind = "qwen2" if r.flag(f"{m}is_qwen2_config") and r.flag(f"{m}attention_bias") else "llama"
    r.understand("shape of the model", *(f"{m}{name}" for name in (*_SHAPE, "is_qwen2_config", "attention_bias")))
    return config | {"model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"], "rms_norm_eps": 1e-5}
