"""Files and flags of torchtitan 0.1 to 0.3, toml and dotted flags, into the words of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.errors import ParseError
from ...ir.schedules.registry import SCHEDULES
from ...ir.units import is_digits
from ..launch import MOST_STAGES, OFFLOADED_BY_FSDP, Launch, Reading, Value
from ..shapes import catalogue_name

# Ways in which keys and values cross ranks of context parallelism: torchtitan/config/job_config.py.
_CP = {"allgather": "allgather", "alltoall": "ring"}


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
    for word, degree in (("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep)):
        if degree > 1:
            r.words[word] = degree
    if ep > 1 and tp > 1:
        r.words["etp"] = 1
    if cp > 1:
        names = tuple(f"{section}.context_parallel_rotate_method" for section in ("parallelism", "experimental"))
        kind = r.text(*names) or "allgather"
        if kind not in _CP:
            raise ParseError(f"{names[0]}: '{kind}' is none of {', '.join(_CP)}")
        r.say("cp_method", _CP[kind], *names)
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
    _titan_stages(r, pp)
    r.understand("of one stage", f"{p}pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule")
    _titan_batches(r, shard * copies, pp)
    _titan_policy(r)
    return r.done()


def _titan_stages(r: Reading, pp: int) -> None:
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


_LESS = ("first_stage_less_layers", "last_stage_less_layers")


def _titan_model(r: Reading) -> None:
    """Name the model of a configuration that it ships: `--config llama3_8b`, or name and flavor of a toml file."""
    named = f"{r.text('model.name')}_{r.text('model.flavor')}" if r.has("model.name") else None
    spelled = r.text("config", "model") or named
    if spelled is not None:
        name = catalogue_name(spelled) or spelled.removesuffix(".yaml")
        r.say("model", name, "config", "module", "model", "model.name", "model.flavor")


def _titan(r: Reading, *names: str) -> int:
    return r.count(*names, most=MOST_STAGES) or 1


def _titan_sharding(r: Reading, shard: int, copies: int) -> None:
    """FSDP is ZeRO 3; copies of it are HSDP.

    Where it does not reshard behind the forward phase, parameters stay for the micro-batch, with a pipeline the step.
    """
    name = "parallelism.fsdp_reshard_after_forward"
    policy = r.text(name) or "default"
    staged = int(str(r.words.get("pp", 1))) > 1
    known = {"never": "step" if staged else "microbatch", "always": "layer"}
    r.say("zero", 3 if shard > 1 else 0, name)
    if shard > 1 and policy in known:
        r.say("reshard", known[policy])
    if copies > 1 and shard > 1:
        r.words["dp_shard"] = shard


def _titan_batches(r: Reading, replicas: int, pp: int) -> None:
    local = r.count("training.local_batch_size", "training.batch_size") or 8
    each = r.count("parallelism.pipeline_parallel_microbatch_size") or 1
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
    r.say("seq", r.count("training.seq_len") or 2048, "training.seq_len")


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


def _titan_recipe(r: Reading) -> str | None:
    """Return the recipe of linear layers: float8 by tensor or row, mxfp8; None for none."""
    converters = r.text(*_CONVERTERS) or ""
    if "mx" in converters:
        named = r.text("mx.recipe_name", "quantize.linear.mx.recipe_name") or "mxfp8"
        return "mxfp8" if named.startswith("mxfp8") else None
    if "float8" in converters or r.flag("float8.enable_float8_linear") or r.flag(*_GATHERS):
        named = r.text("float8.recipe_name", "quantize.linear.float8.recipe_name") or "tensorwise"
        return {"tensorwise": "fp8", "rowwise": "fp8-rowwise"}.get(named)
    return None


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
    if policy != "none" and r.has("activation_checkpoint.early_stop"):
        r.words["early_stop"] = r.flag("activation_checkpoint.early_stop")
    if mode == "selective" and kind not in (None, "op") and is_digits(str(kind)):
        r.assume(f"recompute full: every layer, where the launch names every {kind}.")
    recipe = _titan_recipe(r)
    converts = bool(r.text(*_CONVERTERS))
    if recipe is not None or not converts:
        # Without a converter, what a section says of its recipe is not used.
        r.say("precision", recipe, *_CONVERTERS, *_RECIPE_OF)
        r.say("fp8_param_gather", (r.flag(*_GATHERS) and recipe is not None) or None, *_GATHERS)
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
    away = r.flag("training.enable_cpu_offload")
    r.say("offload", OFFLOADED_BY_FSDP if away else None, "training.enable_cpu_offload")
