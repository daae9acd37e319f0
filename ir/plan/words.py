"""The vocabulary of plans: each word once, with its type, default and help, and the structure that words make.

Flags, plan files, their schema, requests, reports, axes of searches and `make_plan` read this table. `PlanNumbers` has
the degrees, batches and lengths, `LoweringPolicy` the words that a graph is lowered for as they stand; `PlanWords` has
both, and `Family` what a graph is lowered for: a policy, and the axes that numbers cut it over.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from ..graph import Workload
from ..records import dataclass
from ..schedules import registry
from ..schedules.kind import ScheduleKind
from ..sizes.rounding import CAPACITY as CAPACITY
from ..sizes.rounding import IMBALANCE as IMBALANCE
from ..types import DType
from .experts.words import EXCHANGES as EXCHANGES
from .experts.words import WIRES as WIRES
from .experts.words import ExpertWords
from .layout.ranks import AUTO, ORDER, PLACEMENTS
from .low_inference import AS_PUBLISHED, KV_WORDS, SAME
from .optimizer_states import FP32, MAIN, MOMENTS
from .precision import NONE, PRECISIONS
from .word import PlanWord, SearchAxis, Word, changed, rows_of

# How blocks fall on pipeline stages; a list of numbers is a layout too.
LAYOUTS = ("auto", "even", "balanced", "filled")
PHASES = ("train", "prefill", "decode", "serve")
CP_METHODS = ("allgather", "ring", "ulysses")
OFFLOAD = ("optimizer", "activations", "params")
RECOMPUTE = ("none", "selective", "ops", "full", "save")
RESHARD = ("layer", "microbatch", "step")
# `plain` has one kernel a norm, rotary embedding and activation; `eager` those that the model's own code spells out.
KERNELS = ("plain", "eager", "merged", "torch", "compiled", "fused")
SERVING_KERNELS = ("eager", "fused")
_SUMS = ("fp32", "bf16", "fp16")
ATTENTION = ("flash", "unfused")
MLA = ("latent", "expanded")


# fmt: off
# Without slots of its own, so that `PlanWords` may have two bases.
@dataclass(frozen=True, kw_only=True)
class PlanNumbers:
    """Degrees, batches and lengths of a plan; None where a rule decides.

    `kv_len` is no word: the tokens that are cached already are `seq_len` in decode, unless a program says otherwise.
    """

    num_gpus: Annotated[int | None, Word(
        "Number of GPUs.  [default: tp x pp x cp x dp]", name="gpus",
        also=("--num-gpus", "--world-size"), behind="exp_avg_sq_dtype", axis=SearchAxis.NUMBER,
    )] = None
    tp: Annotated[int, Word(
        "Tensor-parallel degree.",
        also=("--tensor-model-parallel-size", "--tensor-parallel-size", "--tp-size"), axis=SearchAxis.NUMBER,
    )] = 1
    pp: Annotated[int, Word(
        "Pipeline-parallel degree (stages).",
        also=("--pipeline-model-parallel-size", "--pipeline-parallel-size", "--pp-size"),
        behind="dp", axis=SearchAxis.NUMBER,
    )] = 1
    cp: Annotated[int, Word(
        "Context-parallel degree.", also=("--context-parallel-size", "--cp-size"), behind="order",
        axis=SearchAxis.NUMBER,
    )] = 1
    ep: Annotated[int, Word(
        "Expert-parallel degree: divides dp, or with --etp 1 tp x dp and is a multiple of tp.",
        also=("--expert-model-parallel-size", "--expert-parallel-size", "--ep-size"),
        behind="cp_ulysses", axis=SearchAxis.NUMBER,
    )] = 1
    etp: Annotated[int | None, Word(
        "Tensor-parallel degree inside experts: tp, or 1 for whole experts (in training with --sp); in inference "
        "also tp times ranks of dp, which then gather their tokens.  [default: tp]",
        also=("--expert-tensor-parallel-size",), axis=SearchAxis.CHOICE,
    )] = None
    dp: Annotated[int | None, Word(
        "Data-parallel degree (replicas).  [default: gpus / (tp x pp x cp)]",
        also=("--data-parallel-size", "--dp-size"), behind="tp", axis=SearchAxis.NUMBER,
    )] = None
    vpp: Annotated[int, Word(
        "Virtual pipeline stages: model chunks per stage; above 1, the schedule is interleaved.",
        behind="pp", axis=SearchAxis.NUMBER,
    )] = 1
    micro_batch: Annotated[int, Word(
        "Micro-batch size: sequences per forward and backward pass of a replica.",
        name="mbs", also=("--micro-batch-size",), section="Workload", behind="seq", axis=SearchAxis.NUMBER,
    )] = 1
    global_batch: Annotated[int | None, Word(
        "Global batch size: sequences per step.  [default: mbs x dp]",
        name="gbs", also=("--global-batch-size",), section="Workload", axis=SearchAxis.NUMBER,
    )] = None
    seq_len: Annotated[int, Word(
        "Sequence length in tokens; in decode, tokens in the KV cache.",
        name="seq", also=("--seq-length", "--seq-len"), section="Workload", behind="phase", axis=SearchAxis.ONE,
    )] = 2048
    kv_len: int | None = None
    cp_ulysses: Annotated[int, Word(
        "Ulysses degree inside cp (all-to-all between sequence and heads); --cp-method works across these groups.",
        behind="cp_method", axis=SearchAxis.NUMBER,
    )] = 1
    dp_shard: Annotated[int | None, Word(
        "Shard group size: data-parallel ranks over which ZeRO shards; groups are replicas (HSDP).  [default: dp]",
        behind="zero", axis=SearchAxis.NUMBER,
    )] = None
    capacity_factor: Annotated[float | None, Word(
        "Expert capacity factor; padding tokens are computed and communicated.  [default: no limit]",
        also=("--moe-expert-capacity-factor",), behind="etp", axis=SearchAxis.ONE,
    )] = None
    expert_imbalance: Annotated[float, Word(
        "Load imbalance: tokens of the busiest expert-parallel rank over the mean.", axis=SearchAxis.ONE,
    )] = 1.0

    @property
    def num_devices(self) -> int:
        """The GPUs asked for, or as many as the degrees need."""
        return self.tp * self.pp * self.cp * (self.dp or 1) if self.num_gpus is None else self.num_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringPolicy(ExpertWords):
    """Words that a graph is lowered for as they stand: types, states, experts, kernels, what is kept.

    None where a rule or the stack decides; a family has nothing left open. `published_of` is no word: with precision
    `as-published` a checkpoint says which weights it has in which recipe.
    """

    grad_dtype: Annotated[DType, Word(
        "Data type of gradient accumulation; with ZeRO 0 and 1 also of the reduction.",
        choices=_SUMS, section="Workload", behind="gbs", of_training=True,
    )] = DType.FP32
    reduce_dtype: Annotated[DType | None, Word(
        "Data type of gradient reduction.  [default: with ZeRO 0 and 1 --grad-dtype, else as the stack does]",
        choices=_SUMS, section="Workload", of_training=True,
    )] = None
    main_params_dtype: Annotated[str, Word(
        "Data type of master weights; none: the optimizer updates the weights themselves.",
        choices=MAIN, section="Workload", of_training=True,
    )] = FP32
    exp_avg_dtype: Annotated[str, Word(
        "Data type of Adam's first moment; int8: one scale per 256 values, sets both moments.",
        choices=MOMENTS, section="Workload", of_training=True,
    )] = FP32
    exp_avg_sq_dtype: Annotated[str, Word(
        "Data type of Adam's second moment.", choices=MOMENTS, section="Workload", of_training=True,
    )] = FP32
    mtp_num_layers: Annotated[int, Word(
        "Modules of multi-token prediction: each predicts one further token, with a layer of its own and the model's "
        "embedding and head (DeepSeek-V3 trains 1); on the last pipeline stage.",
        section="Workload", of_training=True, least=0,
    )] = 0
    schedule: Annotated[str, Word(
        "Pipeline schedule: "
        + ", ".join(f"{kind.name} ({kind.help})" for kind in registry.SCHEDULES.values()) + ".",
        choices=registry.WORDS, behind="vpp", needs="pp", axis=SearchAxis.CHOICE,
    )] = registry.USUAL
    pp_layout: Annotated[str | None, Word(
        "Layers per stage: even, balanced (by cost, embedding and head included), auto (even where it divides, else "
        "balanced), filled (one by one, to shares of the weights), or a list such as 9,8,8,7 (with --vpp: chunk by "
        "chunk, in the order of the model).  [default: as the stack does]",
        metavar="WORD|LIST",
    )] = None
    scatter_p2p: Annotated[bool | None, Word(
        "Without --sp: scatter activations over tensor-parallel ranks before the send to the next stage; gather "
        "there.  [default: as the stack does]",
        axis=SearchAxis.NONE,
    )] = None
    order: Annotated[str, Word("Order of mesh axes, innermost (neighbouring ranks) first.", metavar="AXES")] = ORDER
    placement: Annotated[str, Word(
        "Placement of groups on a torus, mesh or HyperX: ranks (along one dimension after the other), blocks (each "
        "group as compact as it goes), closed (blocks of the slice that the network has for the job), or shapes by "
        "axis, as ep=4x4x4 or tp=2x1x1+ep=4x4x4; auto: closed where the network has slices, else ranks.",
        choices=PLACEMENTS, others=True, metavar="WORD|SHAPES",
    )] = AUTO
    sp: Annotated[bool | None, Word(
        "Sequence parallelism.  [default: on for training with tp > 1 where tp divides seq]",
        behind="redundant_experts", axis=SearchAxis.CHOICE,
    )] = None
    tp_plan: Annotated[str, Word(
        "Tensor-parallel sharding of layers: see `slipstick list tp-plans`; or a YAML, JSON or TOML file of `pattern: "
        "style`.",
        metavar="NAME|FILE",
    )] = "megatron"
    async_tp: Annotated[bool, Word(
        "Decompose all-gathers and reduce-scatters of --sp and overlap them with adjacent products.  [default: off]",
    )] = False
    replicate_unknown: Annotated[bool, Word(
        "Replicate an op that has no sharding rule, with a warning, instead of refusing it.", one_way=True,
    )] = False
    zero: Annotated[int, Word("ZeRO stage, 0 to 3.", of_training=True, axis=SearchAxis.CHOICE)] = 0
    reshard: Annotated[str | None, Word(
        "When ZeRO 3 frees gathered parameters: after each layer, micro-batch or step.  [default: as the stack does]",
        choices=RESHARD, noun="reshard policy", behind="dp_shard", of_training=True,
    )] = None
    kernels: Annotated[str | None, Word(
        "Kernels, and with them the activations that training keeps: one kernel per norm, rotary embedding and "
        "activation (plain); those of the model's own code (eager); as plain with one QKV tensor as in nanotron "
        "(merged) or PyTorch's loss in two steps (torch); those of torch.compile over model and loss (compiled); "
        "hand-fused as in Megatron-Core (fused). In inference: eager, or fused as in serving engines.  [default: "
        "those of the stack]",
        choices=KERNELS, noun="kind of kernels",
    )] = None
    attention: Annotated[str, Word(
        "Attention core: one flash kernel, or separate matrix products, softmax and dropout.",
        choices=ATTENTION, noun="kind of attention",
    )] = "flash"
    mla: Annotated[str, Word(
        "MLA in decode: attention over the cached latents (absorbed, as serving engines do), or over keys and "
        "values that are expanded at every step (as the model's own code does).",
        choices=MLA, noun="kind of latent attention",
    )] = "latent"
    precision: Annotated[str, Word(
        "Low-precision recipe of linear layers: fp8 (tensor-wise; training scales by the current "
        "maximum, inference by known ones), fp8-rowwise, fp8-block (1 x 128, weights 128 x 128), mxfp8, int8, nvfp4; "
        "of training fp8-delayed; of inference, weight-only, w8a16, w4a16 (groups of 128: AWQ, GPTQ), mxfp4 "
        "(experts, as gpt-oss), mxfp4-mxfp8, or as-published, that of the checkpoint; none: --dtype. Attention cores, "
        "routers, embedding and head keep --dtype.",
        choices=(*PRECISIONS, AS_PUBLISHED), metavar="RECIPE",
    )] = NONE
    precision_of: Annotated[tuple[tuple[str, str], ...], Word(
        "Recipe by module path, in inference: lm_head=fp8, 'model.layers.*.mlp=nvfp4', "
        "'*experts*=mxfp4', 're:.*down_proj=none'; a star for all layers, or a number for one. Overrides --precision, "
        "also for embedding and head. Repeatable; the last match wins.",
        metavar="PATTERN=RECIPE",
    )] = ()
    kv_dtype: Annotated[str, Word(
        "Data type of the KV cache in inference: same (as --dtype), fp8 or int8 (one scale a tensor), fp4 (as "
        "NVFP4).",
        choices=KV_WORDS, noun="type of the KV cache",
    )] = SAME
    fp8_param_gather: Annotated[bool, Word(
        "All-gather weights over data-parallel ranks in the recipe's type: half the bytes.  [default: off]",
        of_training=True,
    )] = False
    fp8_attention: Annotated[bool, Word(
        "Multiply in fp8 in attention too, forward and backward: queries, keys and values are cast and kept so; with "
        "--precision.  [default: off]",
        also=("--fp8-dot-product-attention",), of_training=True,
    )] = False
    fp8_output_proj: Annotated[bool, Word(
        "Multiply the head in the recipe too; with --precision mxfp8.  [default: off]", of_training=True,
    )] = False
    bf16_first: Annotated[int, Word(
        "Number of first layers that keep --dtype.", also=("--num-layers-at-start-in-bf16",),
    )] = 0
    bf16_last: Annotated[int, Word(
        "Number of last layers that keep --dtype.", also=("--num-layers-at-end-in-bf16",),
    )] = 0
    recompute: Annotated[str, Word(
        "Activation recomputation (checkpointing): selective (the attention core, or --recompute-modules), ops (all "
        "but attention and every second matrix product), full (whole layers), save (all but --recompute-save).",
        choices=RECOMPUTE, of_training=True, axis=SearchAxis.CHOICE,
    )] = "none"
    recompute_modules: Annotated[tuple[str, ...], Word(
        "With selective, what is recomputed: core_attn, layernorm, mlp, mlp_act, moe, shared_experts, "
        "mla_up_proj, or module paths such as mlp.act_fn or *.self_attn*, separated by commas.  [default: core_attn]",
        metavar="LIST",
    )] = ()
    recompute_layers: Annotated[int, Word(
        "With full or save, recompute only the first N layers (of each chunk of a stage), keep the others whole "
        "(Megatron: block).",
        also=("--recompute-num-layers",), is_told=False, least=1,
    )] = 0
    recompute_by_chunk: Annotated[str, Word(
        "As --recompute-layers, chunk by chunk in the order of the model, as 4,3,1,0: early stages hold more "
        "micro-batches.",
        metavar="LIST", of_training=True,
    )] = ""
    recompute_save: Annotated[tuple[str, ...], Word(
        "With save, results that layers keep: module paths such as mlp.gate_proj, PATH:OP for one operator of a module "
        "(self_attn:rope, :elementwise), wildcards, or names of --recompute-modules, separated by commas. `slipstick "
        "recompute` finds the best.",
        metavar="LIST", of_training=True,
    )] = ()
    recompute_save_rest: Annotated[tuple[str, ...], Word(
        "With save and --recompute-layers, results that the other layers keep.  [default: all]",
        metavar="LIST", of_training=True,
    )] = ()
    recompute_every: Annotated[int, Word(
        "With full, keep the input of every N-th layer only and recompute N together (Megatron: uniform).",
        is_told=False, least=1,
    )] = 1
    early_stop: Annotated[bool | None, Word(
        "Stop recomputing at the last tensor needed; off: recompute all of it.  [default: as the stack does]",
    )] = None
    offload: Annotated[tuple[str, ...], Word(
        "State offloaded to host memory: optimizer (which then updates there), activations, params (with --zero 3), "
        "separated by commas.",
        metavar="LIST", of_training=True,
    )] = ()
    offload_modules: Annotated[tuple[str, ...], Word(
        "With --offload activations, offload only these results of layers, named as in --recompute-save.  "
        "[default: all that layers keep]",
        metavar="LIST", of_training=True,
    )] = ()
    fused: Annotated[bool, Word(
        "Fuse pointwise chains into one kernel.", name="fuse", section="Compiler",
    )] = True
    published_of: tuple[tuple[str, str], ...] = ()

    @property
    def recomputed_layers(self) -> int | tuple[int, ...]:
        """Layers that each chunk recomputes, its first ones; 0 for all of them, or a number a chunk."""
        return tuple(map(int, self.recompute_by_chunk.split(","))) if self.recompute_by_chunk else self.recompute_layers

    @property
    def states(self) -> tuple[str, str, str]:
        """Types of master weights and of both moments."""
        return self.main_params_dtype, self.exp_avg_dtype, self.exp_avg_sq_dtype

    @property
    def pipeline(self) -> ScheduleKind:
        """The schedule itself, by its word; UnknownNameError where there is none."""
        return registry.schedule_kind(self.schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWords(LoweringPolicy, PlanNumbers):
    """The settings of a plan under the names of flags and plan files; None where a rule or the stack decides.

    >>> PlanWords(num_gpus=64, tp=8, zero=1).recompute
    'none'
    """

    phase: Annotated[str, Word(
        "What to estimate: one step of train, prefill or decode, or with serve a server of requests.",
        choices=PHASES, section="Workload", axis=SearchAxis.ONE,
    )] = "train"
    cp_method: Annotated[str, Word(
        "Context-parallel attention: all-gather of keys and values, ring, or Ulysses (all-to-all).",
        choices=CP_METHODS, behind="cp", axis=SearchAxis.CHOICE,
    )] = CP_METHODS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(LoweringPolicy):
    """The settings that change the structure of the graph; degrees and batches of a family are numbers.

    `scatter_p2p`: each rank of tp sends the next stage a piece, which gathers them. `kernels` says what is kept and
    what is written in place: what autograd keeps with a kernel for each norm, rotary embedding and activation and a
    loss in one kernel (`plain`) or in PyTorch's two steps (`torch`), with queries, keys and values in one tensor
    (`merged`), with operators of the model's own code for norms and the like (`eager`; the graph is `spelled_out`),
    what `torch.compile` over model and loss keeps (`compiled`), or as hand-fused training kernels do (`fused`). In
    inference `fused` are those of serving engines. `tp` cuts the graph as `tp_plan` says. Of experts: `ep` shards them;
    `etp` splits them inside over tp, else they are whole, and with `ep` distributed over tp too; `capacity` and
    `imbalance` bring in the numbers of that name; `dispatch_dtype` is `same` or `fp8`; `routing_nodes` limits the nodes
    that a token is sent to; `exchange` is how rows get to their experts over ep. `etp_dp` splits experts inside over
    data-parallel ranks too: all of these have all tokens then. `precision` is the recipe by which the products of
    weights in layers run, of those for training or for inference; in training weights are gathered so too on request,
    and the first and last layers may keep theirs. `kv_dtype` is the type in which inference keeps keys and values: that
    of the model (`same`), fp8, int8 or fp4. `precision_of` are pairs of a pattern over paths of weights and a recipe,
    which hold over `precision` and over those before them, for embedding and head too; `published_of` are those of a
    checkpoint. `main_params_dtype`, `exp_avg_dtype` and `exp_avg_sq_dtype` are types of optimizer states, `none` for
    none. `mla` says over what latent attention runs in decode: the cached latents, or keys and values made from them.
    """

    scatter_p2p: bool = False
    early_stop: bool = True
    reshard: str = "layer"
    pp_layout: str = "auto"
    sp: bool = False
    kernels: str = "plain"
    workload: Workload = Workload.TRAIN
    tp: bool = True
    cp: str = "none"
    usp: bool = False
    ep: bool = False
    pp: bool = False
    etp: bool = True
    etp_dp: bool = False
    hsdp: bool = False
    capacity: bool = False
    imbalance: bool = False


# fmt: on
PLAIN = Family()
WORDS: Mapping[str, PlanWord] = MappingProxyType(dict(rows_of(PlanWords)))


def words_said(said: Mapping[str, object], over: PlanWords | None = None) -> PlanWords:
    """Return words with what flags say, by name; all others are as in `over`, or have their defaults.

    >>> words_said({"mbs": 2, "offload": "optimizer,params"}).offload
    ('optimizer', 'params')
    """
    given = {WORDS[name].field: WORDS[name].read(value) for name, value in said.items()}
    return changed(PlanWords() if over is None else over, given)
