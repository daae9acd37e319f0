"""--plan FILE: a file says what flags say, flags override it, and a plan survives being written and read."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slipstick.app.plans.schema import plan_schema
from slipstick.app.plans.text import plan_file_text, request_of
from slipstick.app.plans.words import plan_words
from slipstick.app.prepare import plan_of
from slipstick.ir.errors import PlanError, SlipstickError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import KERNELS, OFFLOAD, RECOMPUTE, RESHARD, WORDS, Family, Plan, make_plan
from slipstick.ir.plan.case import PlanCase
from slipstick.ir.plan.files import plan_yaml
from slipstick.ir.plan.optimizer_states import MAIN, MOMENTS
from slipstick.ir.plan.plan import plan_of_case
from slipstick.ir.schedules.registry import SCHEDULES
from slipstick.ir.types import DType

from ..conftest import Cli

GRAPH = str(Path(__file__).parents[2] / "golden" / "tiny-llama.train.graph")
AROUND = {"model": "gpt2", "system": "dgx-h100"}


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(f"schema: slipstick/plan/1\nmodel: {GRAPH}\nsystem: dgx-h100\ngpus: 8\ntp: 2\nseq: 128\ngbs: 16\n")
    return path


def test_a_file_gives_what_its_flags_give_to_the_last_bit(cli: Cli, plan_file: Path) -> None:
    of_file = cli("estimate", "--plan", str(plan_file), "--format", "json")
    flags = ("--system", "dgx-h100", "--gpus", "8", "--tp", "2", "--seq", "128", "--gbs", "16")
    typed = cli("estimate", GRAPH, *flags, "--format", "json")
    assert of_file.returncode == 0, of_file.stderr
    assert json.loads(of_file.stdout) == json.loads(typed.stdout)


def test_what_is_typed_holds_over_the_file_wherever_it_stands(cli: Cli, plan_file: Path) -> None:
    one = cli("estimate", "--tp", "4", "--plan", str(plan_file), "--no-sp", "--format", "json")
    plan = json.loads(one.stdout)["inputs"]["plan"]
    # 8 GPUs / tp 4: the replicas follow.
    assert (plan["tp"], plan["dp"], plan["sp"], plan["gbs"]) == (4, 2, False, 16)


def test_a_typed_assignment_stands_behind_those_of_the_file(cli: Cli, plan_file: Path) -> None:
    plan_file.write_text(plan_file.read_text() + "set: [chip.memory.hbm.bandwidth=2TB/s, chip.clock=1GHz]\n")
    one = cli("estimate", "--plan", str(plan_file), "--set", "chip.clock=2GHz", "--format", "json")
    assert json.loads(one.stdout)["inputs"]["system"]["overrides"] == [
        "chip.memory.hbm.bandwidth=2TB/s", "chip.clock=1GHz", "chip.clock=2GHz",
    ]  # fmt: skip


def test_json_is_read_as_well_and_long_names_of_flags_too(cli: Cli, plan_file: Path) -> None:
    path = plan_file.with_suffix(".json")
    path.write_text(json.dumps({"model": GRAPH, "system": "dgx-h100", "micro-batch-size": 2, "sp": True, "seq": 128}))
    plan = json.loads(cli("estimate", "--plan", str(path), "--format", "json").stdout)["inputs"]["plan"]
    assert (plan["mbs"], plan["sp"]) == (2, True)


def test_a_report_says_every_word(cli: Cli, plan_file: Path) -> None:
    inputs = json.loads(cli("estimate", "--plan", str(plan_file), "--format", "json").stdout)["inputs"]
    # The phase and the number of GPUs stand where they are of more than the plan.
    assert {*WORDS} - {"phase", "gpus"} <= {*inputs["plan"]}
    assert (inputs["phase"], inputs["system"]["num_gpus"]) == ("train", 8)


def test_other_verbs_read_it_too(cli: Cli, plan_file: Path) -> None:
    found = cli("compile", "--plan", str(plan_file), "--emit", "sharded")
    assert (found.returncode, "tp" in found.stdout) == (0, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tpp: 8", ":1: unknown key 'tpp'; did you mean 'tp'?"),
        ("model: gpt2\ntp: eight", ":2: tp: 'eight' is not a valid integer."),
        ("sp: maybe", ":1: sp: 'maybe' is not a valid boolean"),
        ("schedule: f1b1", "did you mean '1f1b'?"),
        ("tp: [8]", ":1: tp: a list, and it takes one value"),
        ("tp: {a: 8}", ":1: tp: a value is a number, a word"),
        ("tp:", ":1: tp: says nothing: leave it out"),
        ("mbs: 8\nmicro-batch-size: 4", "micro-batch-size: said twice"),
        ("schema: slipstick/plan/2\ntp: 8", ":1: schema slipstick/plan/2: this version reads slipstick/plan/1"),
        ("quiet: true", "unknown key 'quiet'"),
        ("- tp", "is no plan: it has no entries"),
        ("", "is no plan"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(cli: Cli, tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    found = cli("estimate", "gpt2", "--plan", str(path))
    assert (found.returncode, told in found.stderr) == (2, True), found.stderr


@pytest.mark.parametrize(
    ("text", "told"), [("tp: 8\ntp: 4", ":2: key given twice: tp"), ("tp: 8: 9", ":1: is not YAML")]
)
def test_a_file_that_is_no_text_of_settings_is_not_understood(cli: Cli, tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    found = cli("estimate", "gpt2", "--plan", str(path))
    assert (found.returncode, told in found.stderr) == (4, True), found.stderr


def test_a_search_takes_a_file_as_what_every_plan_has(cli: Cli, plan_file: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    plan_file.write_text(plan_file.read_text() + "sp: true\npp: 1\ncp: 1\nzero: 1\nrecompute: none\nmbs: 1\n")
    found = cli("search", "--plan", str(plan_file), "--no-ledger", "--best-plan", str(best), "--no-why", "-q")
    assert found.returncode == 0, found.stderr
    told = yaml.safe_load(best.read_text())
    assert (told["tp"], told["gbs"], told["seq"], told["gpus"], told["zero"], told["mbs"]) == (2, 16, 128, 8, 1, 1)


def test_a_file_that_is_not_there_is_refused(cli: Cli, tmp_path: Path) -> None:
    found = cli("estimate", "gpt2", "--plan", str(tmp_path / "none.yaml"))
    assert (found.returncode, "cannot read plan" in found.stderr) == (2, True)


def test_a_key_that_the_verb_has_no_flag_for_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("model: gpt2\nisl: 100\n")
    found = cli("compile", "--plan", str(path))
    assert (found.returncode, "`slipstick compile` takes no such flag" in found.stderr) == (2, True)


def test_flags_of_a_server_in_a_file_are_refused_for_a_step_as_if_typed(cli: Cli, plan_file: Path) -> None:
    plan_file.write_text(plan_file.read_text() + "isl: 100\n")
    found = cli("estimate", "--plan", str(plan_file))
    assert (found.returncode, "--isl: needs --phase serve" in found.stderr) == (2, True)


def test_without_a_model_one_must_be_named(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("tp: 2\n")
    assert "Missing argument 'MODEL'" in cli("estimate", "--plan", str(path)).stderr


def test_the_schema_takes_what_is_written_and_knows_every_word(plan_file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = plan_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(plan_file.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tpp": 8}, schema)
    assert {"tp", "gpus", "set", "model", "isl", "precision_of", "fuse", "tokens", "rent"} <= set(plan_words())
    assert not {"quiet", "passes", "dump_dir", "cache", "plan"} & set(plan_words())


def test_the_schema_is_printed(cli: Cli) -> None:
    assert json.loads(cli("schema", "plan").stdout)["title"] == "plan"


def test_every_part_of_a_family_is_written() -> None:
    """What differs in one part alone has another text: nothing is left out of the file."""
    usual = make_plan(num_gpus=8, tp=8, seq_len=128, family=Family())
    text = plan_yaml(usual, AROUND)
    others: dict[str, object] = {
        "sp": True, "zero": 1, "recompute": "full", "recompute_modules": ("mlp",), "recompute_layers": 2,
        "recompute_every": 2, "early_stop": False, "offload": ("optimizer",), "tp_plan": "auto:8",
        "schedule": "gpipe", "pp_layout": "even", "scatter_p2p": True, "order": "dp-tp-cp-ep-pp",
        "placement": "blocks",
        "exchange": "allgather", "dispatch_dtype": "fp8", "routing_nodes": 4, "grad_dtype": DType.BF16,
        "fused": False, "replicate_unknown": True, "async_tp": True, "reshard": "step", "reduce_dtype": DType.FP32,
        "kernels": "fused", "attention": "unfused", "mla": "expanded", "precision": "fp8", "fp8_param_gather": True,
        "fp8_attention": True, "fp8_output_proj": True,
        "bf16_first": 1, "bf16_last": 1, "kv_dtype": "fp8", "main_params_dtype": "none",
        "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16", "published_of": (("a", "fp8"),),
        "precision_of": (("a", "fp8"),), "etp": False, "recompute_save": ("mlp",),
        "recompute_save_rest": ("mlp",), "recompute_by_chunk": "4,3,1,0",
        "offload_modules": ("mlp",), "lora_rank": 8, "lora_modules": ("q_proj",), "lora_dropout": 0.1,
        "mtp_num_layers": 1,
        "lora_base": "nf4", "expert_popularity": "power:1.2", "eplb": True, "redundant_experts": 8,
    }  # fmt: skip
    beside: dict[str, dict[str, object]] = {
        "recompute_save": {"recompute": "save"}, "recompute_by_chunk": {"recompute": "full"},
        "recompute_save_rest": {"recompute": "save", "recompute_layers": 1},
        "offload_modules": {"offload": ("activations",)},
        **{key: {"lora_rank": 8} for key in ("lora_modules", "lora_dropout", "lora_base")},
    }  # fmt: skip
    # These follow from degrees; a family without them is refused: see tests of `plan_words`.
    derived = {"workload", "tp", "cp", "ep", "pp", "etp_dp", "capacity", "imbalance", "usp", "hsdp"}
    assert set(others) | derived == {f.name for f in fields(Family)}
    for name, value in others.items():
        given = {**beside.get(name, {}), name: value}
        family = Family(**given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        changed = plan_of_case(PlanCase(family=family, num_gpus=8, tp=8, global_batch=1, seq_len=128))
        assert plan_yaml(changed, AROUND) != text, name


TRAINING = {
    "sp": st.booleans(), "zero": st.integers(0, 3), "recompute": st.sampled_from(RECOMPUTE),
    "recompute_layers": st.sampled_from([0, 0, 2]), "early_stop": st.sampled_from([True, True, False]),
    "offload": st.sampled_from([(), (), *((one,) for one in OFFLOAD)]),
    "schedule": st.sampled_from(list(SCHEDULES)), "pp_layout": st.sampled_from(["auto", "even", "balanced", "7,5"]),
    "scatter_p2p": st.booleans(), "order": st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]),
    "placement": st.sampled_from(["auto", "ranks", "blocks", "closed"]),
    "grad_dtype": st.sampled_from([DType.FP32, DType.BF16]), "fused": st.booleans(), "async_tp": st.booleans(),
    "reshard": st.sampled_from(RESHARD), "reduce_dtype": st.sampled_from([None, DType.BF16, DType.FP32]),
    "kernels": st.sampled_from(KERNELS), "attention": st.sampled_from(["flash", "unfused"]),
    "precision": st.sampled_from(["none", "fp8", "fp8-delayed"]), "bf16_first": st.sampled_from([0, 0, 1]),
    "main_params_dtype": st.sampled_from(MAIN), "exp_avg_dtype": st.sampled_from(MOMENTS),
    "tp_plan": st.sampled_from(["megatron", "auto"]), "replicate_unknown": st.booleans(),
}  # fmt: skip
SERVING = {
    "kernels": st.sampled_from(["eager", "fused"]), "kv_dtype": st.sampled_from(["same", "fp8", "int8"]),
    "precision": st.sampled_from(["none", "fp8", "w4a16", "nvfp4"]),
    "precision_of": st.sampled_from([(), (("lm_head", "fp8"), ("re:.*a=b", "none"))]),
    "exchange": st.sampled_from(["alltoall", "allgather"]), "attention": st.sampled_from(["flash", "unfused"]),
    "pp_layout": st.sampled_from(["auto", "balanced"]), "workload": st.sampled_from(["prefill", "decode"]),
}  # fmt: skip
DEGREES = {
    "tp": st.sampled_from([1, 2, 8]), "pp": st.sampled_from([1, 1, 2, 4]), "cp": st.sampled_from([1, 1, 4]),
    "ep": st.sampled_from([1, 1, 2, 8]), "vpp": st.sampled_from([1, 1, 2]), "micro_batch": st.sampled_from([1, 3]),
    "whole": st.booleans(), "hybrid": st.booleans(), "cp_method": st.sampled_from(["ring", "allgather", "ulysses"]),
    "cp_ulysses": st.sampled_from([1, 1, 2]), "imbalance": st.sampled_from([1.0, 1.1]),
    "capacity": st.sampled_from([None, 1.25]), "times": st.sampled_from([1, 8]), "dispatch": st.sampled_from(
        ["same", "same", "fp8"]), "nodes": st.sampled_from([0, 0, 4]),
}  # fmt: skip


def legal_plan(structure: dict[str, object], of: dict[str, object]) -> Plan:
    """A plan of a family as flags would have it for these degrees; PlanError where the combination is not legal."""
    workload = Workload(str(structure.pop("workload", "train")))
    train = workload is Workload.TRAIN
    tp, pp, ep, cp = (int(str(of[n])) for n in ("tp", "pp", "ep", "cp"))
    etp = not of["whole"] or tp == 1
    hybrid = bool(of["hybrid"]) and bool(structure.get("zero"))
    moe = {} if ep == 1 else {"dispatch_dtype": of["dispatch"], "routing_nodes": of["nodes"]}
    inner = int(str(of["cp_ulysses"])) if cp > 1 else 1
    load = float(str(of["imbalance"])) if ep > 1 else 1.0
    if structure.get("tp_plan") == "auto":
        structure["tp_plan"] = f"auto:{tp}"
    family = Family(
        workload=workload, cp=str(of["cp_method"]) if cp > 1 else "none", usp=inner > 1, ep=ep > 1, pp=pp > 1,
        etp=etp, capacity=of["capacity"] is not None, imbalance=load > 1, hsdp=hybrid,
        **structure, **moe,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    replicas = 16 // cp
    dp, micro = replicas, int(str(of["micro_batch"]))
    return make_plan(
        num_gpus=tp * pp * cp * dp, seq_len=1024, family=family, tp=tp, pp=pp, cp=cp, ep=ep, vpp=int(str(of["vpp"])),
        etp=None if etp else 1, micro_batch=micro, global_batch=micro * dp * int(str(of["times"])) if train else None,
        kv_len=1024 if workload is Workload.DECODE else 0, cp_ulysses=inner, dp_shard=2 if hybrid else 1,
        capacity_factor=of["capacity"], expert_imbalance=load,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.one_of(st.fixed_dictionaries({}, optional=TRAINING), st.fixed_dictionaries({}, optional=SERVING)),
       st.fixed_dictionaries(DEGREES))  # fmt: skip
def test_a_plan_survives_being_written_and_read(structure: dict[str, object], of: dict[str, object]) -> None:
    try:
        plan = legal_plan(dict(structure), of)
    except SlipstickError:
        assume(False)
        return
    text = plan_file_text(plan, AROUND)
    assert plan_of(request_of(text)) == plan
    assert set(yaml.safe_load(text)) <= set(plan_words()) | {"schema"}


def test_a_plan_that_comes_back_otherwise_is_refused() -> None:
    # gpt2 was not published quantised: as-published makes no patterns.
    family = Family(workload=Workload.PREFILL, precision="fp8", published_of=(("lm_head", "none"),))
    plan = make_plan(num_gpus=1, seq_len=128, family=family)
    with pytest.raises(PlanError, match="they give precision=none, not fp8; published_of="):
        plan_file_text(plan, AROUND)


def test_precision_as_published_comes_back() -> None:
    model = {"model": "gpt-oss-20b", "system": "dgx-h100"}
    request = request_of("model: gpt-oss-20b\nsystem: dgx-h100\nphase: decode\nprecision: as-published\n")
    plan = plan_of(request)
    assert plan.family.precision != "none"
    assert plan_of(request_of(plan_file_text(plan, model))) == plan
