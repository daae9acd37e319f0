"""Transformers' Trainer, Accelerate, Axolotl and LLaMA-Factory: their files and flags into the words of a plan.

Names as in accelerate 1.x `accelerate config` and transformers' TrainingArguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.errors import UsageError
from ..launch import OFFLOADED_BY_FSDP, Launch, Reading, Value
from .deepspeed import AWAY, leave_auto_open, read_zero


def trainer(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return TrainingArguments of transformers, or a file of Accelerate, Axolotl or LLaMA-Factory, as a launch."""
    r = Reading("transformers", given, shown)
    _check_kind(r)
    leave_auto_open(r)
    r.words["phase"] = "train"
    _adapters(r)
    r.say("model", r.text("model_name_or_path", "base_model", "model"), "model_name_or_path", "base_model", "model")
    num_gpus = num_gpus or r.count("num_processes") or 1
    r.understand("of its launch", "num_machines", "gpu_ids")
    if not r.has("num_processes") and num_gpus == 1:
        r.assume("gpus 1: no launch is named; say --gpus N")
    r.say("gpus", num_gpus, "num_processes", "num_machines")
    mbs = r.count("per_device_train_batch_size", "micro_batch_size") or 1
    copies = r.count("dp_replicate_size") or 1
    shards = r.count("dp_shard_size")
    r.say("dp_shard", shards if copies > 1 else None, "dp_shard_size", "dp_replicate_size")
    in_config = "deepspeed_config.gradient_accumulation_steps"
    steps = r.count("gradient_accumulation_steps", in_config) or 1
    tp, cp = r.count("tensor_parallel_size") or 1, r.count("context_parallel_size") or 1
    r.say("tp", tp if tp > 1 else None, "tensor_parallel_size")
    r.say("cp", cp if cp > 1 else None, "context_parallel_size")
    r.say("mbs", mbs, "per_device_train_batch_size", "micro_batch_size")
    r.say(
        "gbs",
        mbs * steps * max(num_gpus // (tp * cp), 1),
        "gradient_accumulation_steps",
        "deepspeed_config.gradient_accumulation_steps",
    )
    seq = r.count("max_seq_length", "max_length", "sequence_len", "cutoff_len", "max_seq_len")
    r.say("seq", seq, "max_seq_length", "max_length", "sequence_len", "cutoff_len", "max_seq_len")
    mixed = r.text("mixed_precision")
    bf16 = mixed == "bf16" or r.text("bf16") in ("auto", "full") or r.flag("bf16") or r.flag("pure_bf16")
    dtype = "bf16" if bf16 else "fp16" if r.flag("fp16") or mixed == "fp16" else "fp32"
    r.say("dtype", dtype, "bf16", "fp16", "mixed_precision", "pure_bf16", "bf16.enabled", "fp16.enabled", "float16")
    checkpoints = tuple(f"fsdp_config.{prefix}activation_checkpointing" for prefix in ("fsdp_", ""))
    again = r.flag("gradient_checkpointing") or any(map(r.flag, checkpoints))
    r.say("recompute", "full" if again else None, "gradient_checkpointing", *checkpoints)
    _sharded(r)
    return r.done()


def _check_kind(r: Reading) -> None:
    """Refuse launches of reinforcement, and those that train another part of the weights than adapters of low rank."""
    if (judged := next((name for name in _JUDGED if r.has(name)), None)) is not None:
        raise UsageError(f"{r.shown(judged)}: this launch trains by reinforcement; a launch that trains all is read")
    part = next((name for name in (*_METHODS, "unfrozen_parameters") if _is_set(r, name)), None)
    if part is not None and r.text(part).lower() not in (*_WHOLE, *_LOW_RANK):  # type: ignore[union-attr]
        raise UsageError(
            f"{r.shown(part)}: {str(r.text(part))[:40]}: this launch trains a part of the weights; launches that train "
            "all of them, or adapters of low rank (LoRA), are read"
        )


def _is_set(r: Reading, name: str) -> bool:
    return r.has(name) and (r.text(name) or "none").lower() not in ("false", "none", "0", "", "null")


def _adapters(r: Reading) -> None:
    """Adapters of low rank, in the names of PEFT that all of these have; ranks as each of them has by itself."""
    trains = any(_is_set(r, name) and (r.text(name) or "").lower() in _LOW_RANK for name in _METHODS)
    trains = trains or any(_is_set(r, name) for name in (*_RANKS, *_TARGETS))
    bits = (
        4
        if (r.text("adapter") or "") == "qlora" or _is_set(r, "load_in_4bit")
        else r.count("quantization_bit", least=0) or 0
    )
    bits = 8 if _is_set(r, "load_in_8bit") and not bits else bits
    quantised = (
        "load_in_4bit",
        "load_in_8bit",
        "quantization_bit",
        "quantization_type",
        "double_quantization",
        "quantization_method",
    )
    if not trains and bits:
        name = next(name for name in quantised if r.has(name))
        raise UsageError(f"{r.shown(name)}: this launch trains on quantized weights without adapters of low rank")
    r.understand("all weights are trained", *(() if trains else (*_METHODS, *quantised)))
    if not trains:
        return
    rank = r.count(*_RANKS)
    if rank is None:
        r.assume("lora_rank 8: the launch names none, and PEFT's own is 8")
    r.say("lora_rank", rank or 8, *_RANKS, *_METHODS)
    named = r.text(*_TARGETS)
    words = "" if named is None or named.lower() in ("all", "all-linear") else named
    parts = [part.strip(" '\"[]") for part in words.replace(",", " ").split()]
    r.say("lora_modules", ",".join(part for part in parts if part) or None, *_TARGETS, "lora_target_linear")
    if named is None and not r.flag("lora_target_linear"):
        r.assume("lora_modules all-linear: the launch names no layers")
    if bits not in (0, 4, 8):
        raise UsageError(f"quantization_bit: {bits}: frozen weights of 4 or 8 bits are read")
    r.say("lora_base", {4: "nf4", 8: "int8"}.get(bits), *quantised)
    r.say("lora_dropout", r.real("lora_dropout") or None, "lora_dropout")
    r.understand(
        "no part of a step",
        "lora_alpha",
        "lora_bias",
        "peft_use_rslora",
        "use_rslora",
        "lora_module_name",
        "bnb_4bit_quant_type",
        "bnb_4bit_compute_dtype",
        "bnb_4bit_use_double_quant",
    )


# Settings of actors, critics and the models that judge them.
_JUDGED = ("actor_model_name_or_path", "critic_model_name_or_path", "reward_model", "num_padding_at_beginning")
# Settings that say which part of the weights is trained; words of theirs for all, and for adapters of low rank.
_METHODS = ("adapter", "finetuning_type", "use_peft", "only_optimize_lora")
_WHOLE, _LOW_RANK = ("full", "false"), ("lora", "qlora", "true")
_RANKS = ("lora_rank", "lora_r", "lora_dim")
_TARGETS = ("lora_target_modules", "lora_target")


def _sharded(r: Reading) -> None:
    """FSDP or DeepSpeed, as a file of Accelerate or `fsdp` of the Trainer names it."""
    if r.has("zero_optimization.stage"):
        read_zero(r)
        r.understand("of the batch", "train_batch_size", "train_micro_batch_size_per_gpu")
        return
    named = tuple(f"fsdp_config.{prefix}sharding_strategy" for prefix in ("fsdp_", ""))
    strategy = (r.text(*named, "fsdp") or "").upper()
    reshards = tuple(f"fsdp_config.{prefix}reshard_after_forward" for prefix in ("fsdp_", ""))
    reshard = r.text(*reshards)
    zero = r.count("deepspeed_config.zero_stage", "zero_stage", least=0)
    is_fsdp = bool(strategy) or reshard is not None or r.text("distributed_type") == "FSDP"
    if is_fsdp:
        keeps = "GRAD_OP" in strategy or strategy == "2" or str(reshard).lower() == "false"
        zero = 0 if "NO_SHARD" in strategy else 3
        r.say("reshard", "microbatch" if keeps else None)
        r.words["stack"] = "fsdp2"
    stages = ("deepspeed_config.zero_stage", "zero_stage", "distributed_type")
    r.say("zero", zero, *named, "fsdp", *reshards, *stages)
    if "HYBRID" in strategy:
        r.assume("shards over all replicas: the launch does not say how many share a copy of the weights")
    offloads = tuple(f"fsdp_config.{prefix}offload_params" for prefix in ("fsdp_", ""))
    devices = {word: f"deepspeed_config.offload_{key}_device" for word, key in AWAY.items()}
    away = [word for word, name in devices.items() if r.text(name) == "cpu"]
    by_fsdp = OFFLOADED_BY_FSDP if any(map(r.flag, offloads)) else None
    known = tuple(name for name in devices.values() if r.text(name) in ("cpu", "none"))
    r.say("offload", by_fsdp or ",".join(away) or None, *offloads, *known)
