"""DeepSpeed: its JSON configuration.

Names were read in deepspeedai/DeepSpeed at commit 00376da49967, docs/_pages/config-json.md, and `tensor_parallel` in
its tutorial of AutoTP for training (ZeRO 0 to 2). Pipelines (ZeRO 0 and 1: runtime/pipe/engine.py), experts and
sequences are split in code there, not by configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import ParseError
from ...ir.plan import ORDER
from ...ir.plan.optimizer_states import FP32
from ...ir.plan.precision import NONE
from ...ir.text.json_text import json_text
from ..export import ExportSubject, nested
from ..launch import Reading, Word
from ..rows import Codec, FixedWord, Framework, Group, SettingRow, Text, Words, Writing

# What offloads of DeepSpeed move, by the part of their names.
AWAY: Mapping[str, str] = MappingProxyType({"optimizer": "optimizer", "params": "param"})


def leave_auto_open(r: Reading) -> None:
    """Take out settings that are `auto`, which transformers' Trainer fills in from its own arguments."""
    # Axolotl's `bf16: auto` is bf16 where the chip has it.
    open_ones = [name for name, value in r.given.items() if value == "auto" and name != "bf16"]
    r.given = {name: value for name, value in r.given.items() if name not in open_ones}
    if open_ones:
        r.assume(f"{', '.join(map(r.shown, open_ones))}: auto, which transformers fills in from its arguments")


