"""Files and flags of torchtitan, DeepSpeed, Accelerate and transformers' Trainer, into the words of a plan.

Names as in torchtitan 0.1 to 0.3 (toml files and dotted flags), deepspeedai/DeepSpeed docs/_pages/config-json.md,
accelerate 1.x `accelerate config`, transformers' TrainingArguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.errors import ParseError
from ...ir.schedules.registry import SCHEDULES
from .launch import Launch, Reading, Value, known


def torchtitan(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return a launch of torchtitan; ParseError for values that are none of a setting's."""
    r = Reading("torchtitan", given, shown)
    r.words["phase"], r.words["stack"], r.words["dtype"] = "train", "torchtitan", "bf16"
    _titan_model(r)
    p = "parallelism."
    tp = _titan(r, f"{p}tensor_parallel_degree", "training.tensor_parallel_degree")
    pp = _titan(r, f"{p}pipeline_parallel_degree", "experimental.pipeline_parallel_degree")
    cp = _titan(r, f"{p}context_parallel_degree", "experimental.context_parallel_degree")
    ep = _titan(r, f"{p}expert_parallel_degree")
    copies = _titan(r, f"{p}data_parallel_replicate_degree", "training.data_parallel_replicate_degree")
    shard = r.number(f"{p}data_parallel_shard_degree", "training.data_parallel_shard_degree")
    shard = -1 if shard is None else shard
    if num_gpus is None and shard < 1:
        # All ranks that are left shard, and a launch does not say how many there are.
        num_gpus = tp * pp * cp * copies * max(ep // max(tp * cp * copies, 1), 1)
        r.assume(f"gpus {num_gpus}: data_parallel_shard_degree takes all ranks; say --gpus N for the launch")
    if shard < 1 and num_gpus is not None:
        shard = max(num_gpus // (tp * pp * cp * copies), 1)
    r.words["gpus"] = tp * pp * cp * copies * shard
    for word, degree in (("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep)):
        if degree > 1:
            r.words[word] = degree
    if ep > 1 and tp > 1:
        r.words["etp"] = 1
    r.words["sp"] = (
        tp > 1 and r.flag(f"{p}enable_sequence_parallel", usual=True) and not r.has(f"{p}no_enable_sequence_parallel")
    )
    _titan_sharding(r, shard, copies)
    r.understand(
        "degrees",
        *(name for name in given if name.endswith(("parallel_degree", "replicate_degree", "shard_degree"))),
        f"{p}enable_sequence_parallel",
        f"{p}no_enable_sequence_parallel",
    )
    schedule = r.text(f"{p}pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
    found = next((kind for kind in SCHEDULES.values() if schedule in kind.names.get("torch", ())), None)
    if pp > 1 and found is not None and schedule:
        r.say("schedule", found.name, f"{p}pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
        if found.name_in("torch", 1) != schedule:
            r.say("vpp", 2)
            r.assume("vpp 2: two chunks a stage, its default of interleaved schedules")
    r.understand("of one stage", f"{p}pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
    _titan_batches(r, shard * copies, pp)
    _titan_policy(r)
    return r.done(known("torchtitan"))


def _titan_model(r: Reading) -> None:
    """Name the model of a configuration that it ships: `--config llama3_8b`, or name and flavor of a toml file."""
    name = r.text("config") or f"{r.text('model.name')}_{r.text('model.flavor')}"
    known = {
        "llama3_8b": "llama-3.1-8b",
        "llama3_70b": "llama-3.1-70b",
        "llama3_405b": "llama-3.1-405b",
        "deepseek_v3_671b": "deepseek-v3",
    }
    if name.lower() in known:
        r.say("model", known[name.lower()], "config", "module", "model.name", "model.flavor")


def _titan(r: Reading, *names: str) -> int:
    return r.number(*names) or 1


def _titan_sharding(r: Reading, shard: int, copies: int) -> None:
    """FSDP is ZeRO 3, or 2 where it does not reshard; copies of it are HSDP."""
    name = "parallelism.fsdp_reshard_after_forward"
    policy = r.text(name) or "default"
    keeps = policy == "never" or (policy == "default" and int(str(r.words.get("pp", 1))) > 1)
    r.say("zero", (2 if keeps else 3) if shard > 1 else 0, name)
    if copies > 1 and shard > 1:
        r.words["dp_shard"] = shard


def _titan_batches(r: Reading, replicas: int, pp: int) -> None:
    local = r.number("training.local_batch_size", "training.batch_size") or 8
    each = r.number("parallelism.pipeline_parallel_microbatch_size") or 1
    mbs = each if pp > 1 else local
    gbs = r.number("training.global_batch_size")
    gbs = local * replicas if gbs is None or gbs < 1 else gbs
    r.say(
        "mbs",
        mbs,
        "training.local_batch_size",
        "training.batch_size",
        "parallelism.pipeline_parallel_microbatch_size",
        "experimental.pipeline_parallel_microbatches",
    )
    r.say("gbs", gbs, "training.global_batch_size")
    r.say("seq", r.number("training.seq_len") or 2048, "training.seq_len")


def _titan_policy(r: Reading) -> None:
    mode, kind = r.text("activation_checkpoint.mode"), r.text("activation_checkpoint.selective_ac_option")
    policy = {"selective": "ops" if kind in (None, "op") else "full", "full": "full", "none": "none"}.get(
        mode or "selective"
    )
    r.say(
        "recompute",
        policy,
        "activation_checkpoint.mode",
        "activation_checkpoint.selective_ac_option",
        "activation_checkpoint.early_stop",
        "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    )
    if policy != "none":
        # Layers, and runs of operators, are run again to their end.
        r.words["early_stop"] = r.flag("activation_checkpoint.early_stop")
    if mode == "selective" and kind not in (None, "op") and str(kind).isdigit():
        r.assume(f"recompute full: every layer, where the launch names every {kind}.")
    if r.flag("float8.enable_float8_linear", "float8.enable_fsdp_float8_all_gather") or "float8" in (
        r.text("model.converters") or ""
    ):
        recipe = r.text("float8.recipe_name", "quantize.linear.float8.recipe_name") or "tensorwise"
        r.say(
            "precision",
            {"tensorwise": "fp8", "rowwise": "fp8-rowwise"}.get(recipe, "fp8"),
            "float8.enable_float8_linear",
            "float8.recipe_name",
            "model.converters",
            "quantize.linear.float8.recipe_name",
        )
        r.say(
            "fp8_param_gather",
            r.flag("float8.enable_fsdp_float8_all_gather") or None,
            "float8.enable_fsdp_float8_all_gather",
        )
    r.understand("of its recipe", *(n for n in r.given if n.startswith(("float8.", "quantize.", "mx."))))
    r.say(
        "async_tp",
        r.flag(
            "parallelism.enable_async_tensor_parallel",
            "experimental.enable_async_tensor_parallel",
            "compile.enable_async_tensor_parallel",
        )
        or None,
        "parallelism.enable_async_tensor_parallel",
        "experimental.enable_async_tensor_parallel",
        "compile.enable_async_tensor_parallel",
    )
    r.say("offload", "params" if r.flag("training.enable_cpu_offload") else None, "training.enable_cpu_offload")
    r.understand_known("kernels of the stack torchtitan", "torchtitan kernels")


def deepspeed(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return a DeepSpeed configuration as a launch; ParseError for values that are none of a setting's."""
    r = Reading("deepspeed", given, shown)
    r.words["phase"] = "train"
    _auto_is_left_open(r)
    tp = r.number("tensor_parallel.autotp_size", "autotp_size") or 1
    mbs, gbs = r.number("train_micro_batch_size_per_gpu"), r.number("train_batch_size")
    steps = r.number("gradient_accumulation_steps")
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
    r.understand("loss scales", *(n for n in given if n.startswith("fp16.") and n != "fp16.enabled"))
    reduced = {"bfp16": "bf16"}.get(r.text("communication_data_type") or "", r.text("communication_data_type"))
    summed = r.text("data_types.grad_accum_dtype")
    # What sums are reduced in where nothing else is said needs no word.
    same = int(str(r.words["zero"])) < 2 and reduced == (summed or "fp32")
    r.say("reduce_dtype", None if same else reduced, "communication_data_type")
    r.say("grad_dtype", summed, "data_types.grad_accum_dtype")
    r.understand(
        "kept activations of the model's own checkpoints",
        *(n for n in given if n.startswith("activation_checkpointing.")),
    )
    r.assume("seq and the model: a DeepSpeed configuration names neither; say --seq and --model")
    return r.done(known("trainers"))


def _auto_is_left_open(r: Reading) -> None:
    """Take out settings that are `auto`, which transformers' Trainer fills in from its own arguments."""
    open_ones = [name for name, value in r.given.items() if value == "auto"]
    r.given = {name: value for name, value in r.given.items() if name not in open_ones}
    if open_ones:
        r.assume(f"{', '.join(map(r.shown, open_ones))}: auto, which transformers fills in from its arguments")


def _zero(r: Reading) -> None:
    """ZeRO, and what it keeps in host memory."""
    z = "zero_optimization."
    stage = r.number(f"{z}stage", "zero_stage") or 0
    if not 0 <= stage <= 3:
        raise ParseError(f"{r.shown(f'{z}stage')}: {stage} is none of 0, 1, 2, 3")
    r.say("zero", stage, f"{z}stage", "zero_stage")
    away = []
    for word, key, short in (
        ("optimizer", "offload_optimizer", "offload_optimizer_device"),
        ("params", "offload_param", "offload_param_device"),
    ):
        device = r.text(f"{z}{key}.device", short)
        if device == "cpu" or (device is None and r.flag(f"{z}cpu_offload") and word == "optimizer"):
            away.append(word)
            r.understand(f"offload {word}", f"{z}{key}.device", short, f"{z}cpu_offload")
        elif device in ("none", None):
            r.understand("nothing in host memory", f"{z}{key}.device", short, f"{z}cpu_offload")
    r.say("offload", ",".join(away) or None)
    if (keeps := r.number(f"{z}zero_hpz_partition_size")) and keeps > 1:
        r.assume(f"zero_hpz_partition_size {keeps} is left out: ZeRO shards over all replicas")
    r.understand(
        "overlap and buckets of ZeRO",
        *(n for n in r.given if n.startswith(z) and not n.endswith(("stage", ".device"))),
        "zero3_init_flag",
        "zero3_save_16bit_model",
    )


def trainer(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return TrainingArguments of transformers, or a file of Accelerate, Axolotl or LLaMA-Factory, as a launch."""
    r = Reading("transformers", given, shown)
    r.words["phase"] = "train"
    r.say("model", r.text("model_name_or_path", "base_model", "model"), "model_name_or_path", "base_model", "model")
    num_gpus = num_gpus or r.number("num_processes") or 1
    if not r.has("num_processes") and num_gpus == 1:
        r.assume("gpus 1: no launch is named; say --gpus N")
    r.say("gpus", num_gpus, "num_processes", "num_machines")
    mbs = r.number("per_device_train_batch_size", "micro_batch_size") or 1
    steps = r.number("gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps") or 1
    tp, cp = r.number("tensor_parallel_size") or 1, r.number("context_parallel_size") or 1
    r.say("tp", tp if tp > 1 else None, "tensor_parallel_size")
    r.say("cp", cp if cp > 1 else None, "context_parallel_size")
    r.say("mbs", mbs, "per_device_train_batch_size", "micro_batch_size")
    r.say(
        "gbs",
        mbs * steps * max(num_gpus // (tp * cp), 1),
        "gradient_accumulation_steps",
        "deepspeed_config.gradient_accumulation_steps",
    )
    seq = r.number("max_seq_length", "max_length", "sequence_len", "cutoff_len")
    r.say("seq", seq, "max_seq_length", "max_length", "sequence_len", "cutoff_len")
    mixed = r.text("mixed_precision")
    dtype = "bf16" if r.flag("bf16") or mixed == "bf16" else "fp16" if r.flag("fp16") or mixed == "fp16" else None
    r.say("dtype", dtype or "fp32", "bf16", "fp16", "mixed_precision", "pure_bf16")
    if r.flag("gradient_checkpointing") or r.flag("fsdp_config.fsdp_activation_checkpointing"):
        r.say(
            "recompute",
            "full",
            "gradient_checkpointing",
            "gradient_checkpointing_kwargs.use_reentrant",
            "fsdp_config.fsdp_activation_checkpointing",
        )
    r.understand("recompute none", "gradient_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
    r.understand("attention in one kernel", "attn_implementation", "flash_attention", "flash_attn", "sdp_attention")
    _sharded(r)
    return r.done(known("trainers"))


def _sharded(r: Reading) -> None:
    """FSDP or DeepSpeed, as a file of Accelerate or `fsdp` of the Trainer names it."""
    strategy = (r.text("fsdp_config.fsdp_sharding_strategy", "fsdp") or "").upper()
    reshard = r.text("fsdp_config.fsdp_reshard_after_forward", "fsdp_config.reshard_after_forward")
    stage = r.number("deepspeed_config.zero_stage", "zero_stage")
    is_fsdp = bool(strategy) or reshard is not None or r.text("distributed_type") == "FSDP"
    zero = stage if stage is not None else None
    if is_fsdp:
        zero = (
            2
            if "GRAD_OP" in strategy or strategy == "2" or str(reshard).lower() == "false"
            else 0
            if "NO_SHARD" in strategy
            else 3
        )
    r.say(
        "zero",
        zero,
        "fsdp_config.fsdp_sharding_strategy",
        "fsdp",
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp_config.reshard_after_forward",
        "deepspeed_config.zero_stage",
        "zero_stage",
        "distributed_type",
    )
    if is_fsdp:
        r.words["stack"] = "fsdp2"
    away = ["optimizer"] if r.text("deepspeed_config.offload_optimizer_device") == "cpu" else []
    if r.flag("fsdp_config.fsdp_offload_params") or r.text("deepspeed_config.offload_param_device") == "cpu":
        away = [*away, "params"]
    r.say(
        "offload",
        ",".join(away) or None,
        "fsdp_config.fsdp_offload_params",
        "deepspeed_config.offload_optimizer_device",
        "deepspeed_config.offload_param_device",
    )
    r.understand(
        "wrapping and gathers of FSDP",
        *(n for n in r.given if n.startswith(("fsdp_config.", "deepspeed_config.", "deepspeed"))),
    )
