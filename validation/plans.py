"""The plan of a row: degrees, batch, and the family that its stack and policy make."""

from __future__ import annotations

from dataclasses import replace

from ..backends.machine.software.stack import StackConstants
from ..ir.plan import CP_METHODS, Plan, PlanWords
from ..ir.plan import plan_of as made_of
from ..ir.types import DType
from .rows.rows import NotJudged, Row
from .rows.words import recipe_of

# How the note of a row says that nothing was compiled: pointwise functions run one by one.
EAGER = "eager;"
_ZERO = {
    "true": 1, "false": 0, "": 0, "none": 0, "zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp2 full shard": 3,
    "zero-1": 1, "zero-1 (dist. optimizer)": 1, "dist.opt. (zero-1)": 1, "ddp+dist.opt.": 1, "zero-3": 3,
    "fsdp8": 3, "fsdp64": 3, "fsdp2 (zero-3)": 3, "full_shard": 3, "shard_grad_op": 3,
    "fsdp (optimizer+grad sharded, no reshard after forward)": 3,
    # Megatron-LM reduces gradients into shards once a step, as its distributed optimizer does.
    "zero-2": 1,
}  # fmt: skip


def stack_of(row: Row) -> str:
    """Return the name of the software that a row was measured with."""
    return row.text("stack") or "default"


def plan_of(row: Row, stack: StackConstants) -> Plan:
    """Return the plan of a row; NotJudged where it is not given in full or is of a kind that is not modelled."""
    # What a row says of a plan but for batches, experts and chunks.
    tp, precision = row.number("tp", 1), recipe_of(row)
    # Whether attention is no one kernel.
    same = row.measured("kv_heads") in (None, row.measured("heads"))
    words = PlanWords(
        tp=tp,
        pp=row.number("pp", 1),
        cp=row.number("cp", 1),
        ep=row.number("ep", 1),
        seq_len=row.number("seq_len"),
        sp=row.flag("sequence_parallel") and tp > 1,
        cp_method=row.text("cp_method") or CP_METHODS[0],
        precision=precision,
        fp8_param_gather=row.flag("fp8_param_gather"),
        fp8_attention=row.flag("fp8_attention"),
        fp8_output_proj=row.flag("fp8_output_proj"),
        zero=_zero(row),
        recompute=_recompute(row),
        early_stop=row.flag("early_stop") if row.text("early_stop") else None,
        recompute_modules=tuple(row.text("recompute_modules").split()),
        reshard=_reshard(row),
        attention="unfused"
        if (row.text("attention") == "unfused" or (row.flag("deterministic_mode") and same))
        else "flash",
        grad_dtype=DType(row.text("grad_dtype") or "fp32"),
        fused=not row.text("note").startswith(EAGER),
        async_tp=row.flag("async_tp") and tp > 1,
        routing_nodes=row.number("routing_nodes", 0),
        mtp_num_layers=row.number("mtp", 0),
        lora_rank=row.number("lora_rank", 0),
        lora_modules=tuple(row.text("lora_modules").split()),
    )
    dp = _replicas(row, words.num_devices, words.zero)
    micro = row.number("micro_batch")
    # Ranks that one expert is split over; a row that only names its model does not say whether it has
    # any.
    given = row.measured("etp")
    has = row.measured("n_experts") or row.number("ep", 1) > 1
    counted = replace(
        words,
        dp=dp,
        etp=int(given) if given is not None and has else None,
        vpp=_chunks(row),
        micro_batch=micro,
        global_batch=row.number("global_batch", micro * dp * words.pp),
    )
    return made_of(counted, stack)


def dtype_of(row: Row) -> DType:
    """Return the type of weights and activations: fp16 where a row says so, else bf16."""
    return DType.FP16 if row.text("precision").lower().startswith("fp16") else DType.BF16


def _zero(row: Row) -> int:
    given = (row.text("dist_optimizer") or row.text("fsdp_or_zero")).lower()
    if given not in _ZERO:
        raise NotJudged(f"the sharding of states '{given}' is not modelled")
    return _ZERO[given]


def _recompute(row: Row) -> str:
    given = row.text("activation_recompute").lower()
    policy = given.split(" (")[0] or "none"
    if policy not in ("none", "full", "selective"):
        raise NotJudged(f"recomputation '{given}' is not modelled")
    return "ops" if "op-level" in given else policy


def _replicas(row: Row, ranks: int, zero: int) -> int:
    """Data-parallel replicas; without them only states that are not sharded over replicas are known."""
    if row.measured("dp") is not None:
        return row.number("dp")
    if row.measured("n_gpus") is not None:
        return row.number("n_gpus") // ranks
    if zero:
        raise NotJudged("neither n_gpus nor dp is given, over which optimizer states are sharded")
    return row.number("ep", 1)


def _reshard(row: Row) -> str | None:
    """Return how long ZeRO 3 keeps gathered parameters, where a row says so."""
    given = row.text("fsdp_or_zero").lower()
    if "no reshard after forward" in given:
        return "step"
    return "microbatch" if given == "shard_grad_op" else None


def _chunks(row: Row) -> int:
    """Model chunks a stage, from the layers in each."""
    pp = row.number("pp", 1)
    if pp == 1 or not row.text("layers_per_virtual_stage"):
        return row.number("vpp", 1)
    return row.number("layers") // (pp * row.number("layers_per_virtual_stage"))
