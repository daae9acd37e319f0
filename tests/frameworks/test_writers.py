"""Plans in the words of frameworks: texts as they were read over once, and what is said of what they cannot say."""

import json
import re
import shlex
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine import Scheduler
from slipstick.backends.machine.software.stack import Overlap
from slipstick.backends.machine.system import System
from slipstick.frameworks.export import Export, ExportSubject, command, written
from slipstick.frameworks.registry import VOCABULARIES
from slipstick.frameworks.training.megatron_stages import layout_text
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, LoweringPolicy, Plan, PlanWords, make_plan, plan_of
from slipstick.ir.plan.layout.partition import even_parts
from slipstick.ir.types import DType

GOLDEN = Path(__file__).parent / "golden" / "exports"
WRITERS = {name: vocabulary.write for name, vocabulary in VOCABULARIES.items()}
TRAINERS = {name: WRITERS[name] for name in ("megatron", "torchtitan", "deepspeed")}
megatron, deepspeed, vllm = (WRITERS[name] for name in ("megatron", "deepspeed", "vllm"))


@cache
def machine(stack: str) -> System:
    return load_system("dgx-h100", (), stack)


def subject(model: str, plan: Plan, stack: str = "megatron-core", layers: int = 0, **more: object) -> ExportSubject:
    system = machine(stack)
    parts = even_parts(layers, plan.pp * plan.vpp) if layers else ()
    return ExportSubject(
        plan=plan, model=model, config=json.loads(read_config(model).text), stack=system.stack,
        node_size=system.node_size, layers=parts, **more,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def dense() -> ExportSubject:
    """Llama 3.1 405B as its paper trained it (arXiv 2407.21783, table 4: TP 8, PP 16), with uneven chunks."""
    family = Family(sp=True, zero=1, pp=True, kernels="fused")
    plan = make_plan(num_gpus=16384, tp=8, pp=16, vpp=4, global_batch=2048, seq_len=8192, family=family)
    return subject("llama-3.1-405b", plan, layers=126)


def experts() -> ExportSubject:
    family = Family(
        ep=True, pp=True, zero=1, kernels="fused", precision="fp8-block", recompute="selective",
        recompute_modules=("mla_up_proj", "layernorm", "mlp_act"), exp_avg_dtype="bf16", exp_avg_sq_dtype="bf16",
    )  # fmt: skip
    plan = make_plan(num_gpus=2048, pp=16, vpp=2, ep=64, global_batch=16384, seq_len=4096, family=family)
    return subject("deepseek-v3", plan, "megatron-bridge-batches", 61)


def sharded() -> ExportSubject:
    family = Family(
        zero=3, hsdp=True, recompute="full", kernels="torch", cp="ring", reduce_dtype=DType.BF16,
        offload=("optimizer",), early_stop=False,
    )  # fmt: skip
    plan = make_plan(num_gpus=64, cp=4, dp_shard=8, micro_batch=2, global_batch=64, seq_len=32768, family=family)
    return subject("llama-3.1-8b", plan, "torchtitan")


CASES = {"dense": dense, "experts": experts, "sharded": sharded}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("framework", TRAINERS)
def test_a_training_plan_reads_as_it_was_read_over(framework: str, case: str, request: pytest.FixtureRequest) -> None:
    what = CASES[case]()
    compare(TRAINERS[framework](what), what, f"{framework}.{case}", request)


def compare(export: Export, what: ExportSubject, name: str, request: pytest.FixtureRequest) -> None:
    notes = "" if export.takes_comments else "".join(f"// {note}\n" for note in export.notes)
    text, path = notes + written(export, what.headline), GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def served(**family: object) -> ExportSubject:
    made = Family(workload=Workload.DECODE, kernels="fused", **family)  # type: ignore[arg-type]
    plan = make_plan(num_gpus=16, tp=8, seq_len=4500, kv_len=4500, family=made)
    return subject("llama-3.1-70b", plan, "vllm", scheduler=Scheduler(max_num_seqs=128), longest=4500, is_server=True)


def served_experts() -> ExportSubject:
    family = Family(
        workload=Workload.DECODE, kernels="fused", ep=True, etp=False, exchange="allgather", precision="mxfp4",
        published_of=(("lm_head", "none"),),
    )  # fmt: skip
    plan = make_plan(num_gpus=16, tp=2, etp=1, ep=16, seq_len=1024, kv_len=1024, family=family)
    return subject("gpt-oss-120b", plan, "vllm")


def test_a_server_reads_as_it_was_read_over(request: pytest.FixtureRequest) -> None:
    what = served(precision="fp8", kv_dtype="fp8")
    what = replace(what, weights="meta-llama/Llama-3.1-70B")
    compare(vllm(what), what, "vllm.dense", request)
    what = served_experts()
    compare(vllm(replace(what, drafts={"ngram": 4})), what, "vllm.experts", request)


def unrolled(layout: str) -> list[int]:
    """Layers of each chunk, as the rules of Megatron's layouts have it: (x)*n and x*n repeat, | ends a chunk."""
    layout = re.sub(r"\(([^)]+)\)\*(\d+)", lambda m: m[1] * int(m[2]), layout)
    layout = re.sub(r"(.)\*(\d+)", lambda m: m[1] * int(m[2]), layout)
    assert (layout[0], layout[-1]) == ("E", "L")
    return [chunk.count("t") for chunk in layout.split("|")]


@pytest.mark.parametrize("layers", [(7, 8, 8, 7), (1, 2, 2, 2, 1, 0), (10, 1, 1, 12, 12, 12, 0), (3, 4), (11, 1)])
def test_a_layout_unrolls_to_its_layers(layers: tuple[int, ...]) -> None:
    assert unrolled(layout_text(layers)) == list(layers)


def words(export: Export) -> list[str]:
    """The command as a shell would hand it over."""
    return shlex.split(export.text)


def test_a_shell_gets_whole_values() -> None:
    flags = words(megatron(dense()))
    assert flags[flags.index("--pipeline-model-parallel-layout") + 1] == "Et|(t*2|)*62tL"
    flags = words(megatron(experts()))
    assert flags[flags.index("--moe-layer-freq") + 1] == "([0]*3+[1]*58)"
    at = flags.index("--recompute-modules")
    assert flags[at + 1 : at + 3] == ["mla_up_proj", "layernorm"]
    assert command("run", [("--json", '{"a": "b c"}')]) == 'run \\\n  --json \'{"a": "b c"}\'\n'


def test_batches_of_deepspeed_multiply() -> None:
    for case in CASES.values():
        what = case()
        config = json.loads(deepspeed(what).text)
        micro, steps = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
        assert config["train_batch_size"] == micro * steps * what.plan.dp


def test_what_the_stack_hides_is_asked_for() -> None:
    what = dense()
    assert what.stack is not None
    hides_all = replace(what, stack=replace(what.stack, overlap=Overlap(tp=0.5, ep=0.5, dp=1.0, pp=1.0)))
    hides_nothing = replace(what, stack=replace(what.stack, overlap=Overlap(dp=0.0, pp=0.0)))
    assert {"--overlap-grad-reduce", "--overlap-param-gather", "--tp-comm-overlap"} <= set(words(megatron(hides_all)))
    assert not {"--overlap-grad-reduce", "--tp-comm-overlap"} & set(words(megatron(hides_nothing)))
    assert "--no-overlap-p2p-communication" in words(megatron(hides_nothing))
    assert any("no system was named" in line for line in megatron(replace(what, stack=None)).left)


# Of each word that a graph is trained for, one value, with what it asks for besides.
CHANGES: dict[str, dict[str, object]] = {
    "sp": {"sp": True}, "zero": {"zero": 2}, "recompute": {"recompute": "ops"},
    "recompute_modules": {"recompute": "selective", "recompute_modules": ("mlp",)},
    "recompute_layers": {"recompute": "full", "recompute_layers": 2},
    "recompute_every": {"recompute": "full", "recompute_every": 2},
    "early_stop": {"recompute": "full", "early_stop": False},
    "recompute_save": {"recompute": "save", "recompute_save": ("mlp",)},
    "recompute_save_rest": {"recompute": "save", "recompute_layers": 2, "recompute_save_rest": ("mlp",)},
    "recompute_by_chunk": {"recompute": "full", "pp": True, "recompute_by_chunk": "3,1"},
    "offload_modules": {"recompute": "save", "recompute_save": ("mlp",), "offload": ("activations",),
                        "offload_modules": ("mlp",)},
    "offload": {"offload": ("optimizer",)}, "tp_plan": {"tp_plan": "auto:2"},
    "fused": {"fused": False}, "replicate_unknown": {"replicate_unknown": True}, "order": {"order": "dp-tp-cp-ep-pp"},
    "placement": {"placement": "blocks"},
    "grad_dtype": {"grad_dtype": DType.BF16}, "precision": {"precision": "fp8"},
    "fp8_param_gather": {"precision": "fp8", "zero": 1, "fp8_param_gather": True},
    "fp8_attention": {"precision": "fp8", "fp8_attention": True},
    "fp8_output_proj": {"precision": "mxfp8", "fp8_output_proj": True},
    "bf16_first": {"precision": "fp8", "bf16_first": 1}, "bf16_last": {"precision": "fp8", "bf16_last": 1},
    "main_params_dtype": {"main_params_dtype": "none"},
    "exp_avg_dtype": {"exp_avg_dtype": "bf16"},
    "exp_avg_sq_dtype": {"exp_avg_sq_dtype": "bf16"},
    "reshard": {"zero": 3, "reshard": "step"}, "reduce_dtype": {"reduce_dtype": DType.FP16},
    "capacity": {"capacity": True}, "async_tp": {"sp": True, "async_tp": True}, "attention": {"attention": "unfused"},
    "kernels": {"kernels": "plain"}, "imbalance": {"ep": True, "imbalance": True},
    "dispatch_dtype": {"ep": True, "dispatch_dtype": "fp8"}, "routing_nodes": {"ep": True, "routing_nodes": 2},
    "mtp_num_layers": {"mtp_num_layers": 1},
    "lora_rank": {"lora_rank": 8}, "lora_modules": {"lora_rank": 8, "lora_modules": ("q_proj",)},
    "lora_dropout": {"lora_rank": 8, "lora_dropout": 0.1}, "lora_base": {"lora_rank": 8, "lora_base": "nf4"},
    "schedule": {"pp": True, "schedule": "gpipe"}, "scatter_p2p": {"pp": True, "scatter_p2p": True},
}  # fmt: skip
# What inference says besides.
SERVED: dict[str, dict[str, object]] = {
    "fused": {"fused": False}, "order": {"order": "dp-tp-cp-ep-pp"}, "attention": {"attention": "unfused"},
    "placement": {"placement": "blocks"},
    "kernels": {"kernels": "eager"}, "mla": {"mla": "expanded"}, "precision": {"precision": "fp8"},
    "precision_of": {"precision_of": (("lm_head", "fp8"),)}, "kv_dtype": {"kv_dtype": "int8"},
    "exchange": {"ep": True, "exchange": "allgather"}, "dispatch_dtype": {"ep": True, "dispatch_dtype": "fp8"},
    "routing_nodes": {"ep": True, "routing_nodes": 2}, "imbalance": {"ep": True, "imbalance": True},
    "expert_popularity": {"ep": True, "expert_popularity": "power:1.2"}, "eplb": {"ep": True, "eplb": True},
    "redundant_experts": {"ep": True, "eplb": True, "redundant_experts": 8},
    "capacity": {"capacity": True}, "replicate_unknown": {"replicate_unknown": True}, "tp_plan": {"tp_plan": "auto:2"},
    "pp_layout": {"pp": True, "pp_layout": "8,24"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "name"),
    [*((framework, name) for framework in TRAINERS for name in CHANGES), *(("vllm", name) for name in SERVED)],
)
def test_nothing_of_a_plan_is_dropped_in_silence(framework: str, name: str) -> None:
    def export(**family: object) -> Export:
        given = {"workload": Workload.DECODE, **family} if framework == "vllm" else family
        made = Family(**{"kernels": "fused", **given})  # type: ignore[arg-type]
        plan = make_plan(
            num_gpus=16, tp=2, seq_len=128, family=made, capacity_factor=1.25 if made.capacity else None,
            ep=4 if made.ep else 1, expert_imbalance=1.5 if made.imbalance else 1.0, pp=2 if made.pp else 1,
            global_batch=None if framework == "vllm" else 64,
        )  # fmt: skip
        what = subject("mixtral-8x7b", plan)
        return vllm(what) if framework == "vllm" else TRAINERS[framework](what)

    given = {**CHANGES, **(SERVED if framework == "vllm" else {})}[name]
    usual, changed = export(**{other: value for other, value in given.items() if other != name}), export(**given)
    assert (changed.text, changed.lost) != (usual.text, usual.lost)


def test_all_words_that_a_graph_is_lowered_for_are_tried() -> None:
    asked = {field.name for field in fields(LoweringPolicy)}
    assert {*CHANGES, *SERVED} - {field.name for field in fields(Family)} == set()
    assert asked - {*CHANGES, *SERVED} == {"published_of"}


SPREAD = PlanWords(phase="decode", num_gpus=8, tp=1, cp=8, seq_len=128, kernels="fused")


def test_ranks_that_share_out_a_cache_are_of_tensor_parallelism_in_vllm() -> None:
    def exported(phase: str) -> Export:
        words = PlanWords(phase=phase, num_gpus=8, tp=2, cp=4, seq_len=128, kernels="fused")
        return vllm(subject("llama-3.1-8b", plan_of(words)))

    whole = words(vllm(subject("deepseek-v3", plan_of(replace(SPREAD, etp=1)))))
    assert "--enable-expert-parallel" in whole
    assert "--enable-expert-parallel" not in words(vllm(subject("deepseek-v3", plan_of(SPREAD))))
    # 2 x 4 ranks of tensor parallelism, of which each 4 hold other tokens of the same heads' cache.
    flags = words(exported("decode"))
    assert flags[flags.index("--tensor-parallel-size") + 1] == "8"
    assert flags[flags.index("--decode-context-parallel-size") + 1] == "4"
    assert not any("cp 4" in line for line in exported("decode").lost)
    assert any("cp 4: a prompt is not split" in line for line in exported("prefill").lost)


def test_a_framework_takes_what_it_runs() -> None:
    with pytest.raises(UsageError, match="Megatron-LM trains, and this is the plan of a server: give one of --phase"):
        megatron(served())
    with pytest.raises(UsageError, match="vLLM serves, and this is the plan of a step of train"):
        vllm(dense())


def test_shapes_that_are_not_known_are_left_open() -> None:
    plan = make_plan(num_gpus=1, seq_len=128, family=Family())
    other = megatron(subject("gpt2", plan))
    assert "--num-layers" not in words(other)
    assert any("'gpt2' is none of llama" in line for line in other.left)
    nothing = megatron(ExportSubject(plan=plan, model="net.py:Net"))
    assert "it has no config.json" in nothing.left[0]
    assert nothing.text.startswith("pretrain_gpt.py ")
