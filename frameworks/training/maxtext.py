"""Settings of MaxText, `name=value` behind its configuration or in a YAML file, into the words of a plan.

Names as in AI-Hypercomputer/maxtext at commit e591f30cbbf2: src/maxtext/configs/base.yml. Each axis of its mesh has a
degree inside of a slice (`ici_`) and one across slices (`dcn_`); -1 takes the devices that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ...ir.errors import ParseError
from ...ir.units import is_digits
from ..launch import Launch, Reading, Value
from ..shapes import catalogue_name
from .maxtext_policy import memory_policy

# Axes of its mesh by the word of a plan that they are of.
_AXES: Mapping[str, tuple[str, ...]] = {
    "tp": ("tensor", "tensor_transpose", "tensor_sequence"),
    "pp": ("pipeline",),
    "cp": ("context", "sequence", "context_autoregressive"),
    "ep": ("expert",),
    "shards": ("fsdp", "fsdp_transpose"),
    "copies": ("data", "diloco"),
}
_RECIPES: Mapping[str, str] = {
    "int8": "int8",
    "fp8": "fp8-delayed",
    "nanoo_fp8": "fp8-delayed",
    "fp8_full": "fp8",
    "te_fp8_delayedscaling": "fp8-delayed",
    "te_fp8_currentscaling": "fp8",
    "te_mxfp8": "mxfp8",
}
_DTYPES: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def maxtext(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return a launch of MaxText; ParseError for values that are none of a setting's."""
    r = Reading("maxtext", given, shown)
    r.words["phase"] = "train"
    spelled = r.text("model_name", "model")
    r.say(
        "model", catalogue_name(spelled or "") or (spelled or "").removesuffix(".yaml") or None, "model_name", "model"
    )
    degrees = _degrees(r, num_gpus)
    _batches(r, degrees)
    memory_policy(r)
    dtype = _DTYPES.get(r.text("dtype") or "bfloat16")
    r.say("dtype", dtype, *(["dtype"] if dtype else []))
    recipe = r.text("quantization") or ""
    shards = r.number("quantization_local_shard_count")
    # AQT quantises gradients of weights shard by shard, and not at all where it has none.
    precision = "int8-dgrad" if recipe == "int8" and shards == 0 else _RECIPES.get(recipe)
    r.say("precision", precision, *(["quantization"] if recipe in _RECIPES or not recipe else []))
    r.understand("of int8 alone", "quantization_local_shard_count")
    held = r.text("grad_dtype")
    r.say("grad_dtype", "bf16" if held == "bfloat16" else None, *(["grad_dtype"] if held in _DTYPES else []))
    moment = r.text("mu_dtype")
    r.say("exp_avg_dtype", "bf16" if moment == "bfloat16" else None, *(["mu_dtype"] if moment in _DTYPES else []))
    r.say("mtp_num_layers", r.count("mtp_num_layers", least=0) or None, "mtp_num_layers")
    factor = r.real("capacity_factor")
    r.say("capacity_factor", factor if factor is not None and factor > 0 else None, "capacity_factor")
    return r.done()


def _degrees(r: Reading, num_gpus: int | None) -> Mapping[str, int]:
    """Return the degree of each axis over all slices, with those that are -1 filled up."""
    found = {word: prod(_degree(r, axis) for axis in axes) for word, axes in _AXES.items()}
    if num_gpus is None and (devices := _devices(r)) is not None:
        num_gpus = devices
    ranks = prod(abs(degree) for degree in found.values())
    left = [word for word, degree in found.items() if degree < 0]
    # What is not said of data parallelism across slices takes all of them.
    if num_gpus is not None and ranks < num_gpus and num_gpus % ranks == 0:
        word = left[0] if left else "copies"
        found[word] = abs(found[word]) * (num_gpus // ranks)
    elif num_gpus is not None and ranks == 2 * num_gpus:
        r.assume(f"gpus {ranks}: devices of its mesh, of which a chip of TPU v7x has two")
    elif num_gpus is not None and num_gpus != ranks:
        raise ParseError(f"the axes of its mesh are {ranks} devices, and the launch has {num_gpus}")
    elif num_gpus is None and left:
        r.assume(f"gpus {ranks}: an axis of -1 takes all devices; say --gpus N for the launch")
    degrees = {word: abs(degree) for word, degree in found.items()}
    r.words["gpus"] = prod(degrees.values())
    for word in ("tp", "pp", "cp", "ep"):
        r.say(word, degrees[word] if degrees[word] > 1 else None, *_names(_AXES[word]))
    if degrees["ep"] > 1 and degrees["tp"] > 1:
        r.words["etp"] = 1
    sharded = degrees["shards"] > 1
    r.say("zero", 3 if sharded else 0, *_names(_AXES["shards"]))
    copies = degrees["copies"]
    r.say("dp_shard", degrees["shards"] if sharded and copies > 1 else None, *_names(_AXES["copies"]))
    r.words["sp"] = degrees["tp"] > 1
    r.say("pp", r.words.get("pp"), "num_layers_per_pipeline_stage")
    return degrees


def _names(axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{place}_{axis}_parallelism" for axis in axes for place in ("ici", "dcn"))


def _degree(r: Reading, axis: str) -> int:
    """Return the degree of an axis; negative where it takes the devices that are left."""
    usual = {"ici_fsdp_parallelism": -1, "dcn_data_parallelism": -1}
    found = [usual.get(name, 1) if (said := r.number(name)) is None else said for name in _names((axis,))]
    if any(degree < -1 or degree == 0 for degree in found):
        raise ParseError(f"{axis}: {found} are no degrees of parallelism: 1 and more, or -1 for what is left")
    return prod(abs(degree) for degree in found) * (-1 if -1 in found else 1)


def _devices(r: Reading) -> int | None:
    """Return the devices that it compiles for: `compile_topology=v5p-256`, in cores of which a chip has two."""
    topology = r.text("compile_topology") or ""
    kind, _, count = topology.partition("-")
    if not is_digits(count):
        return None
    slices = max(r.count("compile_topology_num_slices", least=-1) or 1, 1)
    r.understand(f"{count} of {kind}", "compile_topology", "compile_topology_num_slices")
    return int(count) * slices // (2 if kind in ("v4", "v5p") else 1)


def _batches(r: Reading, degrees: Mapping[str, int]) -> None:
    """A device's batch may be a fraction: sequences are shared by those that split them."""
    each = r.real("per_device_batch_size")
    each = 12.0 if each is None else each
    if each <= 0:
        raise ParseError(f"per_device_batch_size: {each:g} is no batch: more than 0")
    steps = r.count("gradient_accumulation_steps") or 1
    replicas = degrees["shards"] * degrees["copies"] * degrees["ep"]
    of_replica = each * prod(degrees[word] for word in ("tp", "pp", "cp"))
    r.say("seq", r.count("max_target_length") or 2048, "max_target_length")
    micro = r.count("num_pipeline_microbatches", least=-1) or -1
    micro = degrees["pp"] if micro < 0 else micro
    mbs = max(int(of_replica // (micro if degrees["pp"] > 1 else 1)), 1)
    r.say("mbs", mbs, "per_device_batch_size", "num_pipeline_microbatches")
    r.say("gbs", max(int(of_replica * replicas), 1) * steps, "per_device_batch_size", "gradient_accumulation_steps")
