"""Plans: what is completed, what is refused and how, and many of them as columns."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import NotBuiltError, PlanError, SlipstickError, UnknownNameError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import LARGEST, Family, PlanTable, divisors, make_plan, rank_order
from slipstick.ir.plan.precision import check_units
from slipstick.ir.types import DType

TRAIN = Family()
DECODE = Family(workload=Workload.DECODE)


def refused(kind: type[Exception] = PlanError, /, **given: object) -> str:
    arguments = {"num_gpus": 8, "seq_len": 128, "family": TRAIN, **given}
    with pytest.raises(kind) as caught:
        make_plan(**arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return str(caught.value)


def test_replicas_and_batch_follow_from_the_rest() -> None:
    plan = make_plan(num_gpus=64, seq_len=8192, family=TRAIN, tp=8, micro_batch=2)
    # 64 GPUs / tp 8 = 8 replicas; one micro-batch of 2 on each.
    assert (plan.dp, plan.global_batch, plan.num_micro_batches, plan.degrees) == (8, 16, 1, "tp8 dp8")


def test_micro_batches_divide_the_global_batch() -> None:
    # 512 sequences / (2 a micro-batch x 8 replicas).
    plan = make_plan(num_gpus=64, seq_len=8192, family=TRAIN, tp=8, micro_batch=2, global_batch=512)
    assert plan.num_micro_batches == 32


def test_degrees_that_do_not_divide_show_every_factor_and_what_is_near() -> None:
    assert refused(tp=3) == "tp=3 x pp=1 x cp=1 = 3 does not divide gpus=8; legal products: 1, 2, 4, 8"


def test_more_ranks_than_gpus_do_not_divide() -> None:
    assert "tp=16 x pp=1 x cp=1 = 16 does not divide gpus=8" in refused(tp=16)


def test_a_wrong_replica_degree_names_the_right_one_and_the_gpus_it_needs() -> None:
    message = refused(tp=2, dp=2)
    assert message.startswith("tp=2 x pp=1 x cp=1 x dp=2 = 4, not gpus=8")
    assert "dp=4" in message
    assert "--gpus 4" in message


@pytest.mark.parametrize(
    ("batch", "nearest"), [(12, "--gbs 8 or --gbs 16"), (5, "--gbs 8"), (17, "--gbs 16 or --gbs 24")]
)
def test_a_batch_that_is_no_multiple_names_both_neighbours(batch: int, nearest: str) -> None:
    message = refused(micro_batch=2, tp=2, global_batch=batch)
    assert message == f"gbs={batch} is not a multiple of mbs=2 x dp=4 = 8; nearest: {nearest}"


def test_expert_parallel_ranks_are_replicas() -> None:
    cut = Family(cp="allgather", ep=True)
    assert (
        refused(tp=2, ep=3, family=cut)
        == "ep=3 lies inside data parallelism and does not divide dp=4; legal ep: 1, 2, 4"
    )
    plan = make_plan(num_gpus=16, seq_len=128, family=cut, tp=2, cp=2, ep=2)
    # 16 GPUs / (tp 2 x cp 2) = 4 replicas, two of them an expert group.
    whole = {"tp": 2, "up": 1, "cp": 2, "ep": 2, "fsdp": 1, "dp": 2, "pp": 1}
    assert (plan.dp, dict(plan.mesh)) == (4, whole)


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (Family(workload=Workload.PREFILL, zero=1), "zero=1: of training only"),
        (Family(workload=Workload.DECODE, recompute="full"), "recompute=full: of training only"),
        (Family(workload=Workload.PREFILL, kernels="merged"), "kernels=merged: of training only"),
        (Family(workload=Workload.PREFILL, grad_dtype=DType.BF16), "grad-dtype=bf16: of training only"),
        # Not "use --zero 3", which would be refused in turn.
        (Family(workload=Workload.PREFILL, reshard="step"), "reshard=step: of training only"),
        (Family(workload=Workload.DECODE, hsdp=True), "dp-shard: of training only"),
        (Family(workload=Workload.DECODE, sp=True), "sp splits the sequence, of which a decode step has one token"),
        (Family(workload=Workload.DECODE, async_tp=True), "async-tp splits the sequence"),
        (Family(early_stop=False), "recompute=none: use --recompute, or leave it out"),
    ],
)
def test_what_a_workload_cannot_use_is_refused(family: Family, said: str) -> None:
    assert said in refused(family=family)


def test_inference_runs_one_batch() -> None:
    message = refused(family=DECODE, micro_batch=2, tp=8, global_batch=4)
    assert message == "decode runs one batch of mbs=2 x dp=1 = 2, not gbs=4"


@pytest.mark.parametrize(
    ("name", "flag"),
    [("num_gpus", "gpus"), ("tp", "tp"), ("pp", "pp"), ("cp", "cp"), ("ep", "ep"), ("etp", "etp"), ("dp", "dp"),
     ("vpp", "vpp"), ("micro_batch", "mbs"), ("global_batch", "gbs"), ("seq_len", "seq")],
)  # fmt: skip
@pytest.mark.parametrize("value", [0, -1])
def test_nothing_may_be_less_than_one(name: str, flag: str, value: int) -> None:
    assert f"{flag}={value}" in refused(**{name: value})


@pytest.mark.parametrize("name", ["num_gpus", "tp", "dp", "micro_batch", "global_batch", "seq_len", "kv_len"])
def test_nothing_may_be_absurd(name: str) -> None:
    assert str(LARGEST) in refused(**{name: 10**30})


def test_a_negative_cache_is_refused() -> None:
    assert "kv=-1" in refused(kv_len=-1)


def test_what_is_not_built_is_refused_with_what_is() -> None:
    message = refused(NotBuiltError, pp=2, family=Family(pp=True, recompute="full", recompute_every=2))
    assert "--recompute-every with --pp 2" in message
    assert "what is: --recompute full of all layers" in message
    assert NotBuiltError.exit_code == 4


def test_interleaving_needs_whole_rounds_of_micro_batches() -> None:
    plan = make_plan(num_gpus=8, seq_len=128, family=Family(pp=True), pp=4, vpp=2, global_batch=16)
    assert (plan.dp, plan.num_micro_batches) == (2, 8)
    message = refused(pp=4, vpp=2, global_batch=22, family=Family(pp=True))
    assert "vpp=2 needs micro-batches in equal rounds of pp=4 or more" in message
    assert "gbs / (mbs x dp) = 11" in message
    assert "nearest: 10 or 12 micro-batches, or vpp=1" in message


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (Family(), "pp=1 has none"),
        (Family(schedule="gpipe"), "interleaves the schedules 1f1b and "),
        (Family(schedule="1f1"), "did you mean '1f1b'?"),
        (Family(pp_layout="evenly"), "did you mean 'even'?"),
        (Family(order="tp-dp"), "must name each of tp, cp, ep, dp, pp once"),
    ],
)
def test_a_pipeline_that_makes_no_sense_is_refused(family: Family, said: str) -> None:
    with pytest.raises(SlipstickError) as caught:
        make_plan(num_gpus=8, seq_len=128, family=family, vpp=2)
    assert said in str(caught.value)


def test_context_parallel_decode_has_no_method() -> None:
    assert "a decode step has one token, whose cache --cp spreads" in refused(cp=2, family=replace(DECODE, cp="ring"))


def test_expert_parallelism_lies_inside_data_parallelism() -> None:
    assert make_plan(num_gpus=16, tp=2, ep=4, seq_len=128, family=Family(ep=True)).mesh["dp"] == 2
    assert "ep=3 lies inside" in refused(ep=3, family=Family(ep=True))


def test_only_what_was_given_is_named() -> None:
    assert refused(tp=0).startswith("tp=0: degrees")


def test_unknown_policies_are_refused() -> None:
    assert "allowed: 0, 1, 2, 3" in refused(family=Family(zero=4))
    assert "did you mean 'full'?" in refused(UnknownNameError, family=Family(recompute="ful"))


HYBRID = Family(zero=3, hsdp=True)


def test_hybrid_sharding_splits_data_parallelism_in_shards_and_replicas() -> None:
    plan = make_plan(num_gpus=32, tp=2, ep=2, dp_shard=4, seq_len=128, family=replace(HYBRID, ep=True))
    assert plan.mesh == {"tp": 2, "up": 1, "cp": 1, "ep": 2, "fsdp": 4, "dp": 2, "pp": 1}
    assert plan.degrees == "tp2 ep2 fsdp4 dp16"
    assert plan.num_micro_batches == 1
    assert list(PlanTable.of([plan]).columns["fsdp"]) == [4]
    assert list(PlanTable.of([plan]).columns["dp"]) == [2]


def test_shards_lie_right_inside_their_replicas_unless_the_order_says_where() -> None:
    assert rank_order("tp-pp-dp-cp-ep") == ("tp", "pp", "fsdp", "dp", "up", "cp", "ep")
    assert rank_order("fsdp-tp-cp-ep-dp-pp") == ("fsdp", "tp", "up", "cp", "ep", "dp", "pp")
    assert "once, innermost first" in refused(family=Family(order="fsdp-fsdp-tp-cp-ep-dp-pp"))


def test_what_data_parallelism_has_no_use_for_is_refused() -> None:
    message = refused(dp_shard=3, family=HYBRID)
    assert "dp-shard=3 lies inside data parallelism" in message
    assert "legal dp-shard: 1, 2, 4, 8" in message
    assert "allowed: --zero 1, 2, 3" in refused(dp_shard=2, family=Family(hsdp=True))
    assert "hsdp=True" in refused(dp_shard=2, family=Family(zero=3))
    assert "dp-shard=0: degrees" in refused(dp_shard=0, family=HYBRID)
    assert "use --zero 3" in refused(family=Family(zero=2, reshard="microbatch"))
    assert "did you mean 'step'?" in refused(UnknownNameError, family=Family(zero=3, reshard="stap"))
    assert "reduce-dtype=fp32: of training only" in refused(family=replace(DECODE, reduce_dtype=DType.FP32))


def test_degrees_name_tp_and_dp_always_and_the_rest_when_used() -> None:
    assert make_plan(num_gpus=16, seq_len=64, tp=2, pp=4, family=Family(pp=True)).degrees == "tp2 pp4 dp2"
    assert make_plan(num_gpus=1, seq_len=64, family=Family()).degrees == "tp1 dp1"


@given(st.integers(1, 5000))
def test_divisors_are_those_that_divide(n: int) -> None:
    assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


def test_a_table_has_a_column_for_every_number() -> None:
    plans = [
        make_plan(num_gpus=8, seq_len=128, family=TRAIN, tp=2, micro_batch=3, global_batch=24, kv_len=7),
        make_plan(num_gpus=16, seq_len=256, family=TRAIN, tp=4, global_batch=32),
    ]
    table = PlanTable.of(plans)
    assert len(table) == 2
    assert {name: list(column) for name, column in table.columns.items()} == {
        "tp": [2, 4], "up": [1, 1], "cp": [1, 1], "ep": [1, 1], "fsdp": [1, 1], "dp": [4, 4], "pp": [1, 1],
        "mbs": [3, 1], "seq": [128, 256], "kv": [7, 0],
    }  # fmt: skip
    assert list(table.num_gpus) == [8, 16]
    assert list(table.num_micro_batches) == [2, 8]
    assert list(table.global_batch) == [24, 32]
    assert all(column.dtype == np.float64 for column in table.columns.values())


def test_a_table_holds_one_family() -> None:
    mixed = [make_plan(num_gpus=1, seq_len=64, family=Family(sp=sp)) for sp in (False, True)]
    with pytest.raises(PlanError, match="of one family, these are of 2"):
        PlanTable.of(mixed)


def test_a_table_of_no_plans_is_refused() -> None:
    with pytest.raises(PlanError, match="these are of 0"):
        PlanTable.of([])


def test_a_cache_in_fp4_needs_units_and_other_types_are_legal() -> None:
    family = replace(DECODE, kv_dtype="fp4")
    check_units(family, "B200", ("bf16", "fp8", "fp4"))
    with pytest.raises(PlanError, match=r"kv-dtype=fp4 runs on fp4 matrix units") as caught:
        check_units(family, "H100", ("bf16", "fp8"))
    legal = str(caught.value).partition("legal: ")[2].split(", ")
    assert "fp8" in legal
    assert "fp4" not in legal


@pytest.mark.parametrize(
    ("family", "cut"),
    [
        (Family(sp=True, zero=1), set()),
        (Family(cp="ring", usp=True, ep=True, pp=True), {"cp", "cp_ulysses", "ep", "pp"}),
        (Family(zero=1, hsdp=True), {"dp_shard"}),
        (Family(sp=True, ep=True, etp=False, imbalance=True), {"ep", "etp", "expert_imbalance"}),
    ],
)
def test_a_plan_keeps_of_a_family_what_its_degrees_do_not_say(family: Family, cut: set[str]) -> None:
    plan = make_plan(num_gpus=4, seq_len=64, family=family)
    assert plan.cut == cut
    # Worked out anew, as a copy does.
    assert replace(plan).family == plan.family == replace(family, tp=False)
    if not cut:
        assert make_plan(num_gpus=4, seq_len=64, pp=2, family=replace(family, pp=True)).cut == set()
