"""Types of master weights and moments: bytes kept and moved against counts by hand, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.run.training_run import checkpoint_bytes
from slipstick.driver.estimate import Estimate, estimate, lower, pipeline_for
from slipstick.frontend import load
from slipstick.ir.errors import PlanError, SlipstickError, UnknownNameError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.ops.optimizer import OptimizerAttrs
from slipstick.ir.plan import Family, check_family, make_plan
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.passes.manager import parse_pipeline

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

CONFIG = Path(__file__).parents[1] / "data" / "configs" / "tiny-llama.json"
# Master weight and moments, and the bytes of all three a parameter; int8 has 4 bytes for 256 values.
KEPT = [
    (("fp32", "fp32", "fp32"), 12.0), (("fp32", "bf16", "bf16"), 8.0), (("fp16", "fp8", "bf16"), 5.0),
    (("none", "bf16", "bf16"), 4.0), (("fp32", "int8", "int8"), 4 + 2 * (1 + 4 / 256)),
    (("none", "int8", "int8"), 2 * (1 + 4 / 256)), (("fp32", "fp8", "fp16"), 7.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load(str(CONFIG), "train")


def family_of(states: tuple[str, str, str], zero: int = 0, offload: tuple[str, ...] = ()) -> Family:
    main, first, second = states
    return Family(
        main_params_dtype=main, exp_avg_dtype=first, exp_avg_sq_dtype=second, zero=zero, offload=offload
    )  # fmt: skip


def answer_of(graph: Graph, family: Family, dp: int = 1) -> Estimate:
    plan = make_plan(num_gpus=dp, dp=dp, seq_len=64, family=family)
    return estimate(graph, load_system("dgx-h100"), plan)


@pytest.mark.parametrize(("states", "each"), KEPT)
def test_states_weigh_their_types(llama: Graph, states: tuple[str, str, str], each: float) -> None:
    num = int(str(llama.num_parameters))
    assert answer_of(llama, family_of(states)).memory_bytes["optimizer"] == each * num
    # A checkpoint has the weights, 2 bytes each, beside them.
    assert checkpoint_bytes(llama, OptimizerAttrs(*states)) == (2 + each) * num


@pytest.mark.parametrize(("states", "each"), KEPT[:4])
def test_an_update_reads_and_writes_its_states(llama: Graph, states: tuple[str, str, str], each: float) -> None:
    graph = lower(llama, family_of(states)).graph
    env = {"tp": 1.0, "dp": 1.0}
    for region in graph.regions:
        for node in (n for n in region.nodes if n.op == "optimizer_step"):
            num = sum(float(v.numel.evaluate(env)) for v in region.types(node.inputs[: len(node.inputs) // 2]))
            work = work_of(region, node)
            # A gradient in fp32, the states, and the weight where no master weight stands for it.
            assert float(work.read_bytes.evaluate(env)) == num * (4 + each + 2 * (states[0] == "none"))
            assert float(work.write_bytes.evaluate(env)) == num * (2 + each)


def test_shards_and_host_memory_hold_the_same_states(llama: Graph) -> None:
    states, num = ("fp32", "bf16", "bf16"), int(str(llama.num_parameters))
    assert answer_of(llama, family_of(states, zero=1), dp=2).memory_bytes["optimizer"] == 8 * num / 2
    away = answer_of(llama, family_of(states, offload=("optimizer",)))
    plain = answer_of(llama, family_of(("fp32", "fp32", "fp32"), offload=("optimizer",)))
    assert plain.metrics["host_mem_bytes"] - away.metrics["host_mem_bytes"] == 4 * num
    assert away.metrics["step_time_s"] < plain.metrics["step_time_s"]


def test_pipelines_and_graphs_print_and_parse(llama: Graph) -> None:
    family = family_of(("none", "int8", "int8"))
    pipeline = pipeline_for(family)
    assert 'optimizer{main="none", exp_avg="int8", exp_avg_sq="int8"}' in str(pipeline)
    assert parse_pipeline(str(pipeline)) == pipeline
    graph = lower(llama, family).graph
    assert parse_graph(print_graph(graph)) == graph
    assert "optimizer{" not in str(pipeline_for(Family()))


@pytest.mark.parametrize(
    ("family", "error", "words"),
    [
        (Family(exp_avg_dtype="int8"), PlanError, "legal: int8 for both, or for none"),
        (Family(exp_avg_sq_dtype="fp9"), UnknownNameError, "did you mean 'fp8'"),
        (Family(main_params_dtype="bf16"), UnknownNameError, "allowed: fp16, fp32, none"),
        (Family(workload=Workload.DECODE, exp_avg_dtype="bf16"), PlanError, "of training only"),
        (Family(precision="fp8", fp8_param_gather=True, main_params_dtype="none"), PlanError, "need others"),
    ],
)
def test_what_does_not_go_together(family: Family, error: type[SlipstickError], words: str) -> None:
    with pytest.raises(error, match=words):
        check_family(family)


def test_weights_in_fp32_have_no_others() -> None:
    graph = load(str(CONFIG), "train", "fp32")
    with pytest.raises(PlanError, match="weights are fp32 themselves"):
        lower(graph, family_of(("none", "fp32", "fp32")))
