"""Words of a plan and its model; a field without `Annotated` spells out a word of `ir/plan/words.py` for checkers."""

# fmt: off
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ...ir.records import dataclass
from ...ir.schedules.registry import USUAL
from .options import Opt, Pairs, Texts


@dataclass(frozen=True, kw_only=True)
class PhaseArgs:
    """Phase and sequence length."""

    phase: Literal["train", "prefill", "decode", "serve"] = "train"
    seq: int = 2048


@dataclass(frozen=True, kw_only=True)
class ImageArgs:
    """Images of a sequence."""

    images: Annotated[int, Opt(
        "Images per sequence of a vision-language model, encoder included; 0: the language model alone.",
        metavar="N",
    )] = 0


@dataclass(frozen=True, kw_only=True)
class DimArgs:
    """Named dims of a model file."""

    dim: Annotated[Pairs, Opt(
        "Meaning of a named dim of an ONNX or .pt2 file: batch, seq, kv, total (kv + seq), tokens (batch x seq) or a "
        "number. Repeatable; common names are known.",
        name="dims", metavar="NAME=SIZE",
    )] = ()


@dataclass(frozen=True, kw_only=True)
class DescribingArgs:
    """Inputs, loss and leaves of a factory (file.py:function)."""

    input: Annotated[Texts, Opt(
        "Input of a factory's module, e.g. ids:int64[batch,seq] or image:bf16[batch,3,224,224]; dims are batch, seq, "
        "kv or numbers, the default type is the model's. Repeatable.  [default: what the factory says, else token "
        "ids]",
        name="inputs", metavar="NAME:DTYPE[DIM,..]",
    )] = ()
    loss: Annotated[str | Path | None, Opt(
        "Function that computes the loss from the outputs of a factory's module.  [default: a scalar called loss, "
        "else cross-entropy of logits, else the sum of all real outputs]",
        metavar="FILE:FUNCTION",
    )] = None
    fixed: Annotated[Pairs, Opt(
        "Trace a factory's module with this size as a constant, e.g. seq=2048. Repeatable.",
        metavar="SIZE=N",
    )] = ()
    leaf: Annotated[Pairs, Opt(
        "Treat a module class that tracing cannot record as one known operator: experts(top_k=2), "
        "attention(causal=true,layout=bshd) or recurrence(kind=delta). Repeatable.",
        name="leaves", metavar="CLASS=KIND(..)",
    )] = ()
    kv_cache: Annotated[Texts, Opt(
        "An --input of a factory's module that is a KV cache, in decode. Repeatable.",
        name="caches", metavar="NAME",
    )] = ()


@dataclass(frozen=True, kw_only=True)
class BatchArgs:
    """Sequences of a step, types of what is computed and kept, and what else is trained."""

    mbs: int = 1
    gbs: int | None = None
    dtype: Annotated[str, Opt("Data type of weights and activations: bf16, fp16, fp32.", metavar="TEXT")] = "bf16"
    grad_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    reduce_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    main_params_dtype: Literal["fp32", "fp16", "none"] = "fp32"
    exp_avg_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8"] = "fp32"
    exp_avg_sq_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8"] = "fp32"
    lora_rank: int = 0
    lora_modules: str | Sequence[str] | None = None
    lora_dropout: float = 0.0
    lora_base: Literal["same", "nf4", "int8"] = "same"
    mtp_num_layers: int = 0


@dataclass(frozen=True, kw_only=True)
class WorkloadArgs(PhaseArgs, ImageArgs, DimArgs, DescribingArgs, BatchArgs):
    """Words of a model and a step of it."""


@dataclass(frozen=True, kw_only=True)
class DegreeArgs:
    """Degrees of parallelism, and how stages are scheduled."""

    gpus: int | None = None
    tp: int = 1
    dp: int | None = None
    pp: int = 1
    vpp: int = 1
    schedule: str = USUAL
    pp_layout: str | Sequence[str] | None = None
    scatter_p2p: bool | None = None
    order: str = "tp-cp-ep-dp-pp"
    cp: int = 1
    cp_method: Literal["allgather", "ring", "ulysses"] = "allgather"
    cp_ulysses: int = 1


