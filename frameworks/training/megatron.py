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
from ...ir.plan.training.decisions import MEGATRON_MODULES
from ..export import ExportSubject, command, lost_schedule, torchrun
from ..launch import MOST_STAGES, Reading, Word
from ..rows import (
    ABOVE_ONE,
    COUNT,
    DEGREE,
    POSITIVE,
    SWITCH,
    Codec,
    Fixed,
    Framework,
    Group,
    Row,
    Text,
    Words,
    Writing,
    choice,
    count,
    is_on,
    switch,
)
from ..shapes import catalogue_name
from .megatron_shape import read_shape, shape_left, write_shape
from .megatron_stages import read_stages, write_stages

TITLE = "Megatron-LM"
_CP: Mapping[str, str] = MappingProxyType(
    {"ring": "p2p a2a+p2p", "allgather": "all_gather allgather", "ulysses": "a2a"}
)
_FP8: Mapping[str, str] = MappingProxyType(
    {"fp8": "tensorwise", "fp8-delayed": "delayed", "fp8-block": "blockwise", "mxfp8": "mxfp8"}
)
_SHARDING = ("no_shard", "optim", "optim_grads", "optim_grads_params")
_MOMENTS = ("fp32", "fp16", "bf16", "fp8")
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


def _read_sp(r: Reading, _: Sequence[str]) -> bool:
    return r.flag("sequence_parallel") and is_on(r.words, "tp")


def _read_etp(r: Reading, names: Sequence[str]) -> int | None:
    etp, has = r.count(*names), bool(r.count("num_experts", "num_local_experts", least=0))
    return etp if has and etp != r.words["tp"] else None


def _write_etp(value: Word, words: Words) -> tuple[Text, ...]:
    return (1,) if value == 1 and is_on(words, "tp") else ()


def _read_ulysses(r: Reading) -> None:
    if is_on(r.words, "cp") and r.text("cp_comm_type") == "a2a+p2p":
        sizes = re.findall(r"[0-9]+", r.text("hierarchical_context_parallel_sizes") or "")
        r.say("cp_ulysses", int(sizes[0]) if sizes else None, "hierarchical_context_parallel_sizes")
    elif not is_on(r.words, "cp"):
        r.understand("of one rank", "hierarchical_context_parallel_sizes")


def _write_cp_method(value: Word, words: Words) -> tuple[Text, ...]:
    return ("a2a+p2p",) if is_on(words, "cp_ulysses") else (_CP[str(value)].split()[0],)


def _write_ulysses(w: Writing) -> None:
    plan = w.plan
    if plan.cp > 1 and plan.cp_ulysses > 1:
        w.say("--hierarchical-context-parallel-sizes", f"{plan.cp_ulysses} {plan.cp // plan.cp_ulysses}")
        line = f"cp_ulysses {plan.cp_ulysses} with cp_method {plan.cp_method}: a2a+p2p passes keys and values in a ring"
        w.lose(line, plan.cp_method != "ring")


def _read_scatter(r: Reading) -> None:
    scattered = r.flag("no_scatter_gather_tensors_in_pipeline") and is_on(r.words, "tp") and not r.words["sp"]
    r.say("scatter_p2p", False if scattered else None, "no_scatter_gather_tensors_in_pipeline")


def _write_scatter(w: Writing) -> None:
    spread = w.plan.pp > 1 and w.plan.tp > 1 and not w.family.sp and w.family.scatter_p2p
    w.lose("scatter_p2p: each rank sends the next stage all that it has", spread)


def _read_dispatch(r: Reading) -> None:
    dispatcher = r.text("moe_token_dispatcher_type") or "allgather"
    if dispatcher not in ("allgather", "alltoall", "flex", "alltoall_seq"):
        raise ParseError(f"{r.shown('moe_token_dispatcher_type')}: '{dispatcher}' is none of allgather, alltoall, flex")
    r.understand("all-to-all of rows", "moe_token_dispatcher_type")
    if dispatcher == "allgather" and is_on(r.words, "ep") and r.count("num_experts", "num_local_experts", least=0):
        r.assume("rows of experts go by all-to-all: in training no other exchange is modelled, the launch gathers all")
    if dispatcher == "flex":
        r.assume("kernels of DeepEP or HybridEP take as long as an all-to-all of the same bytes")
        r.understand("all-to-all", "moe_flex_dispatcher_backend", "moe_enable_deepep")


