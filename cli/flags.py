"""The flags that verbs share, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import click

from ..ir.errors import did_you_mean
from ..ir.low_inference import AS_PUBLISHED, KV_WORDS
from ..ir.optimizer_states import MAIN, MOMENTS
from ..ir.precision import PRECISIONS
from .run_flags import RUN_FLAGS


class Named(click.Choice[str]):
    """A choice that answers a wrong word with the nearest right one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, or fail with what was given, what is allowed and the nearest."""
        if value in self.choices:
            return value
        allowed = [str(c) for c in self.choices]
        self.fail(f"'{value}' is not allowed{did_you_mean(value, allowed)} allowed: {', '.join(allowed)}", param, ctx)


def _number(*names: str, help: str, default: int | None = None) -> click.Option:
    return click.Option(names, type=int, metavar="N", default=default, show_default=True, help=help)


def _real(*names: str, help: str, default: float | None = None) -> click.Option:
    return click.Option(names, type=float, metavar="X", default=default, show_default=True, help=help)


def _text(*names: str, help: str, default: str | None = None, metavar: str = "TEXT") -> click.Option:
    return click.Option(names, metavar=metavar, default=default, show_default=True, help=help)


def _word(name: str, words: tuple[str, ...], help: str, metavar: str | None = None) -> click.Option:
    return click.Option([name], type=Named(words), default=words[0], show_default=True, metavar=metavar, help=help)


MODEL = click.Argument(["model"])


def _listed(*names: str, metavar: str, help: str) -> click.Option:
    return click.Option(names, multiple=True, metavar=metavar, help=help)


# What a factory (file.py:function) does not say itself; every command that takes such a model has these.
DESCRIBING = (
    _listed(
        "--input",
        "inputs",
        metavar="NAME:DTYPE[DIM,..]",
        help="An argument of a factory's module, as ids:int64[batch,seq] or image:bf16[batch,3,224,224]; dims are "
        "batch, seq, kv or numbers, the type is the model's where it is left out. Repeatable.  [default: what the "
        "factory says, else token ids]",
    ),
    click.Option(
        ["--loss", "loss"],
        metavar="FILE:FUNCTION",
        help="What makes a loss of what a factory's module returns.  [default: a scalar called loss, else "
        "cross-entropy of logits, else the sum of all real outputs]",
    ),
    _listed(
        "--fixed",
        "fixed",
        metavar="SIZE=N",
        help="Record a factory's module with this size as a plain number, as seq=2048. Repeatable.",
    ),
    _listed(
        "--leaf",
        "leaves",
        metavar="CLASS=KIND(..)",
        help="What a class of a factory's module computes that cannot be recorded: experts(top_k=2) or "
        "attention(causal=true,layout=bshd). Repeatable.",
    ),
    _listed(
        "--kv-cache",
        "caches",
        metavar="NAME",
        help="An --input of a factory's module that is a KV cache, in decode. Repeatable.",
    ),
)
_WORKLOAD = (
    _word("--phase", ("train", "prefill", "decode", "serve"), "What is run: a step of it, or a server of requests."),
    _number("--seq", "--seq-length", default=2048, help="Tokens a sequence; in decode, tokens in the KV cache."),
    _number(
        "--images",
        default=0,
        help="Pictures a sequence of a model that sees, with their encoder in the graph; 0: its language model alone.",
    ),
    click.Option(
        ["--dim", "dims"],
        multiple=True,
        metavar="NAME=SIZE",
        help="What a named dim of an ONNX or .pt2 file is: batch, seq, kv, total (kv + seq), tokens (batch x seq) or a "
        "number. Repeatable; common names are known.",
    ),
    *DESCRIBING,
    _number("--mbs", "--micro-batch-size", default=1, help="Sequences a replica runs at once."),
    _number("--gbs", "--global-batch-size", help="Sequences a step.  [default: mbs x dp]"),
    _text("--dtype", default="bf16", help="Type of weights and activations: bf16, fp16, fp32."),
    _word(
        "--grad-dtype", ("fp32", "bf16", "fp16"), "Type in which gradients are summed; with ZeRO 0 and 1 also reduced."
    ),
    click.Option(
        ["--reduce-dtype"],
        type=Named(("fp32", "bf16", "fp16")),
        help="Type in which gradients are reduced.  [default: with ZeRO 0 and 1 that of the sums, else the model's]",
    ),
    _word("--main-params-dtype", MAIN, "Type of the optimizer's master weights; none: weights themselves are updated."),
    _word("--exp-avg-dtype", MOMENTS, "Type of Adam's first moment; int8 has a scale for 256 values, and is of both."),
    _word("--exp-avg-sq-dtype", MOMENTS, "Type of Adam's second moment."),
)
_PLAN = (
    _number("--gpus", help="Number of GPUs.  [default: tp x pp x cp x dp]"),
    _number("--tp", "--tensor-model-parallel-size", default=1, help="Tensor-parallel degree."),
    _number("--dp", "--data-parallel-size", help="Data-parallel replicas.  [default: gpus / (tp x pp x cp)]"),
    _number("--pp", "--pipeline-model-parallel-size", default=1, help="Pipeline stages."),
    _number("--vpp", default=1, help="Model chunks a stage: above 1, stages are interleaved."),
    _word(
        "--schedule",
        ("1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"),
        "Order in which a stage runs its micro-batches: 1f1b (with --vpp above 1 interleaved, which may be said), "
        "gpipe, zero-bubble zb-h1 (with --vpp above 1 interleaved too), zb-h2 (twice the activations) and zb-v (two "
        "chunks a stage), dualpipe (from both ends; two copies of the parameters), or dualpipe-v (half of it: two "
        "chunks a stage).",
    ),
    _text(
        "--pp-layout",
        default="auto",
        metavar="WORD|LIST",
        help="Layers of each stage: even, balanced (by cost, ends included), auto (even where it divides, else "
        "balanced), or a list such as 9,8,8,7 (with --vpp: chunk by chunk, in the order of the model).",
    ),
    click.Option(
        ["--scatter-p2p/--no-scatter-p2p"],
        default=None,
        help="Without --sp, tensor-parallel ranks send pieces to the next stage, which gathers them.  [default: as the "
        "stack does]",
    ),
    _text("--order", default="tp-cp-ep-dp-pp", metavar="AXES", help="Mesh axes from neighbouring ranks outwards."),
    _number("--cp", "--context-parallel-size", default=1, help="Context-parallel degree."),
    _word("--cp-method", ("allgather", "ring", "ulysses"), "How attention crosses the context-parallel ranks."),
    _number("--cp-ulysses", default=1, help="Of cp, ranks that exchange sequence for heads inside a ring or gather."),
    _number(
        "--ep",
        "--expert-model-parallel-size",
        default=1,
        help="Expert-parallel degree: divides dp, or with --etp 1 tp x dp and is a multiple of tp.",
    ),
    _number(
        "--etp",
        "--expert-tensor-parallel-size",
        help="Tensor-parallel degree inside experts: tp, or 1 for whole experts (in training with --sp); in inference "
        "also tp times ranks of dp, which then gather their tokens.  [default: tp]",
    ),
    _real(
        "--capacity-factor",
        "--moe-expert-capacity-factor",
        help="Rows an expert has room for, over the mean; all of them are computed and sent.  [default: no limit]",
    ),
    _real("--expert-imbalance", default=1.0, help="Rows of the busiest expert-parallel rank, over the mean."),
    _word(
        "--ep-exchange",
        ("alltoall", "allgather"),
        "How rows get to the experts of other ranks: each is sent there and back, or (in inference) all ranks gather "
        "all tokens, run their own experts and sum.",
    ),
    _word("--dispatch-dtype", ("same", "fp8"), "Type in which rows travel to their experts; back they keep their own."),
    _number("--routing-nodes", default=0, help="Most nodes a token is sent to, with copies inside; 0 for no limit."),
    click.Option(
        ["--sp/--no-sp"],
        default=None,
        help="Sequence parallelism.  [default: on for training with tp > 1 where tp divides seq]",
    ),
    _text(
        "--tp-plan",
        default="megatron",
        metavar="NAME|FILE",
        help="How layers are split: see `slipstick list tp-plans`; or a YAML, JSON or TOML file of `pattern: style`.",
    ),
    click.Option(
        ["--async-tp/--no-async-tp"],
        default=False,
        help="Take gathers and scatters of --sp apart and hide them behind the products next to them.  [default: off]",
    ),
    click.Option(
        ["--replicate-unknown"],
        is_flag=True,
        help="Gather the inputs of an op that has no sharding rule, and say so, instead of refusing it.",
    ),
    _number("--zero", default=0, help="ZeRO stage, 0 to 3."),
    _number(
        "--dp-shard", help="Replicas that share what ZeRO shards; groups of them are replicas (HSDP).  [default: dp]"
    ),
    _word("--reshard", ("layer", "microbatch", "step"), "How long ZeRO 3 keeps gathered parameters."),
    click.Option(
        ["--kernels"],
        type=Named(("plain", "eager", "merged", "torch", "fused")),
        help="What training keeps and writes in place: what autograd keeps with one kernel a norm, rotary embedding "
        "and activation (plain), or with those that the model's own code spells out (eager); as plain, with queries, "
        "keys and values in one tensor as in nanotron, or PyTorch's own loss in two steps; or with hand-fused kernels "
        "as in Megatron-Core. In inference: as the model's code runs them, or fused as serving engines do.  [default: "
        "those of the stack]",
    ),
    _word("--attention", ("flash", "unfused"), "One kernel, or products, softmax and dropout one by one."),
    _word(
        "--mla",
        ("latent", "expanded"),
        "Over what latent attention runs in decode: the cached latents, as serving engines do, or keys and values made "
        "from them anew at every step, as the model's own code does.",
    ),
    _word(
        "--precision",
        (*PRECISIONS, AS_PUBLISHED),
        "Recipe in which the products of weights in layers run: fp8 (tensor-wise; training scales by the current "
        "maximum, inference by known ones), fp8-rowwise, fp8-block (1 x 128, weights 128 x 128), mxfp8, nvfp4; of "
        "training fp8-delayed; of inference int8 and, weights alone, w8a16, w4a16 (groups of 128: AWQ, GPTQ), mxfp4 "
        "(experts, as gpt-oss), mxfp4-mxfp8, or as-published, that of the checkpoint; none: in --dtype. Attention "
        "cores, routers, embedding and head stay.",
        metavar="RECIPE",
    ),
    click.Option(
        ["--precision-of"],
        multiple=True,
        metavar="PATTERN=RECIPE",
        help="Recipe of weights by their module path, in inference: lm_head=fp8, 'model.layers.*.mlp=nvfp4', "
        "'*experts*=mxfp4', 're:.*down_proj=none'; a star for all layers, or a number for one. Holds over --precision, "
        "also for embedding and head. Repeatable; the last that names a weight holds.",
    ),
    _word(
        "--kv-dtype",
        KV_WORDS,
        "Type in which inference keeps keys and values: same (as --dtype), fp8 or int8 (one scale a tensor), fp4 (as "
        "NVFP4).",
    ),
    click.Option(
        ["--fp8-param-gather/--no-fp8-param-gather"],
        default=False,
        help="Gather weights over data-parallel ranks in the recipe's type, half the bytes.  [default: off]",
    ),
    _number(
        "--bf16-first", "--num-layers-at-start-in-bf16", default=0, help="First layers that a --precision leaves out."
    ),
    _number("--bf16-last", "--num-layers-at-end-in-bf16", default=0, help="Last layers that a --precision leaves out."),
    _word(
        "--recompute",
        ("none", "selective", "ops", "full"),
        "Activations computed again in the backward phase: the attention core or --recompute-modules (selective), all "
        "but the results of attention and every second matrix product (ops), whole layers (full).",
    ),
    _text(
        "--recompute-modules",
        metavar="LIST",
        help="With selective, what is recomputed: core_attn, layernorm, mlp, mlp_act, moe, shared_experts, "
        "mla_up_proj, or module paths such as mlp.act_fn or *.self_attn*, separated by commas.  [default: core_attn]",
    ),
    _number(
        "--recompute-layers",
        "--recompute-num-layers",
        help="With full, recompute only the first N layers (of each chunk of a stage), keep the others whole "
        "(Megatron: block).",
    ),
    _number(
        "--recompute-every",
        help="With full, keep the input of every N-th layer only and recompute N together (Megatron: uniform).",
    ),
    click.Option(
        ["--early-stop/--no-early-stop"],
        default=True,
        show_default=True,
        help="Recompute only up to the last tensor needed; off, all of it, as reentrant checkpoints do.",
    ),
)
_OFFLOAD = _text(
    "--offload",
    metavar="LIST",
    help="What lies in host memory: optimizer (which then updates there), activations, params (with --zero 3), "
    "separated by commas.",
)
_MACHINE = (
    _text("--system", metavar="NAME|FILE", help="A name of `slipstick list systems`, or a YAML file (needed)."),
    _text(
        "--stack",
        metavar="NAME|FILE",
        help="Software on the system, a name of `slipstick list stacks` or a YAML file: overheads, the host's time, "
        "what overlaps, kernels, what its allocator holds.  [default: the system's]",
    ),
    _text(
        "--calibration",
        metavar="NAME|FILE",
        help="Constants of the kernels: a name of the catalogue, a YAML file that `slipstick calibrate` wrote, or "
        "'default' for those that carry over to any chip.  [default: the chip's]",
    ),
    _text(
        "--prices",
        metavar="NAME|FILE",
        help="What the system is paid with: a profile of `slipstick list prices`, or a YAML file of what differs from "
        "the usual one.  [default: the system's, else the usual]",
    ),
    click.Option(
        ["--cuda-graph/--no-cuda-graph"],
        default=None,
        help="Replay kernels from captured CUDA graphs: the host no longer spaces them.  [default: the stack's]",
    ),
    click.Option(
        ["--set", "overrides"],
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a number of the system or its prices, e.g. chip.memory.hbm.bandwidth=4.8TB/s, "
        "prices.nodes.N5.wafer_price=13400USD. Repeatable.",
    ),
)
MONEY = (
    _word(
        "--basis",
        ("market", "build"),
        "How a system is priced: what is sold at the price it is sold for, or everything by what it is made of.",
    ),
    click.Option(["--rent/--own"], default=False, help="Rent by the hour at a cloud's price.  [default: own]"),
)
_COMPILER = (
    click.Option(["--fuse/--no-fuse"], default=True, show_default=True, help="Fuse pointwise chains into one kernel."),
    _text("-p", "--passes", help="The pass pipeline to run instead of the default, as printed by --time-passes."),
    _text("--stop-after", metavar="PASS", help="Stop lowering behind this pass."),
    _text("--dump-after", metavar="PASS|all", help="Write the graph after this pass, or after each."),
    _text("--dump-dir", default="dump", metavar="DIR", help="Where --dump-after writes."),
    click.Option(["--time-passes"], is_flag=True, help="Print the pipeline and the time of each pass to stderr."),
)
_OTHER = (
    click.Option(
        ["--allow-unpriced"],
        is_flag=True,
        help="Count operators that have no rule by the bytes they read and write, and say which they are, instead of "
        "refusing the model.",
    ),
    _word("--flops-convention", ("full", "causal"), "How masked attention counts in MFU."),
    click.Option(
        ["--cache/--no-cache"], default=True, show_default=True, help="Keep traced graphs in the user's cache folder."
    ),
    click.Option(["-q", "--quiet"], is_flag=True, help="No progress on stderr."),
)

SECTIONS: Mapping[str, tuple[click.Option, ...]] = MappingProxyType(
    {"Workload": _WORKLOAD, "Plan": (*_PLAN, _OFFLOAD), "Machine": _MACHINE, "Training run": RUN_FLAGS,
     "Money": MONEY, "Compiler": _COMPILER, "Other": _OTHER}
)  # fmt: skip