@dataclass(frozen=True, kw_only=True)
class ExpertShardArgs:
    """Expert parallelism and its exchange."""

    ep: int = 1
    etp: int | None = None
    capacity_factor: float | None = None
    expert_imbalance: float = 1.0
    ep_exchange: Literal["alltoall", "allgather"] = "alltoall"
    dispatch_dtype: Literal["same", "fp8"] = "same"
    routing_nodes: int = 0
    expert_popularity: str | Path = ""
    eplb: bool = False
    redundant_experts: int = 0


@dataclass(frozen=True, kw_only=True)
class ShardArgs:
    """Sharding of tensors and optimizer states, and kernels."""

    sp: bool | None = None
    tp_plan: str | Path = "megatron"
    async_tp: bool = False
    replicate_unknown: bool | None = None
    zero: int = 0
    dp_shard: int | None = None
    reshard: Literal["layer", "microbatch", "step"] | None = None
    kernels: Literal["plain", "eager", "merged", "torch", "compiled", "fused"] | None = None
    attention: Literal["flash", "unfused"] = "flash"
    mla: Literal["latent", "expanded"] = "latent"


@dataclass(frozen=True, kw_only=True)
class PrecisionArgs:
    """Numeric precision of layers."""

    precision: Literal[
        "none", "fp8", "fp8-delayed", "fp8-rowwise", "fp8-block", "mxfp8", "int8", "int8-dgrad", "nvfp4", "w8a16",
        "w4a16", "mxfp4", "mxfp4-mxfp8", "as-published",
    ] = "none"
    precision_of: Pairs = ()
    kv_dtype: Literal["same", "fp8", "int8", "fp4"] = "same"
    fp8_param_gather: bool = False
    fp8_attention: bool = False
    fp8_output_proj: bool = False
    bf16_first: int = 0
    bf16_last: int = 0


@dataclass(frozen=True, kw_only=True)
class KeptArgs:
    """Recomputation, offload and placement of ranks."""

    recompute: Literal["none", "selective", "ops", "full", "save"] = "none"
    recompute_modules: str | Sequence[str] | None = None
    recompute_layers: int | None = None
    recompute_by_chunk: str | Sequence[str] = ""
    recompute_save: str | Sequence[str] | None = None
    recompute_save_rest: str | Sequence[str] | None = None
    recompute_every: int | None = None
    early_stop: bool | None = None
    offload: str | Sequence[str] | None = None
    offload_modules: str | Sequence[str] | None = None
    placement: str = "auto"


@dataclass(frozen=True, kw_only=True)
class LoweringArgs:
    """Passes of the lowering, and dumps of graphs."""

    fuse: bool = True
    passes: Annotated[str | None, Opt(
        "The pass pipeline to run instead of the default, as printed by --time-passes.",
        flags=("-p", "--passes"), metavar="TEXT",
    )] = None
    stop_after: Annotated[str | None, Opt("Stop lowering after this pass.", metavar="PASS")] = None
    dump_after: Annotated[str | None, Opt("Write the graph after this pass, or after each.", metavar="PASS|all")] = None
    dump_dir: Annotated[str, Opt("Where --dump-after writes.", metavar="DIR")] = "dump"
    time_passes: Annotated[bool, Opt("Print the pipeline and the time of each pass to stderr.")] = False


@dataclass(frozen=True, kw_only=True)
class PlanArgs(DegreeArgs, ExpertShardArgs, ShardArgs, PrecisionArgs, KeptArgs):
    """How a model is split over devices, and in which form; words of plans that no field spells out are here too."""

    spelled_elsewhere: ClassVar[tuple[type, ...]] = (PhaseArgs, BatchArgs, LoweringArgs)
