"""A plan that is written for a framework and read back is the same plan, or what it lost is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine import Scheduler
from slipstick.frameworks.export import ExportSubject
from slipstick.frameworks.launch import plain
from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.registry import VOCABULARIES
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.ir.errors import SlipstickError
from slipstick.ir.plan import plan_of
from slipstick.ir.plan.layout.partition import even_parts
from slipstick.ir.plan.plan import differences
from slipstick.ir.plan.word import changed
from slipstick.ir.plan.words import WORDS, words_said

LAYERS = {"llama-3.1-8b": 32, "mixtral-8x7b": 32, "deepseek-v3": 61}
STACKS = {"megatron": "megatron-core", "torchtitan": "torchtitan"}
# The kernels of each framework's stack.
KERNELS = {"torchtitan": "torch", "deepspeed": "plain"}
# What the software of a framework decides where its settings say nothing.
DECIDED = ("kernels", "early_stop", "scatter_p2p", "reduce_dtype", "reshard", "sp", "order", "etp")
# Words of training plans beside the degrees, each with values; the first is drawn more often than all others.
TRAINED: Mapping[str, tuple[object, ...]] = {
    "recompute": ("none", "selective", "full", "ops"), "grad_dtype": ("fp32", "bf16", "fp16"),
    "reduce_dtype": (None, "bf16", "fp32"), "main_params_dtype": ("fp32", "fp16", "none"),
    "exp_avg_dtype": ("fp32", "bf16", "fp8"), "exp_avg_sq_dtype": ("fp32", "bf16", "fp16"),
    "offload": (None, "optimizer", "params", "activations", "optimizer,params"), "mtp_num_layers": (0, 1),
    "precision": ("none", "fp8", "fp8-delayed", "fp8-block", "mxfp8", "nvfp4", "int8"),
    "async_tp": (False, True), "order": (None, "tp-cp-ep-pp-dp"), "attention": ("flash", "unfused"),
    "tp_plan": (None, "auto:2"), "fuse": (True, False),
}  # fmt: skip
SERVED: Mapping[str, tuple[object, ...]] = {
    "precision": ("none", "fp8", "mxfp8", "fp8-block", "nvfp4", "w4a16"), "kv_dtype": ("same", "fp8", "int8", "fp4"),
    "eplb": (False, True), "mla": ("latent", "expanded"), "fuse": (True, False), "dispatch_dtype": ("same", "fp8"),
}  # fmt: skip


@cache
def config(model: str) -> Mapping[str, object]:
    found: Mapping[str, object] = json.loads(read_config(model).text)
    return found


def drawn(rng: Random, framework: str) -> ExportSubject:
    """Draw a plan and a model; SlipstickError for words that do not go together."""
    pick, trains = rng.choice, VOCABULARIES[framework].trains
    model = pick(list(LAYERS))
    tp, dp = pick([1, 2, 4, 8]), pick([1, 2, 4, 8])
    staged = framework in ("megatron", "torchtitan") or (not trains and framework != "lmdeploy")
    pp = pick([1, 1, 2, 4]) if staged else 1
    cp = pick([1, 1, 1, 2]) if framework in ("megatron", "torchtitan") else 1
    said: dict[str, object] = {
        "phase": "train" if trains else "decode", "tp": tp, "pp": pp, "cp": cp, "gpus": tp * dp * pp * cp,
        "seq": pick([2048, 8192]), "kernels": KERNELS.get(framework, "fused"),
    }  # fmt: skip
    said |= {word: pick(values[1:]) for word, values in (TRAINED if trains else SERVED).items() if rng.random() < 0.05}
    if trains:
        mbs = pick([1, 2])
        said |= {"mbs": mbs, "gbs": mbs * dp * pp * pick([1, 2, 4]), "sp": tp > 1 and framework != "deepspeed"}
        said["zero"] = pick({"torchtitan": [0, 3]}.get(framework, [0, 1, 2, 3])) if dp * cp > 1 else 0
        said["recompute"] = pick(("none", "none", "full", "selective" if framework == "megatron" else "none"))
        if said["recompute"] == "selective":
            said["recompute_modules"] = "core_attn"
        # Without sequence parallelism there is nothing to overlap.
        said |= {} if said["sp"] else {"async_tp": False}
        said["early_stop"] = None if framework == "deepspeed" else False
        if pp > 1 and framework == "megatron":
            said |= {"vpp": pick([1, 2]), "scatter_p2p": pick([None, False])}
        if cp > 1:
            said["cp_method"] = pick(["ring", "allgather", "ulysses"] if framework == "megatron" else ["allgather"])
        if framework == "torchtitan":
            said |= {"order": "tp-cp-ep-dp-pp", "scatter_p2p": False, "reduce_dtype": "fp32"}
    if model != "llama-3.1-8b" and rng.random() < 0.5:
        said |= {"ep": tp * dp if not trains else pick([1, dp]), **({} if trains else {"etp": 1})}
    plan = plan_of(words_said({word: value for word, value in said.items() if value is not None}))
    limits = None if trains else Scheduler(max_num_seqs=pick([64, 256]), chunked_prefill=pick([True, False]))
    return ExportSubject(
        plan=plan, model=model, config=config(model), node_size=8, scheduler=limits, is_server=not trains,
        layers=tuple(even_parts(LAYERS[model], pp * plan.vpp)) if pp > 1 else (),
        stack=load_system("dgx-h100", (), STACKS[framework]).stack if framework in STACKS else None,
    )  # fmt: skip


def wrong(framework: str, subject: ExportSubject) -> list[str] | None:
    """Return how a plan differs from the one that its settings are read to; None where something was lost."""
    vocabulary = VOCABULARIES[framework]
    if next(vocabulary.lost(subject), None) is not None:
        return None
    given = {plain(name): value for name, value in vocabulary.flags(subject)}
    if mode := next((name for name in given if name.startswith("activation_checkpoint:")), None):
        given["activation_checkpoint.mode"] = mode.partition(":")[2]
    launch = vocabulary.read(given, {}, subject.plan.num_gpus)
    plan = subject.plan
    read = words_said({name: value for name, value in launch.words.items() if name in WORDS and name != "phase"})
    # A pipeline cuts layers evenly where nothing is said; a server's sizes are of a request.
    same = {"phase": str(plan.family.workload), "seq_len": plan.seq_len, "num_gpus": plan.num_gpus, "pp_layout": None}
    same |= {"micro_batch": plan.micro_batch, "kv_len": plan.kv_len} if not vocabulary.trains else {}
    if not vocabulary.trains and read.precision == "as-published":
        same["precision"] = plan.words.precision
    decided = {name: getattr(plan.words, name) for name in DECIDED if name not in launch.words}
    even = plan_of(changed(plan.words, {"pp_layout": None}))
    return [*differences(plan_of(changed(read, {**same, **decided})), even)]


@pytest.mark.parametrize("framework", VOCABULARIES)
@pytest.mark.parametrize("num", [200, pytest.param(10_000, marks=pytest.mark.deep)])
def test_what_is_written_is_read_back(framework: str, num: int) -> None:
    rng, done, lost = Random(7), 0, 0
    while done < num:
        try:
            subject = drawn(rng, framework)
        except SlipstickError:
            continue
        found = wrong(framework, subject)
        lost += found is None
        assert not found, (subject.plan, VOCABULARIES[framework].flags(subject))
        done += 1
    assert lost < 0.9 * num


def test_a_recipe_is_read_back_as_its_flags() -> None:
    rng, done, bridge = Random(3), 0, VOCABULARIES["megatron-bridge"]
    while done < 40:
        try:
            subject = replace(drawn(rng, "megatron"), model="llama-3.1-8b", config=config("llama-3.1-8b"))
        except SlipstickError:
            continue
        if subject.plan.ep > 1 or next(bridge.lost(subject), None) is not None:
            continue
        launch = read_launch(bridge.write(subject).text, "recipe.py", num_gpus=subject.plan.num_gpus)
        given = {plain(name): value for name, value in bridge.flags(subject)} | {"num_layers": 32}
        plan = bridge.read(given, {}, subject.plan.num_gpus)
        assert {**launch.words, "model": None} == {**plan.words, "model": None}
        done += 1