class _Batches:
    @staticmethod
    def read(r: Reading) -> None:
        tp = int(str(r.words.get("tp", 1)))
        mbs, gbs = r.count("train_micro_batch_size_per_gpu") or 1, r.count("train_batch_size")
        steps, num_gpus = r.count("gradient_accumulation_steps") or 1, r.num_gpus
        if num_gpus is None and gbs:
            num_gpus = max(gbs // (mbs * steps), 1) * tp
            r.assume(f"gpus {num_gpus}: what the batch takes in {steps} micro-batches; say --gpus N for the launch")
        num_gpus = num_gpus or tp
        r.words["gpus"], r.words["mbs"], r.words["sp"] = num_gpus, mbs, False
        names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        r.say("gbs", gbs or mbs * steps * num_gpus // tp, *names)
        r.assume("seq and the model: a DeepSpeed configuration names neither; say --seq and --model")

    @staticmethod
    def write(w: Writing) -> None:
        w.say("train_batch_size", w.plan.global_batch)
        w.say("train_micro_batch_size_per_gpu", w.plan.micro_batch)
        w.say("gradient_accumulation_steps", w.plan.num_micro_batches)


class _Tp:
    @staticmethod
    def read(r: Reading, names: Sequence[str]) -> int | None:
        tp = r.count(*names, least=0) or 1
        return tp if tp > 1 else None

    @staticmethod
    def write(value: Word, _: Words) -> tuple[Text, ...]:
        return (value,) if isinstance(value, int) and value > 1 else ()


def read_zero(r: Reading) -> None:
    """Read ZeRO, and what it keeps in host memory."""
    z = "zero_optimization."
    stage = r.count(f"{z}stage", "zero_stage", least=0) or 0
    if not 0 <= stage <= 3:
        raise ParseError(f"{r.shown(f'{z}stage')}: {stage} is none of 0, 1, 2, 3")
    r.say("zero", stage, f"{z}stage", "zero_stage")
    away = []
    for word, part in AWAY.items():
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


def _write_zero(w: Writing) -> None:
    plan, family, z = w.plan, w.family, "zero_optimization"
    w.say(f"{z}.stage", family.zero)
    if family.zero:
        w.say(f"{z}.overlap_comm", w.subject.stack is None or w.subject.hides("dp"))
        w.say(f"{z}.contiguous_gradients", True)
        w.say(f"{z}.reduce_scatter", True)
    for word, part in AWAY.items():
        if word in family.offload and (family.zero or word == "params"):
            w.say(f"{z}.offload_{part}.device", "cpu")
            w.say(f"{z}.offload_{part}.pin_memory", True)
    w.lose(f"dp_shard {plan.dp_shard}: ZeRO shards over all data parallelism", family.hsdp)
    w.lose("offload optimizer: with ZeRO 1 to 3 alone", "optimizer" in family.offload and not family.zero)
    split = plan.tp > 1 and family.zero > 2
    w.lose(f"zero {family.zero} with tp {plan.tp}: AutoTP takes ZeRO 2 at most", split)
    line = "stage3_max_live_parameters and stage3_max_reuse_distance say what is kept"
    w.lose(f"reshard {family.reshard}: {line}", family.reshard != "layer")


def _read_types(r: Reading) -> None:
    on = [dtype for dtype in ("bf16", "fp16") if r.flag(f"{dtype}.enabled") or (r.has(dtype) and r.flag(dtype))]
    r.say("dtype", on[0] if on else "fp32", "bf16.enabled", "fp16.enabled", "bf16", "fp16")
    said = r.text("communication_data_type")
    reduced, summed = {"bfp16": "bf16"}.get(said or "", said), r.text("data_types.grad_accum_dtype")
    # What sums are reduced in where nothing else is said needs no word.
    same = int(str(r.words["zero"])) < 2 and reduced == (summed or FP32)
    r.say("reduce_dtype", None if same else reduced, "communication_data_type")
    r.say("grad_dtype", summed, "data_types.grad_accum_dtype")


def _write_types(w: Writing) -> None:
    """Write types; master weights and optimizer states in bf16 go together."""
    family, dtype = w.family, w.subject.dtype
    moments = {family.exp_avg_dtype, family.exp_avg_sq_dtype}
    small = dtype == "bf16" and family.zero > 0 and moments == {"bf16"} and family.main_params_dtype == "none"
    if dtype in ("bf16", "fp16"):
        w.say(f"{dtype}.enabled", True)
        if small:
            w.say("bf16.bf16_master_weights_and_grads", True)
            w.say("bf16.bf16_optimizer_states", True)
    w.say("data_types.grad_accum_dtype", str(family.grad_dtype))
    if (reduced := family.reduce_dtype or (family.grad_dtype if family.zero < 2 else None)) is not None:
        w.say("communication_data_type", str(reduced))
    names = f"main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype {'/'.join(family.states)}"
    line = "float32, or master weights and moments in bf16 with ZeRO"
    w.lose(f"{names}: {line}", set(family.states) != {FP32} and not small)


def _write_recompute(w: Writing) -> None:
    family, line = w.family, "which layers is the model's: gradient_checkpointing_enable() or deepspeed.checkpointing"
    if family.recompute == "full":
        w.say("activation_checkpointing.partition_activations", False)
        w.say("activation_checkpointing.cpu_checkpointing", "activations" in family.offload)
        w.lose(f"recompute full: {line}")
    elif family.recompute != "none":
        w.lose(f"recompute {family.recompute}: in the model's code")
    unsaid = "activations" in family.offload and family.recompute != "full"
    w.lose("offload activations: of checkpoints alone (recompute full)", unsaid)


def _write_in_code(w: Writing) -> None:
    """List what is split, and run, in code."""
    plan, family, factor = w.plan, w.family, w.plan.capacity_factor
    chunks = f", vpp={plan.vpp}" if plan.vpp > 1 else ""
    line = f"in code, PipelineModule(num_stages={plan.pp}), which runs 1F1B without chunks"
    w.lose(f"pp {plan.pp}{chunks}: {line}", plan.pp > 1)
    line = f"zero {family.zero} with pp {plan.pp}: its pipelines take ZeRO 1 at most"
    w.lose(line, plan.pp > 1 and family.zero > 1)
    w.lose(f"cp {plan.cp} ({plan.cp_method}): in code, by DeepSpeed-Ulysses", plan.cp > 1)
    w.lose(f"ep {plan.ep}: in code, deepspeed.moe.layer.MoE(ep_size={plan.ep})", plan.ep > 1)
    w.lose("sp: AutoTP splits no sequence", plan.tp > 1 and family.sp)
    w.lose(f"capacity_factor {factor or 0:g}: of MoE layers, in code", factor is not None)
    w.lose(f"precision {family.precision}: in the model's code, by TransformerEngine", family.precision != NONE)
    own = family.kernels == "fused" or family.attention == "unfused"
    w.lose(f"kernels {family.kernels}, attention {family.attention}: those of the model's code", own)


def _left(subject: ExportSubject) -> Iterator[str]:
    yield f"seq {subject.plan.seq_len}: the length of what the data loader yields"
    yield "optimizer, scheduler, gradient_clipping; sizes of buckets: allgather_bucket_size, reduce_bucket_size"
    yield f"the launch: deepspeed --num_gpus or a hostfile of {subject.plan.num_gpus} GPUs"


# fmt: off
DEEPSPEED = Framework(
    name="deepspeed",
    title="DeepSpeed",
    version="deepspeedai/DeepSpeed 00376da49967",
    trains=True,
    base={"phase": "train"},
    left=_left,
    render=lambda _, flags: json_text(nested(flags), indent=2) + "\n",
    takes_comments=False,
    rows=(
        Group("", leave_auto_open),
        SettingRow("tp", "tensor_parallel.autotp_size autotp_size", Codec(_Tp.read, _Tp.write)),
        Group("gpus mbs gbs", _Batches.read, _Batches.write),
        Group("zero offload dp_shard reshard", read_zero, _write_zero),
        Group("dtype grad_dtype reduce_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype", _read_types,
            _write_types),
        Group("recompute", write=_write_recompute),
        Group("pp vpp cp cp_method ep sp capacity_factor precision kernels attention", write=_write_in_code),
        FixedWord("tp_plan", ("megatron",), "AutoTP splits layers by its own patterns"),
        FixedWord("order", (ORDER,), "ranks of tensor parallelism are neighbours, replicas lie outside"),
        FixedWord("async_tp", (False,), "AutoTP waits for its messages"),
    ),
)
# fmt: on