def _write_dispatch(w: Writing) -> None:
    if w.plan.ep > 1:
        w.say("--moe-token-dispatcher-type", "alltoall")


def _read_capacity(r: Reading) -> None:
    names = ("moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity")
    factor = r.real(names[0])
    if r.flag(names[1]) or r.has(names[0]):
        r.say("capacity_factor", factor if r.count("num_experts", "num_local_experts", least=0) else None, *names)


def _write_capacity(w: Writing) -> None:
    if w.plan.capacity_factor is not None:
        w.say("--moe-expert-capacity-factor", w.plan.capacity_factor)
        w.say("--moe-pad-expert-input-to-capacity")


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


def _replicas(r: Reading) -> int:
    tp, pp, cp = (int(str(r.words.get(name, 1))) for name in ("tp", "pp", "cp"))
    return int(str(r.words["gpus"])) // (tp * pp * cp)


def _read_zero(r: Reading) -> None:
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
        r.say("dp_shard", _replicas(r) // copies, "num_distributed_optimizer_instances")
    sent = r.text("megatron_fsdp_grad_comm_dtype")
    r.say("reduce_dtype", sent if zero > 1 and sent != "auto" else None, "megatron_fsdp_grad_comm_dtype")


def _write_zero(w: Writing) -> None:
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


def _read_grad_dtype(r: Reading, _: Sequence[str]) -> str | None:
    return "bf16" if r.flag("grad_reduce_in_bf16") or r.text("main_grads_dtype") == "bf16" else None


def _read_dtype(r: Reading) -> None:
    named = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(r.text("params_dtype") or "")
    dtype = "bf16" if r.flag("bf16") else "fp16" if r.flag("fp16") else named or "fp32"
    if dtype == "fp32" and r.has("fp8_format", "fp8", "fp8_hybrid", "fp8_e4m3"):
        dtype = "bf16"
    r.say("dtype", dtype, "bf16", "fp16", "fp32", "params_dtype")


def _write_dtype(w: Writing) -> None:
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


def _read_gathers(r: Reading) -> None:
    gathers = ("fp8_param_gather", "fp8_param", "fp4_param_gather", "fp4_param")
    r.say("fp8_param_gather", (any(map(r.flag, gathers)) and is_on(r.words, "precision")) or None, *gathers)


def _write_gathers(w: Writing) -> None:
    if w.family.fp8_param_gather:
        w.say(f"--{'fp4' if w.family.precision == 'nvfp4' else 'fp8'}-param-gather")
        if w.family.precision == "mxfp8" and w.family.zero < 3:
            w.say("--reuse-grad-buf-for-mxfp8-param-ag")


def _read_edges(r: Reading) -> None:
    edges = r.flag("first_last_layers_bf16") and is_on(r.words, "precision")
    for word, name in (("bf16_first", "num_layers_at_start_in_bf16"), ("bf16_last", "num_layers_at_end_in_bf16")):
        number = r.count(name, least=0)
        r.say(word, (1 if number is None else number) if edges else None, name, "first_last_layers_bf16")


def _write_edges(w: Writing) -> None:
    if w.family.bf16_first or w.family.bf16_last:
        w.say("--first-last-layers-bf16")
        w.say("--num-layers-at-start-in-bf16", w.family.bf16_first)
        w.say("--num-layers-at-end-in-bf16", w.family.bf16_last)


def _read_offload(r: Reading) -> None:
    names = ("optimizer_cpu_offload", "cpu_offloading_num_layers")
    moved = {"optimizer": r.flag(names[0]), "activations": bool(r.count(names[1], least=0))}
    r.say("offload", ",".join(word for word, is_away in moved.items() if is_away) or None, *names)


def _write_offload(w: Writing) -> None:
    away, layers = w.family.offload, w.subject.number("num_hidden_layers")
    if "activations" in away and layers:
        w.say("--cpu-offloading-num-layers", max(int(layers) - 1, 1))
    if "optimizer" in away:
        w.say("--optimizer-cpu-offload")
    w.lose("offload params: weights stay on the device", "params" in away)
    states = ((w.family.main_params_dtype, ("fp32", "fp16")), (w.family.exp_avg_dtype, _MOMENTS))
    said = any(dtype != FP32 and dtype in known for dtype, known in (*states, (w.family.exp_avg_sq_dtype, _MOMENTS)))
    if said or "optimizer" in away:
        w.say("--use-precision-aware-optimizer")


def _state(known: Sequence[str], why: str = "") -> Codec:
    """Return the codec of the type of an optimizer state: any text is read."""

    def read(r: Reading, names: Sequence[str]) -> str | None:
        return None if (dtype := r.text(*names)) == FP32 else dtype

    return Codec(read, choice({dtype: dtype for dtype in known}, idle=FP32, why=why).write)


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


def _read_graphs(r: Reading) -> None:
    names = ("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")
    on = r.text(names[0]) not in (None, "none") or any(map(r.flag, names[1:]))
    r.say("cuda_graph", on or None, *names)


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
        Row("tp", "--tensor-model-parallel-size model_parallel_size", DEGREE, alias=True),
        Row(
            "sp",
            "--sequence-parallel no_sequence_parallel",
            Codec(_read_sp, lambda value, words: (None,) if value and is_on(words, "tp") else ()),
        ),
        Row(
            "pp",
            "--pipeline-model-parallel-size transformer_pipeline_model_parallel_size",
            count(usual=1, most=MOST_STAGES),
            alias=True,
        ),
        Group("vpp pp_layout", read_stages, write_stages),
        Row("cp", "--context-parallel-size", ABOVE_ONE, alias=True),
        Row(
            "cp_method",
            "--cp-comm-type",
            Codec(choice(_CP, usual="p2p", strict=True).read, _write_cp_method),
            needs="cp",
        ),
        Group("cp_ulysses", _read_ulysses, _write_ulysses),
        Row("order", "--use-tp-pp-dp-mapping", switch(_TP_INSIDE_PP, ORDER)),
        Row("mtp_num_layers", "--mtp-num-layers", POSITIVE),
        Group("scatter_p2p", _read_scatter, _write_scatter),
        Row("ep", "--expert-model-parallel-size", ABOVE_ONE, alias=True),
        Group("", _read_dispatch, _write_dispatch),
        Row("etp", "--expert-tensor-parallel-size", Codec(_read_etp, _write_etp), alias=True),
        Group("capacity_factor", _read_capacity, _write_capacity),
        Row("mbs", "--micro-batch-size batch_size", DEGREE, alias=True),
        Row("gbs", "--global-batch-size", COUNT, alias=True),
        Row("seq", "--seq-length encoder_seq_length decoder_seq_length", COUNT, alias=True),
        Group("gpus", _read_devices),
        Group("zero reduce_dtype dp_shard", _read_zero, _write_zero),
        Group(
            "recompute recompute_modules recompute_layers recompute_every",
            _read_recompute,
            _write_recompute,
        ),
        Group("dtype", _read_dtype, _write_dtype),
        Row(
            "grad_dtype",
            "--grad-reduce-in-bf16 main_grads_dtype",
            Codec(_read_grad_dtype, switch("bf16", FP32).write),
        ),
        Group("precision", _read_precision, _write_precision),
        Group("fp8_param_gather", _read_gathers, _write_gathers),
        Row("fp8_attention", "--fp8-dot-product-attention", SWITCH, needs="precision", idle="", alias=True),
        Row("fp8_output_proj", "--fp8-output-proj", SWITCH, needs="precision", idle=""),
        Group("bf16_first bf16_last", _read_edges, _write_edges),
        Group("offload", _read_offload, _write_offload),
        Row("main_params_dtype", "--main-params-dtype", _state(("fp16",), "there are always master weights")),
        Row("exp_avg_dtype", "--exp-avg-dtype", _state(_MOMENTS)),
        Row("exp_avg_sq_dtype", "--exp-avg-sq-dtype", _state(_MOMENTS)),
        Group("async_tp", _read_overlap, _write_overlap),
        Row("attention", "--attention-backend", choice({"unfused": "unfused"}, idle="flash")),
        Group("cuda_graph", _read_graphs),
        Group("model", _read_model, write_shape),
        Group("schedule routing_nodes", write=_write_policy),
        Fixed("tp_plan", ("megatron",), "layers are split in its own way"),
        Fixed("kernels", ("fused",), "its own are hand-fused (TransformerEngine)"),
        Fixed("reshard", ("layer",), "Megatron-FSDP frees gathered parameters behind each layer"),
        Fixed("early_stop", (False,), "layers and modules are run again to their end", needs="recompute"),
    ),
)
