"""What Megatron-LM keeps on a device: sharding of states, recomputation, offloading, types of optimizer states."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...ir.errors import ParseError
from ...ir.plan.optimizer_states import FP32
from ...ir.plan.training.decisions import MEGATRON_MODULES
from ..launch import Reading
from ..rows import Codec, Group, SettingRow, Writing, choice

_SHARDING = ("no_shard", "optim", "optim_grads", "optim_grads_params")
_MOMENTS = ("fp32", "fp16", "bf16", "fp8")


class _Zero:
    @staticmethod
    def read(r: Reading) -> None:
        """The distributed optimizer is ZeRO 1; Megatron-FSDP shards what its strategy says."""
        zero = int(r.flag("use_distributed_optimizer"))
        by_fsdp = ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
        if any(map(r.flag, by_fsdp)):
            usual = "optim_grads_params" if r.flag("use_torch_fsdp2") else "no_shard"
            strategy = r.text("data_parallel_sharding_strategy") or usual
            if strategy not in _SHARDING:
                raise ParseError(f"--data-parallel-sharding-strategy: '{strategy}' is none of {', '.join(_SHARDING)}")
            zero = _SHARDING.index(strategy)
        names = ("use_distributed_optimizer", *by_fsdp, "data_parallel_sharding_strategy", "fsdp_double_buffer")
        r.say("zero", zero, *names, *(("no_gradient_accumulation_fusion",) if zero > 1 else ()))
        copies = r.count("num_distributed_optimizer_instances") or 1
        if copies > 1 and zero:
            tp, pp, cp = (int(str(r.words.get(name, 1))) for name in ("tp", "pp", "cp"))
            replicas = int(str(r.words["gpus"])) // (tp * pp * cp)
            r.say("dp_shard", replicas // copies, "num_distributed_optimizer_instances")
        sent = r.text("megatron_fsdp_grad_comm_dtype")
        r.say("reduce_dtype", sent if zero > 1 and sent != "auto" else None, "megatron_fsdp_grad_comm_dtype")

    @staticmethod
    def write(w: Writing) -> None:
        plan, family = w.plan, w.family
        if family.zero:
            w.say("--use-distributed-optimizer")
        if family.zero > 1:
            w.say("--use-megatron-fsdp")
            w.say("--data-parallel-sharding-strategy", _SHARDING[family.zero])
            w.say("--no-gradient-accumulation-fusion")
            w.say("--ckpt-format", "fsdp_dtensor")
            if family.reduce_dtype is not None:
                w.say("--megatron-fsdp-grad-comm-dtype", str(family.reduce_dtype))
        elif family.reduce_dtype not in (None, family.grad_dtype):
            w.lose(f"reduce_dtype {family.reduce_dtype} beside sums in {family.grad_dtype}")
        if family.zero and family.hsdp and plan.ep == 1 and plan.dp > plan.dp_shard:
            w.say("--num-distributed-optimizer-instances", plan.dp // plan.dp_shard)
        line = f"dp_shard {plan.dp_shard} with ep {plan.ep}: copies of the optimizer lie over all data parallelism"
        w.lose(line, family.hsdp and plan.ep > 1)


def _read_recompute(r: Reading) -> None:
    kind = r.text("recompute_granularity") or ("selective" if r.flag("recompute_activations") else None)
    if kind not in (None, "selective", "full"):
        raise ParseError(f"--recompute-granularity: '{kind}' is none of full, selective")
    r.say("recompute", kind, "recompute_granularity", "recompute_activations")
    if kind == "selective":
        words = re.findall(r"[\w.]+", r.text("recompute_modules") or "core_attn")
        modules = ("mlp_act" if word == "moe_act" else word for word in words)
        r.say("recompute_modules", ",".join(modules), "recompute_modules")
    if kind == "full":
        method, number = r.text("recompute_method"), r.count("recompute_num_layers") or 1
        word = "recompute_layers" if method == "block" else "recompute_every"
        r.say(word, number if method == "block" or number > 1 else None, "recompute_method", "recompute_num_layers")
    r.understand("of no recomputation", "recompute_method", "recompute_num_layers", "recompute_modules")


def _write_recompute(w: Writing) -> None:
    family = w.family
    unknown = [name for name in family.recompute_modules if name not in MEGATRON_MODULES]
    if unknown:
        w.lose(f"recompute_modules {', '.join(unknown)}: known are {', '.join(MEGATRON_MODULES)}")
    if family.recompute in ("selective", "full"):
        w.say("--recompute-granularity", family.recompute)
    if family.recompute == "selective":
        modules = [name for name in family.recompute_modules if name in MEGATRON_MODULES]
        if modules:
            w.say("--recompute-modules", " ".join(modules))
    elif family.recompute == "full":
        w.say("--recompute-method", "block" if family.recompute_layers else "uniform")
        w.say("--recompute-num-layers", family.recompute_layers or family.recompute_every)
    w.lose("recompute ops: there are selective modules and whole layers", family.recompute == "ops")


class _Offload:
    @staticmethod
    def read(r: Reading) -> None:
        names = ("optimizer_cpu_offload", "cpu_offloading_num_layers")
        moved = {"optimizer": r.flag(names[0]), "activations": bool(r.count(names[1], least=0))}
        r.say("offload", ",".join(word for word, is_away in moved.items() if is_away) or None, *names)

    @staticmethod
    def write(w: Writing) -> None:
        away, layers = w.family.offload, w.subject.number("num_hidden_layers")
        if "activations" in away and layers:
            w.say("--cpu-offloading-num-layers", max(int(layers) - 1, 1))
        if "optimizer" in away:
            w.say("--optimizer-cpu-offload")
        w.lose("offload params: weights stay on the device", "params" in away)
        if "optimizer" in away or set(w.family.states) != {FP32}:
            w.say("--use-precision-aware-optimizer")


def _state(known: Sequence[str], why: str = "") -> Codec:
    """Return the codec of the type of an optimizer state: any text is read."""

    def read(r: Reading, names: Sequence[str]) -> str | None:
        return None if (dtype := r.text(*names)) == FP32 else dtype

    return Codec(read, choice({dtype: dtype for dtype in known}, idle=FP32, why=why).write)


# fmt: off
MEMORY = (
    Group("zero reduce_dtype dp_shard", _Zero.read, _Zero.write),
    Group("recompute recompute_modules recompute_layers recompute_every", _read_recompute, _write_recompute),
    Group("offload", _Offload.read, _Offload.write),
    SettingRow("main_params_dtype", "--main-params-dtype", _state(("fp16",), "there are always master weights")),
    SettingRow("exp_avg_dtype", "--exp-avg-dtype", _state(_MOMENTS)),
    SettingRow("exp_avg_sq_dtype", "--exp-avg-sq-dtype", _state(_MOMENTS)),
)
# fmt: on
