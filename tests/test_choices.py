"""Choices that the numbers rest on, each shown by what it changes."""

from __future__ import annotations

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate, lower, pipeline_for
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.report.explain.explain import explain_text

GIB = 2**30


def test_megatron_keeps_shards_under_sequence_parallelism() -> None:
    # Korthikanti et al., table of the 22B model: 34 s b h / t a layer without the score terms, here 9.5625 GiB for
    # 48 layers; on top come row statistics and both ends of the model, together less than 5 %.
    plan = make_plan(num_gpus=8, tp=8, micro_batch=4, seq_len=2048, family=Family(sp=True))
    answer = estimate(load("megatron-22b"), load_system("dgx-a100-80gb"), plan)
    assert 9.5625 * GIB <= answer.memory_bytes["activations"] <= 9.5625 * GIB * 1.05


def test_the_pipeline_gathers_again_under_sequence_parallelism_only() -> None:
    assert "regather=true" in str(pipeline_for(Family(sp=True)))
    assert "regather" not in str(pipeline_for(Family()))


def test_fp32_training_keeps_no_second_master_copy() -> None:
    graph = load("gpt2", dtype="fp32")
    answer = estimate(graph, load_system("dgx-h100"), make_plan(num_gpus=1, seq_len=128, family=Family()))
    states = sum(answer.memory_bytes[part] for part in ("weights", "gradients", "optimizer"))
    assert states == 124_439_808 * 16  # weight, gradient and two moments of four bytes


def test_few_tokens_read_few_experts() -> None:
    # One token goes to 2 of 8 experts: in expectation 1 - (7/8)^2 of the bank is read; 64 tokens need all of it.
    graph, system = load("mixtral-8x7b", "decode"), load_system("dgx-h100")
    family = Family(workload=Workload.DECODE)
    lowered = lower(graph, family)
    plans = [make_plan(num_gpus=1, micro_batch=b, seq_len=1, kv_len=128, family=family) for b in (1, 64)]
    one, many = (estimate(graph, system, p, lowered=lowered).breakdown_s["compute.experts"] for p in plans)
    launches = 32 * system.kernels.experts["bf16"].overhead_s
    assert (one - launches) / (many - launches) == pytest.approx(1 - (7 / 8) ** 2, rel=0.02)


def test_experts_are_split_as_everything_else_is() -> None:
    assert make_plan(num_gpus=16, tp=8, ep=2, seq_len=128, family=Family(ep=True)).etp == 8
    assert make_plan(num_gpus=16, tp=8, ep=16, seq_len=128, family=Family(ep=True, sp=True, etp=False)).etp == 1


def test_only_without_sequence_parallelism_do_tp_ranks_exchange_the_same_rows() -> None:
    graph, system = load("mixtral-8x7b"), load_system("dgx-h100")
    for sp in (False, True):
        plan = make_plan(num_gpus=16, tp=2, ep=8, seq_len=128, family=Family(ep=True, sp=sp))
        said = any("exchange all routed rows" in w for w in estimate(graph, system, plan).warnings)
        assert said is not sp


def test_a_model_without_experts_has_none_to_deal_out() -> None:
    plan = make_plan(num_gpus=8, ep=8, seq_len=128, family=Family(ep=True))
    with pytest.raises(PlanError, match="ep=8: gpt2 has no experts"):
        estimate(load("gpt2"), load_system("dgx-h100"), plan)


def test_labels_are_explained_like_names() -> None:
    answer = estimate(load("gpt2"), load_system("dgx-h100"), make_plan(num_gpus=1, seq_len=128, family=Family()))
    assert explain_text(answer, "MFU") == explain_text(answer, "mfu")
