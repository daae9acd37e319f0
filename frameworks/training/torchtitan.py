"""torchtitan: dotted flags of its train.py, and the same in TOML, as of 0.1 to 0.3.

Names were read in the wheel torchtitan 0.3.0: torchtitan/config/configs.py, distributed/activation_checkpoint.py,
distributed/pipeline_parallel.py; that context parallelism gathers keys and values,
models/common/decoder_sharding.py. Its main branch counts batches in tokens instead (`num_tokens_per_train_step`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import ParseError
from ...ir.plan.optimizer_states import FP32
from ...ir.plan.precision import NONE
from ...ir.schedules.registry import SCHEDULES
from ...ir.types import DType
from ...ir.units import is_digits
from ..export import ExportSubject, command, lost_schedule, torchrun
from ..launch import MOST_STAGES, OFFLOADED_BY_FSDP, Reading, Word
from ..rows import CannotSay, Codec, FixedWord, Framework, Group, SettingRow, Text, Words, Writing, choice, count, is_on
from ..shapes import catalogue_name

TITLE = "torchtitan"
# Configurations that it ships for models of our catalogue: --module, --config.
_CONFIGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "llama-3.1-8b": ("llama3", "llama3_8b"),
        "llama-3.1-70b": ("llama3", "llama3_70b"),
        "llama-3.1-405b": ("llama3", "llama3_405b"),
        "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
    }
)
_RECOMPUTE: Mapping[str, str] = MappingProxyType({"none": "none", "ops": "selective", "full": "full"})
# Ways in which keys and values crossed ranks of context parallelism: torchtitan/config/job_config.py of 0.1.
_CP: Mapping[str, str] = MappingProxyType({"allgather": "allgather", "ring": "alltoall"})
_P = "parallelism."
_SCHEDULES = (f"{_P}pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
_LESS = ("first_stage_less_layers", "last_stage_less_layers")
_ABOVE_ONE = count(above=1, most=MOST_STAGES)
_DEGREE = Codec(_ABOVE_ONE.read, lambda value, _: (value,) if isinstance(value, int) else ())


def _read_model(r: Reading) -> None:
    """Name the model of a configuration that it ships: `--config llama3_8b`, or name and flavor of a toml file."""
    named = f"{r.text('model.name')}_{r.text('model.flavor')}" if r.has("model.name") else None
    spelled = r.text("config", "model") or named
    if spelled is not None:
        name = catalogue_name(spelled) or spelled.removesuffix(".yaml")
        r.say("model", name, "config", "module", "model", "model.name", "model.flavor")


def _write_model(w: Writing) -> None:
    if w.subject.model in _CONFIGS:
        module, config = _CONFIGS[w.subject.model]
        w.say("--module", module)
        w.say("--config", config)


def _read_sharding(r: Reading) -> None:
    """FSDP is ZeRO 3 over the ranks of a degree, or all that are left; copies of it are HSDP.

    Where it does not reshard behind the forward phase, parameters stay for the micro-batch, with a pipeline the step.
    """
    tp, pp, cp, ep = (int(str(r.words.get(word, 1))) for word in ("tp", "pp", "cp", "ep"))
    names = (f"{_P}data_parallel_replicate_degree", "training.data_parallel_replicate_degree")
    copies, num_gpus = r.count(*names, most=MOST_STAGES) or 1, r.num_gpus
    shard = r.number(f"{_P}data_parallel_shard_degree", "training.data_parallel_shard_degree")
    shard = -1 if shard is None else shard
    if shard < -1 or shard == 0:
        raise ParseError(
            f"data_parallel_shard_degree: {shard} is no degree: 1 and more, or -1 for all ranks that are left"
        )
    if num_gpus is None and shard < 1:
        # All ranks that are left shard, and a launch does not say how many there are.
        num_gpus = tp * pp * cp * copies * max(ep // max(tp * cp * copies, 1), 1)
        r.assume(f"gpus {num_gpus}: data_parallel_shard_degree takes all ranks; say --gpus N for the launch")
    if shard < 1 and num_gpus is not None:
        shard = max(num_gpus // (tp * pp * cp * copies), 1)
    num_ranks = tp * pp * cp * copies * shard
    if num_gpus not in (None, num_ranks):
        # `_validate` of its distributed/parallel_dims.py.
        raise ParseError(f"the degrees of the launch are of {num_ranks} GPUs, and it runs on {num_gpus}")
    r.words["gpus"] = num_ranks
    if ep > 1 and tp > 1:
        r.words["etp"] = 1
    degrees = [name for name in r.given if name.endswith(("parallel_degree", "replicate_degree", "shard_degree"))]
    r.understand("degrees", *degrees)
    name = f"{_P}fsdp_reshard_after_forward"
    known = {"never": "step" if pp > 1 else "microbatch", "always": "layer"}
    policy = r.text(name) or "default"
    # `fsdp_enabled` of its distributed/parallel_dims.py: ranks of context parallelism share weights out too.
    shards = shard * cp > 1
    r.say("zero", 3 if shards else 0, name)
    if shards and policy in known:
        r.say("reshard", known[policy])
    if copies > 1 and shards:
        r.words["dp_shard"] = shard
    _Batches.read(r, shard * copies, pp)


def _write_sharding(w: Writing) -> None:
    plan, family = w.plan, w.family
    shard = (plan.dp_shard if family.hsdp else plan.dp) if family.zero else 1
    w.say("--parallelism.data-parallel-replicate-degree", plan.dp // shard)
    w.say("--parallelism.data-parallel-shard-degree", shard)
    if family.zero:
        keep = family.zero < 3 or family.reshard != "layer"
        w.say("--parallelism.fsdp-reshard-after-forward", "never" if keep else "always")
    w.lose(f"zero 0 with cp {plan.cp}: FSDP shards over ranks of cp", not family.zero and plan.cp > 1)
    line = "FSDP shards parameters too, which are gathered in every micro-batch (ZeRO 3)"
    w.lose(f"zero {family.zero}: {line}", family.zero in (1, 2))
    kept = "step" if plan.pp > 1 else "microbatch"
    line = f"with pp {plan.pp} parameters that are not freed are kept for a {kept}"
    w.lose(f"reshard {family.reshard}: {line}", family.reshard not in ("layer", kept))
    _Batches.write(w)


class _Sp:
    @staticmethod
    def read(r: Reading, _: Sequence[str]) -> bool:
        says_no = r.has(f"{_P}no_enable_sequence_parallel")
        return is_on(r.words, "tp") and r.flag(f"{_P}enable_sequence_parallel", usual=True) and not says_no


class _CpMethod:
    @staticmethod
    def write(value: Word, _: Words) -> tuple[Text, ...]:
        if value != "allgather":
            raise CannotSay("keys and values are gathered")
        return ()


def _write_etp(w: Writing) -> None:
    plan, factor = w.plan, w.plan.capacity_factor
    line = f"etp {plan.tp} with ep {plan.ep}: experts are whole on a rank"
    w.lose(line, plan.ep > 1 and plan.tp > 1 and w.family.etp)
    w.lose(f"cp_ulysses {plan.cp_ulysses}: keys and values are gathered", plan.cp_ulysses > 1)
    line = f"capacity_factor {factor or 0:g}: of HybridEP alone (non_blocking_capacity_factor)"
    w.lose(line, factor is not None)
    unsaid = bool(w.family.routing_nodes) and w.subject.number("n_group") is None
    w.lose(f"routing_nodes {w.family.routing_nodes}: of the router in the model's own config", unsaid)


def _read_pipeline(r: Reading) -> None:
    schedule = r.text(*_SCHEDULES)
    kind = next((kind for kind in SCHEDULES.values() if schedule in kind.names.get("torch", ())), None)
    if is_on(r.words, "pp") and kind is not None and schedule:
        r.say("schedule", kind.name, *_SCHEDULES)
        if kind.name_in("torch", 1) != schedule:
            r.say("vpp", 2)
            r.assume("vpp 2: two chunks a stage, its default of interleaved schedules")
    _read_stages(r, int(str(r.words.get("pp", 1))))
    r.understand("of one stage", *_SCHEDULES)


def _read_stages(r: Reading, pp: int) -> None:
    """Layers of chunks, where the first and the last have fewer for the embedding and the loss."""
    names = tuple(f"parallelism.pipeline_parallel_{name}" for name in ("layers_per_stage", *_LESS))
    each = r.count(names[0])
    if pp == 1 or each is None:
        r.understand("of one stage", *(names if pp == 1 else ()))
        return
    first, last = (1 if (less := r.count(name, least=0)) is None else less for name in names[1:])
    layers = [each] * (pp * int(str(r.words.get("vpp", 1))))
    layers[0] -= first
    layers[-1] -= last
    if min(layers) < 0:
        raise ParseError(
            f"{r.shown(names[0])}: {each} layers a stage, and {max(first, last)} fewer in the first or last"
        )
    r.say("pp_layout", ",".join(map(str, layers)), *names)


def _write_pipeline(w: Writing) -> None:
    plan, layers = w.plan, w.subject.layers
    if plan.pp == 1:
        return
    # Names of torch.distributed.pipelining.
    if name := w.family.pipeline.name_in("torch", plan.vpp):
        w.say("--parallelism.pipeline-parallel-schedule", name)
    for line in lost_schedule(w.subject, "torch", TITLE):
        w.lose(line)
    if layers and _is_said(layers):
        w.say("--parallelism.pipeline-parallel-first-stage-less-layers", max(layers) - layers[0])
        w.say("--parallelism.pipeline-parallel-last-stage-less-layers", max(layers) - layers[-1])
        w.say("--parallelism.pipeline-parallel-layers-per-stage", max(layers))
    elif layers:
        what = f"pp_layout {w.subject.layers_text} with pp {plan.pp} and vpp {plan.vpp}"
        w.lose(f"{what}: --parallelism.module-fqns-per-model-part, module by module")
    w.say("--parallelism.pipeline-parallel-microbatch-size", plan.micro_batch)
    w.lose("scatter_p2p: each rank sends the next stage all that it has", w.family.scatter_p2p)
    micro = f"pp {plan.pp} with mbs {plan.micro_batch}: {plan.num_micro_batches} micro-batches"
    w.lose(f"{micro}, and it asks for one a stage", plan.num_micro_batches < plan.pp)


def _is_said(layers: tuple[int, ...]) -> bool:
    """Whether all chunks have as many layers, but for fewer in the first and the last.

    >>> _is_said((7, 8, 8, 7)), _is_said((8, 8, 7, 8))
    (True, False)
    """
    return all(num == max(layers) for num in layers[1:-1])


class _Batches:
    @staticmethod
    def read(r: Reading, replicas: int, pp: int) -> None:
        local_names = ("training.local_batch_size", "training.batch_size")
        local = r.count(*local_names) or 8
        each = r.count(f"{_P}pipeline_parallel_microbatch_size") or 1
        gbs = r.number("training.global_batch_size")
        parts = (f"{_P}pipeline_parallel_microbatch_size", "experimental.pipeline_parallel_microbatches")
        r.say("mbs", each if pp > 1 else local, *local_names, *parts)
        r.say("gbs", local * replicas if gbs is None or gbs < 1 else gbs, "training.global_batch_size")

    @staticmethod
    def write(w: Writing) -> None:
        """With a pipeline all micro-batches of a replica are one local batch, else each is one and gradients add up."""
        plan = w.plan
        w.say("--training.local-batch-size", plan.global_batch // plan.dp if plan.pp > 1 else plan.micro_batch)
        w.say("--training.global-batch-size", plan.global_batch)


_GATHERS = ("float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather")
_CONVERTERS = ("model.converters", "model_converters.converters")
_RECIPE_OF = (
    "float8.filter_fqns",
    "quantize.linear.float8.filter_fqns",
    "mx.filter_fqns",
    "float8.enable_float8_linear",
    "float8.recipe_name",
    "quantize.linear.float8.recipe_name",
    "quantize.linear.float8.emulate",
    "float8.emulate",
    "mx.recipe_name",
    "quantize.linear.mx.recipe_name",
)


def _recipe(r: Reading) -> str | None:
    """Return the recipe of linear layers: float8 by tensor or row, mxfp8; None for none."""
    converters = r.text(*_CONVERTERS) or ""
    if "mx" in converters:
        named = r.text("mx.recipe_name", "quantize.linear.mx.recipe_name") or "mxfp8"
        return "mxfp8" if named.startswith("mxfp8") else None
    if "float8" in converters or r.flag("float8.enable_float8_linear") or r.flag(*_GATHERS):
        named = r.text("float8.recipe_name", "quantize.linear.float8.recipe_name") or "tensorwise"
        return {"tensorwise": "fp8", "rowwise": "fp8-rowwise"}.get(named)
    return None


def _read_precision(r: Reading) -> None:
    recipe = _recipe(r)
    if recipe is not None or not r.text(*_CONVERTERS):
        # Without a converter, what a section says of its recipe is not used.
        r.say("precision", recipe, *_CONVERTERS, *_RECIPE_OF)
        r.say("fp8_param_gather", (r.flag(*_GATHERS) and recipe is not None) or None, *_GATHERS)


def _write_precision(w: Writing) -> None:
    family, subject = w.family, w.subject
    if family.main_params_dtype == "none" and {family.exp_avg_dtype, family.exp_avg_sq_dtype} == {"bf16"}:
        w.say("--training.dtype", "bfloat16")
    w.say("--training.mixed-precision-param", "float32" if subject.dtype == "fp32" else "bfloat16")
    line = f"precision {family.precision}: a converter (Float8LinearConverter, ...) in a config of its own"
    w.lose(line, family.precision != NONE)
    w.lose("fp8_param_gather: of that converter", family.fp8_param_gather)
    reduced = family.reduce_dtype or (family.grad_dtype if family.zero < 2 else DType.parse(subject.dtype))
    in_fp32 = {family.grad_dtype, reduced} == {DType.FP32}
    w.lose("grad_dtype, reduce_dtype: gradients are reduced in float32", not in_fp32)
    states = set(family.states)
    same = states == {FP32} or (family.main_params_dtype == "none" and states <= {"none", "bf16"})
    names = f"main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype {'/'.join(family.states)}"
    w.lose(f"{names}: all in float32, or all in bfloat16 without master weights", not same)
    w.lose("dtype fp16: bfloat16 or float32", subject.dtype == "fp16")


_ASYNC_TP = tuple(f"{section}.enable_async_tensor_parallel" for section in ("parallelism", "experimental", "compile"))


class _AsyncTp:
    @staticmethod
    def write(w: Writing) -> None:
        if w.family.async_tp:
            w.say("--compile.enable")
            w.say("--compile.enable-async-tensor-parallel")


class _Offload:
    @staticmethod
    def read(r: Reading, names: Sequence[str]) -> str | None:
        return OFFLOADED_BY_FSDP if r.flag(*names) else None

    @staticmethod
    def write(value: Word, _: Words) -> tuple[Text, ...]:
        if "params" not in str(value):
            raise CannotSay("parameters, gradients and optimizer states go together")
        return (None,)


def _read_recompute(r: Reading) -> None:
    mode, kind = r.text("activation_checkpoint.mode"), r.text("activation_checkpoint.selective_ac_option")
    policies = {"selective": "ops" if kind in (None, "op") else "full", "full": "full", "none": "none"}
    policy = policies.get(mode or "selective")
    keys = ("mode", "selective_ac_option", "early_stop", "per_op_sac_force_recompute_mm_shapes_by_fqns")
    r.say("recompute", policy, *(f"activation_checkpoint.{key}" for key in keys))
    if policy != "none" and r.has("activation_checkpoint.early_stop"):
        r.words["early_stop"] = r.flag("activation_checkpoint.early_stop")
    if mode == "selective" and kind not in (None, "op") and is_digits(str(kind)):
        r.assume(f"recompute full: every layer, where the launch names every {kind}.")


def _write_recompute(w: Writing) -> None:
    """A choice among kinds stands behind all other flags."""
    family = w.family
    if family.recompute in _RECOMPUTE and not family.recompute_layers and family.recompute_every == 1:
        w.say(f"activation-checkpoint:{_RECOMPUTE[family.recompute]}")
        stops = family.recompute != "none" and family.early_stop
        w.lose("early_stop: recomputes to the end of a layer", stops)
    else:
        some = " of some layers or groups" if family.recompute == "full" else " of modules"
        kinds = "there are selective (operator by operator), full and none"
        w.lose(f"recompute {family.recompute}{some}: {kinds}")


def _left(subject: ExportSubject) -> Iterator[str]:
    if subject.model not in _CONFIGS:
        yield "--module and --config: a model of its own, with the shape of this one"
    yield "--compile.enable, data, tokenizer, learning rate, checkpoints: as the config of the model has them"


# fmt: off
TORCHTITAN = Framework(
    name="torchtitan",
    title=TITLE,
    version="torchtitan 0.3.0",
    trains=True,
    base={"phase": "train", "stack": "torchtitan", "dtype": "bf16"},
    left=_left,
    render=lambda subject, flags: command(torchrun(subject, "-m torchtitan.train"), flags),
    rows=(
        Group("model", _read_model, _write_model),
        SettingRow("tp", "--parallelism.tensor-parallel-degree training.tensor_parallel_degree", _DEGREE),
        SettingRow("pp", "--parallelism.pipeline-parallel-degree experimental.pipeline_parallel_degree", _DEGREE),
        SettingRow("cp", "--parallelism.context-parallel-degree experimental.context_parallel_degree", _ABOVE_ONE),
        SettingRow("ep", "--parallelism.expert-parallel-degree", _ABOVE_ONE),
        SettingRow("cp_method",
            "parallelism.context_parallel_rotate_method experimental.context_parallel_rotate_method",
            Codec(choice(_CP, usual="allgather", strict=True).read, _CpMethod.write), needs="cp"),
        SettingRow("sp", "--parallelism.no-enable-sequence-parallel parallelism.enable_sequence_parallel",
            Codec(_Sp.read, lambda value, words: () if value or not is_on(words, "tp") else (None,))),
        Group("etp cp_ulysses capacity_factor routing_nodes", write=_write_etp),
        Group("schedule vpp pp_layout scatter_p2p", _read_pipeline, _write_pipeline),
        Group("zero reshard dp_shard mbs gbs", _read_sharding, _write_sharding),
        SettingRow("seq", "--training.seq-len", count(usual=2048)),
        Group("precision grad_dtype reduce_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype fp8_param_gather",
            _read_precision, _write_precision),
        Group("async_tp", lambda r: r.say("async_tp", r.flag(*_ASYNC_TP) or None, *_ASYNC_TP), _AsyncTp.write),
        SettingRow("offload", "--training.enable-cpu-offload", Codec(_Offload.read, _Offload.write)),
        Group("recompute recompute_layers recompute_every early_stop", _read_recompute, _write_recompute),
        # Every word that its own default answers to, in groups from neighbours outwards: pp outermost, then replicas.
        FixedWord("order", ("tp-cp-ep-dp-pp",), "pp is outermost, then copies, shards, cp and tp"),
        FixedWord("tp_plan", ("megatron",), "each model splits its layers in its own way"),
        FixedWord("kernels", ("plain", "eager", "merged", "torch", "compiled"),
            "they are PyTorch's own (kernels torch), or what torch.compile makes"),
        FixedWord("attention", ("flash",), "it runs in one kernel"),
    ),
)
# fmt: on
