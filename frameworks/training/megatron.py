"""Megatron-LM: flags of its pretrain scripts, and the same as a mapping in YAML.

Names and defaults as in NVIDIA/Megatron-LM at commit d98e8a64ddf3: megatron/training/arguments.py; those of
`--cp-comm-type` in megatron/core/transformer/transformer_config.py, what Megatron-FSDP needs in its user guide. Experts
lie inside data parallelism: data parallelism x context parallelism x tp is a multiple of ep x etp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import ParseError, UsageError
from ...ir.plan import ORDER
from ...ir.plan.optimizer_states import FP32
from ...ir.plan.precision import NONE
from ..export import ExportSubject, command, lost_schedule, torchrun
from ..launch import MOST_STAGES, Reading, Word
from ..rows import (
    ABOVE_ONE,
    COUNT,
    DEGREE,
    POSITIVE,
    REAL,
    SWITCH,
    Beside,
    CannotSay,
    Codec,
    FixedWord,
    Framework,
    Group,
    SettingRow,
    Text,
    Words,
    Writing,
    choice,
    count,
    is_on,
    switch,
)
from ..shapes import catalogue_name
from .megatron_memory import MEMORY
from .megatron_shape import read_shape, shape_left, write_shape
from .megatron_stages import read_stages, write_stages

TITLE = "Megatron-LM"
_CP: Mapping[str, str] = MappingProxyType(
    {"ring": "p2p a2a+p2p", "allgather": "all_gather allgather", "ulysses": "a2a"}
)
_FP8: Mapping[str, str] = MappingProxyType(
    {"fp8": "tensorwise", "fp8-delayed": "delayed", "fp8-block": "blockwise", "mxfp8": "mxfp8"}
)
_TP_INSIDE_PP = "tp-cp-ep-pp-dp"


def _check_trains(r: Reading) -> None:
    """Refuse what is no training of all weights: generation, reinforcement learning, adapters."""
    generates = ("num_tokens_to_generate", "inference_max_seq_length", "inference_max_requests", "prompts", "top_k")
    others = (
        ("generates text", generates),
        ("trains by reinforcement", ("perform_rl_step",)),
        ("trains adapters", ("lora.enabled", "peft", "lora_rank")),
        ("trains images", ("vae_scale", "model_type")),
    )
    for what, names in others:
        if name := next((name for name in names if r.has(name) and r.text(name) not in ("False", "GPT")), None):
            raise UsageError(f"{r.shown(name)}: this launch of Megatron-LM {what}; a launch that trains is read")


class _Sp:
    @staticmethod
    def read(r: Reading, _: Sequence[str]) -> bool:
        return r.flag("sequence_parallel") and is_on(r.words, "tp")


class _Etp:
    @staticmethod
    def read(r: Reading, names: Sequence[str]) -> int | None:
        etp = r.count(*names)
        return etp if _has_experts(r) and etp != r.words["tp"] else None

    @staticmethod
    def write(value: Word, words: Words) -> tuple[Text, ...]:
        return (1,) if value == 1 and is_on(words, "tp") else ()


def _read_ulysses(r: Reading) -> None:
    if is_on(r.words, "cp") and r.text("cp_comm_type") == "a2a+p2p":
        sizes = re.findall(r"[0-9]+", r.text("hierarchical_context_parallel_sizes") or "")
        r.say("cp_ulysses", int(sizes[0]) if sizes else None, "hierarchical_context_parallel_sizes")
    elif not is_on(r.words, "cp"):
        r.understand("of one rank", "hierarchical_context_parallel_sizes")


class _CpMethod:
    @staticmethod
    def write(value: Word, words: Words) -> tuple[Text, ...]:
        return ("a2a+p2p",) if is_on(words, "cp_ulysses") else (_CP[str(value)].split()[0],)


def _write_ulysses(w: Writing) -> None:
    plan = w.plan
    if plan.cp > 1 and plan.cp_ulysses > 1:
        w.say("--hierarchical-context-parallel-sizes", f"{plan.cp_ulysses} {plan.cp // plan.cp_ulysses}")
        line = f"cp_ulysses {plan.cp_ulysses} with cp_method {plan.cp_method}: a2a+p2p passes keys and values in a ring"
        w.lose(line, plan.cp_method != "ring")


class _Scatter:
    @staticmethod
    def read(r: Reading, names: Sequence[str]) -> bool | None:
        return False if r.flag(*names) and is_on(r.words, "tp") and not r.words["sp"] else None

    @staticmethod
    def write(value: Word, words: Words) -> tuple[Text, ...]:
        if value and is_on(words, "pp") and is_on(words, "tp") and not words["sp"]:
            raise CannotSay("each rank sends the next stage all that it has")
        return ()


def _has_experts(r: Reading) -> bool:
    return bool(r.count("num_experts", "num_local_experts", least=0))


def _read_dispatch(r: Reading) -> None:
    dispatcher = r.text("moe_token_dispatcher_type") or "allgather"
    if dispatcher not in ("allgather", "alltoall", "flex", "alltoall_seq"):
        raise ParseError(f"{r.shown('moe_token_dispatcher_type')}: '{dispatcher}' is none of allgather, alltoall, flex")
    if dispatcher == "allgather" and is_on(r.words, "ep") and _has_experts(r):
        r.assume("rows of experts go by all-to-all: in training no other exchange is modelled, the launch gathers all")
    if dispatcher == "flex":
        r.assume("kernels of DeepEP or HybridEP take as long as an all-to-all of the same bytes")
        r.understand("all-to-all", "moe_flex_dispatcher_backend", "moe_enable_deepep")


def _read_devices(r: Reading) -> None:
    """Devices of the launch, else as few as the degrees need: experts' ranks lie over tp x cp x dp of a stage."""
    if "seq" not in r.words:
        r.assume("seq 4096: the launch names no --seq-length")
        r.words["seq"] = 4096
    tp, pp, cp, ep = (int(str(r.words.get(name, 1))) for name in ("tp", "pp", "cp", "ep"))
    replicas = max(1, -(-ep * int(str(r.words.get("etp", tp))) // (tp * cp)))
    replicas *= r.count("num_distributed_optimizer_instances") or 1
    num_gpus = r.num_gpus
    if num_gpus is None:
        num_gpus = tp * pp * cp * replicas
        r.assume(f"gpus {num_gpus}: the launch names no number of nodes; say --gpus N for the one that runs")
    if num_gpus % (tp * pp * cp):
        raise ParseError(f"{num_gpus} GPUs are no multiple of tp {tp} x pp {pp} x cp {cp}")
    r.words["gpus"] = num_gpus
    if "gbs" not in r.words:
        r.words["gbs"] = int(str(r.words["mbs"])) * num_gpus // (tp * pp * cp)
        r.assume(f"gbs {r.words['gbs']}: without --global-batch-size a step is one micro-batch a replica")


class _GradDtype:
    @staticmethod
    def read(r: Reading, _: Sequence[str]) -> str | None:
        """Read a flag and a text, each by its own name: another name of the row is added here as well."""
        return "bf16" if r.flag("grad_reduce_in_bf16") or r.text("main_grads_dtype") == "bf16" else None


class _Dtype:
    @staticmethod
    def read(r: Reading) -> None:
        named = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(r.text("params_dtype") or "")
        dtype = "bf16" if r.flag("bf16") else "fp16" if r.flag("fp16") else named or "fp32"
        if dtype == "fp32" and r.has("fp8_format", "fp8", "fp8_hybrid", "fp8_e4m3"):
            dtype = "bf16"
        r.say("dtype", dtype, "bf16", "fp16", "fp32", "params_dtype")

    @staticmethod
    def write(w: Writing) -> None:
        if w.subject.dtype in ("bf16", "fp16"):
            w.say(f"--{w.subject.dtype}")
        w.lose(f"dtype {w.subject.dtype}", w.subject.dtype not in ("bf16", "fp16", "fp32"))


def _read_precision(r: Reading) -> None:
    fmt = r.text("fp8_format", "fp8") or ("hybrid" if r.flag("fp8_hybrid") or r.flag("fp8_e4m3") else None)
    if fmt and fmt.lower() not in ("none", "null", "false"):
        recipe = r.text("fp8_recipe") or "delayed"
        word = next((ours for ours, theirs in _FP8.items() if theirs == recipe), None)
        names = ("fp8_format", "fp8", "fp8_hybrid", "fp8_e4m3")
        r.say("precision", word, *names, *(("fp8_recipe",) if word else ()))
    elif r.has("fp4_format", "fp4"):
        is_mx = "mx" in f"{r.text('fp4_format', 'fp4')} {r.text('fp4_recipe')}"
        r.say("precision", "mxfp4" if is_mx else "nvfp4", "fp4_format", "fp4", "fp4_recipe")


def _write_precision(w: Writing) -> None:
    recipe = w.family.precision
    if recipe in _FP8:
        # Scales of blocks leave gradients room enough in e4m3: TransformerEngine's default of both recipes.
        w.say("--fp8-format", "e4m3" if recipe in ("fp8-block", "mxfp8") else "hybrid")
        w.say("--fp8-recipe", _FP8[recipe])
    elif recipe == "nvfp4":
        w.say("--fp4-format", "e2m1")
        w.say("--fp4-recipe", "nvfp4")
    elif recipe != NONE:
        w.lose(f"precision {recipe}: recipes are {', '.join((*_FP8, 'nvfp4'))}")


class _Gathers:
    @staticmethod
    def read(r: Reading) -> None:
        gathers = ("fp8_param_gather", "fp8_param", "fp4_param_gather", "fp4_param")
        r.say("fp8_param_gather", (any(map(r.flag, gathers)) and is_on(r.words, "precision")) or None, *gathers)

    @staticmethod
    def write(w: Writing) -> None:
        if w.family.fp8_param_gather:
            w.say(f"--{'fp4' if w.family.precision == 'nvfp4' else 'fp8'}-param-gather")
            if w.family.precision == "mxfp8" and w.family.zero < 3:
                w.say("--reuse-grad-buf-for-mxfp8-param-ag")


class _Edge:
    @staticmethod
    def write(value: Word, words: Words) -> tuple[Text, ...]:
        return (value,) if isinstance(value, int) and (words["bf16_first"] or words["bf16_last"]) else ()


def _edge() -> Codec:
    """Return the codec of layers at an end that keep their type: one where a launch says no number."""

    def read(r: Reading, names: Sequence[str]) -> int | None:
        number = r.count(*names, least=0)
        edges = r.flag("first_last_layers_bf16") and is_on(r.words, "precision")
        return (1 if number is None else number) if edges else None

    return Codec(read, _Edge.write)


_OVERLAPS = (
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_moe_expert_parallel_comm",
    "no_overlap_p2p_communication",
    "overlap_p2p_communication",
)


def _read_overlap(r: Reading) -> None:
    """Messages that the launch leaves in the open: Megatron-LM hides none of its gradients unless it is told to."""
    replicas = int(str(r.words["gpus"])) // (int(str(r.words["tp"])) * int(str(r.words["pp"])))
    changed: list[str] = []
    if replicas > 1 and not r.flag("overlap_grad_reduce") and r.words["zero"] in (0, 1):
        changed.append("stack.overlap.dp=0")
        r.assume("sums of gradients are not hidden: the launch has no --overlap-grad-reduce")
    elif replicas > 1 and r.words["zero"] == 1 and not r.flag("overlap_param_gather"):
        r.assume("gathers of parameters are hidden as sums of gradients are: the launch has no --overlap-param-gather")
    if is_on(r.words, "vpp") and r.flag("no_overlap_p2p_communication"):
        changed.append("stack.overlap.pp=0")
    if r.flag("overlap_moe_expert_parallel_comm") and "ep" in r.words:
        changed.append("stack.overlap.batches=0.9")
        r.assume("0.9 of experts' messages hide behind another micro-batch, as fitted to stack megatron-bridge-batches")
    if changed:
        r.words["set"] = changed
    r.understand(f"overlap of the stack, {', '.join(changed) or 'as it was measured'}", *_OVERLAPS)
    in_tiles = r.flag("tp_comm_overlap") and is_on(r.words, "tp") and bool(r.words["sp"])
    r.say("async_tp", in_tiles or None, "tp_comm_overlap")


def _write_overlap(w: Writing) -> None:
    """What the stack hides is asked for; what it does not is off by default."""
    plan, family, hides = w.plan, w.family, w.subject.hides
    if plan.dp * plan.cp > 1 and hides("dp"):
        w.say("--overlap-grad-reduce")
        if family.zero:
            w.say("--overlap-param-gather")
    if plan.pp > 1 and plan.vpp > 1 and w.subject.stack is not None and not hides("pp"):
        w.say("--no-overlap-p2p-communication")
    if plan.tp > 1 and family.sp and (family.async_tp or hides("tp")):
        w.say("--tp-comm-overlap")
    if plan.ep > 1 and hides("batches"):
        w.say("--overlap-moe-expert-parallel-comm")
    elif plan.ep > 1 and hides("ep") and w.subject.number("n_shared_experts"):
        w.say("--moe-shared-expert-overlap")


class _Graphs:
    @staticmethod
    def read(r: Reading, names: Sequence[str]) -> bool | None:
        return r.text(names[0]) not in (None, "none") or any(map(r.flag, names[1:])) or None


def _read_model(r: Reading) -> None:
    r.config = read_shape(r)
    if r.config is None and (spelled := r.text("model")) is not None:
        r.say("model", catalogue_name(spelled) or spelled.removesuffix(".yaml"), "model", "vocab_size")
    r.understand("name of the model", "model")


def _write_policy(w: Writing) -> None:
    family, groups = w.family, "of the router: --moe-router-num-groups, --moe-router-group-topk"
    for line in lost_schedule(w.subject, "megatron", TITLE):
        w.lose(line)
    unsaid = bool(family.routing_nodes) and w.subject.number("n_group") is None
    w.lose(f"routing_nodes {family.routing_nodes}: {groups}", unsaid)


def _left(subject: ExportSubject) -> Iterator[str]:
    yield from shape_left(subject)
    yield "data, tokenizer and its vocabulary, learning rate, checkpoints"
    if subject.stack is None:
        yield "what is hidden (--overlap-grad-reduce, ...): no system was named"
    elif subject.stack.cuda_graph:
        yield "CUDA graphs, which the plan was priced with: --cuda-graph-impl"


# fmt: off
MEGATRON = Framework(
    name="megatron",
    title=TITLE,
    version="NVIDIA/Megatron-LM d98e8a64ddf3",
    trains=True,
    base={"phase": "train", "stack": "megatron-core"},
    left=_left,
    render=lambda subject, flags: command(torchrun(subject, "pretrain_gpt.py"), flags),
    rows=(
        Group("", _check_trains),
        SettingRow("tp", "--tensor-model-parallel-size model_parallel_size", DEGREE),
        SettingRow("sp", "--sequence-parallel no_sequence_parallel",
            Codec(_Sp.read, lambda value, words: (None,) if value and is_on(words, "tp") else ())),
        SettingRow("pp", "--pipeline-model-parallel-size transformer_pipeline_model_parallel_size",
            count(usual=1, most=MOST_STAGES)),
        Group("vpp pp_layout", read_stages, write_stages),
        SettingRow("cp", "--context-parallel-size", ABOVE_ONE),
        SettingRow("cp_method", "--cp-comm-type", Codec(choice(_CP, usual="p2p", strict=True).read, _CpMethod.write),
            needs="cp"),
        Group("cp_ulysses", _read_ulysses, _write_ulysses),
        SettingRow("order", "--use-tp-pp-dp-mapping", switch(_TP_INSIDE_PP, ORDER)),
        SettingRow("mtp_num_layers", "--mtp-num-layers", POSITIVE),
        SettingRow("scatter_p2p", "--no-scatter-gather-tensors-in-pipeline", Codec(_Scatter.read, _Scatter.write)),
        SettingRow("ep", "--expert-model-parallel-size", ABOVE_ONE),
        Group("", _read_dispatch),
        Beside("--moe-token-dispatcher-type", "ep", "alltoall", "all-to-all of rows"),
        SettingRow("etp", "--expert-tensor-parallel-size", Codec(_Etp.read, _Etp.write)),
        SettingRow("capacity_factor", "--moe-expert-capacity-factor",
            Codec(lambda r, names: r.real(*names) if _has_experts(r) else None, REAL.write)),
        Beside("--moe-pad-expert-input-to-capacity", "capacity_factor"),
        SettingRow("mbs", "--micro-batch-size batch_size", DEGREE),
        SettingRow("gbs", "--global-batch-size", COUNT),
        SettingRow("seq", "--seq-length encoder_seq_length decoder_seq_length", COUNT),
        Group("gpus", _read_devices),
        *MEMORY,
        Group("dtype", _Dtype.read, _Dtype.write),
        SettingRow("grad_dtype", "--grad-reduce-in-bf16 main_grads_dtype",
            Codec(_GradDtype.read, switch("bf16", FP32).write)),
        Group("precision", _read_precision, _write_precision),
        Group("fp8_param_gather", _Gathers.read, _Gathers.write),
        SettingRow("fp8_attention", "--fp8-dot-product-attention", SWITCH, needs="precision", idle=""),
        SettingRow("fp8_output_proj", "--fp8-output-proj", SWITCH, needs="precision", idle=""),
        Beside("--first-last-layers-bf16", "bf16_first bf16_last"),
        SettingRow("bf16_first", "--num-layers-at-start-in-bf16", _edge()),
        SettingRow("bf16_last", "--num-layers-at-end-in-bf16", _edge()),
        Group("async_tp", _read_overlap, _write_overlap),
        SettingRow("attention", "--attention-backend", choice({"unfused": "unfused"}, idle="flash")),
        SettingRow("cuda_graph", "--cuda-graph-impl enable_cuda_graph external_cuda_graph",
            Codec(_Graphs.read, lambda _, __: ())),
        Group("model", _read_model, write_shape),
        Group("schedule routing_nodes", write=_write_policy),
        FixedWord("tp_plan", ("megatron",), "layers are split in its own way"),
        FixedWord("kernels", ("fused",), "its own are hand-fused (TransformerEngine)"),
        FixedWord("reshard", ("layer",), "Megatron-FSDP frees gathered parameters behind each layer"),
        FixedWord("early_stop", (False,), "layers and modules are run again to their end", needs="recompute"),
    ),
)
# fmt: on
