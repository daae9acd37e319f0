"""Files and flags of DeepSpeed, Accelerate and transformers' Trainer, into the words of a plan.

Names as in deepspeedai/DeepSpeed docs/_pages/config-json.md,
accelerate 1.x `accelerate config`, transformers' TrainingArguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.errors import ParseError, UsageError
from ..launch import OFFLOADED_BY_FSDP, Launch, Reading, Value

# What offloads of DeepSpeed move, by the part of their names.
_AWAY = (("optimizer", "optimizer"), ("params", "param"))


def deepspeed(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return a DeepSpeed configuration as a launch; ParseError for values that are none of a setting's."""
    r = Reading("deepspeed", given, shown)
    r.words["phase"] = "train"
    _auto_is_left_open(r)
    tp = r.count("tensor_parallel.autotp_size", "autotp_size", least=0) or 1
    mbs, gbs = r.count("train_micro_batch_size_per_gpu"), r.count("train_batch_size")
    steps = r.count("gradient_accumulation_steps")
    mbs = mbs or 1
    if num_gpus is None and gbs:
        num_gpus = max(gbs // (mbs * (steps or 1)), 1) * tp
        r.assume(f"gpus {num_gpus}: what the batch takes in {steps or 1} micro-batches; say --gpus N for the launch")
    num_gpus = num_gpus or tp
    r.say("tp", tp if tp > 1 else None, "tensor_parallel.autotp_size", "autotp_size")
    r.words["gpus"], r.words["mbs"], r.words["sp"] = num_gpus, mbs, False
    r.say(
        "gbs",
        gbs or mbs * (steps or 1) * num_gpus // tp,
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
    )
    _zero(r)
    on = [dtype for dtype in ("bf16", "fp16") if r.flag(f"{dtype}.enabled") or (r.has(dtype) and r.flag(dtype))]
    r.say("dtype", on[0] if on else "fp32", "bf16.enabled", "fp16.enabled", "bf16", "fp16")
    reduced = {"bfp16": "bf16"}.get(r.text("communication_data_type") or "", r.text("communication_data_type"))
    summed = r.text("data_types.grad_accum_dtype")
    # What sums are reduced in where nothing else is said needs no word.
    same = int(str(r.words["zero"])) < 2 and reduced == (summed or "fp32")
    r.say("reduce_dtype", None if same else reduced, "communication_data_type")
    r.say("grad_dtype", summed, "data_types.grad_accum_dtype")
    r.assume("seq and the model: a DeepSpeed configuration names neither; say --seq and --model")
    return r.done()


def _auto_is_left_open(r: Reading) -> None:
    """Take out settings that are `auto`, which transformers' Trainer fills in from its own arguments."""
    # Axolotl's `bf16: auto` is bf16 where the chip has it.
    open_ones = [name for name, value in r.given.items() if value == "auto" and name != "bf16"]
    r.given = {name: value for name, value in r.given.items() if name not in open_ones}
    if open_ones:
        r.assume(f"{', '.join(map(r.shown, open_ones))}: auto, which transformers fills in from its arguments")


def _zero(r: Reading) -> None:
    """ZeRO, and what it keeps in host memory."""
    z = "zero_optimization."
    stage = r.count(f"{z}stage", "zero_stage", least=0) or 0
    if not 0 <= stage <= 3:
        raise ParseError(f"{r.shown(f'{z}stage')}: {stage} is none of 0, 1, 2, 3")
    r.say("zero", stage, f"{z}stage", "zero_stage")
    away = []
    for word, part in _AWAY:
        key, short = f"offload_{part}", f"offload_{part}_device"
        device = r.text(f"{z}{key}.device", short)
        if device == "cpu" or (device is None and r.flag(f"{z}cpu_offload") and word == "optimizer"):
            away.append(word)
            r.understand(f"offload {word}", f"{z}{key}.device", short, f"{z}cpu_offload")
        elif device in ("none", None):
            r.understand("nothing in host memory", f"{z}{key}.device", short, f"{z}cpu_offload")
    r.say("offload", ",".join(away) or None)
    hides = r.flag(f"{z}overlap_comm", usual=stage == 3)
    if stage and not hides:
        r.say("set", ["stack.overlap.fsdp=0", "stack.overlap.dp=0"], f"{z}overlap_comm")
        r.assume("messages of ZeRO are not hidden: the configuration has no overlap_comm")
    # MiCS shards over some replicas, and holds copies of these: as HSDP does.
    if (shard := r.number(f"{z}mics_shard_size")) and shard > 1:
        r.say("dp_shard", shard, f"{z}mics_shard_size", f"{z}mics_hierarchical_params_gather")


def trainer(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return TrainingArguments of transformers, or a file of Accelerate, Axolotl or LLaMA-Factory, as a launch."""
    r = Reading("transformers", given, shown)
    _check_kind(r)
    _auto_is_left_open(r)
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
        _zero(r)
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
    devices = {word: f"deepspeed_config.offload_{key}_device" for word, key in _AWAY}
    away = [word for word, name in devices.items() if r.text(name) == "cpu"]
    by_fsdp = OFFLOADED_BY_FSDP if any(map(r.flag, offloads)) else None
    known = tuple(name for name in devices.values() if r.text(name) in ("cpu", "none"))
    r.say("offload", by_fsdp or ",".join(away) or None, *offloads, *known)
