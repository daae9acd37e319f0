"""Plans of experts: which degrees and loads are legal, and what is named when one is not."""

import pytest

from slipstick.ir.errors import NotBuiltError, PlanError, UnknownNameError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, PlanTable, make_plan

SPLIT, WHOLE = Family(ep=True, sp=True), Family(ep=True, sp=True, etp=False)


def refused(kind: type[Exception] = PlanError, /, **given: object) -> str:
    arguments = {"num_gpus": 32, "tp": 4, "seq_len": 128, "family": SPLIT, **given}
    with pytest.raises(kind) as caught:
        make_plan(**arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return str(caught.value)


def test_etp_follows_the_family() -> None:
    assert make_plan(num_gpus=32, tp=4, ep=2, seq_len=128, family=SPLIT).etp == 4
    assert make_plan(num_gpus=32, tp=4, ep=8, seq_len=128, family=WHOLE).etp == 1
    assert make_plan(num_gpus=32, tp=4, ep=8, seq_len=128, family=WHOLE, etp=1).degrees == "tp4 ep8 dp8 etp1"


def test_whole_experts_span_tp_first() -> None:
    # etp x ep x edp = tp x cp x dp: 1 x 8 x 4 = 4 x 1 x 8; of ep two ranks lie inside dp.
    plan = make_plan(num_gpus=32, tp=4, ep=8, seq_len=128, family=WHOLE)
    assert {axis: plan.mesh[axis] for axis in ("tp", "ep", "dp")} == {"tp": 4, "ep": 2, "dp": 4}


@pytest.mark.parametrize("etp", [2, 3, 8])
def test_etp_is_one_or_tp(etp: int) -> None:
    assert refused(ep=2, etp=etp) == (
        f"etp={etp}: experts are split over all tp=4 ranks or not at all; legal etp: 1, 4"
    )
    assert PlanError.exit_code == 2


def test_etp_is_of_the_family() -> None:
    assert "etp=1 with tp=4 needs a family with etp=False" in refused(ep=8, etp=1)
    assert "etp=4 with tp=4 needs a family with etp=True" in refused(ep=8, etp=4, family=WHOLE)


@pytest.mark.parametrize(("ep", "legal"), [(2, "1, 4, 8, 16"), (3, "1, 4, 8, 16"), (20, "4, 8, 16, 32")])
def test_ep_of_whole_experts_is_a_multiple_of_tp(ep: int, legal: str) -> None:
    message = refused(ep=ep, family=WHOLE)
    assert message.startswith(f"ep={ep}: with etp=1 experts are sharded over all tp=4 ranks")
    assert message.endswith(f"legal ep: {legal}")


def test_whole_experts_route_the_tokens_of_a_rank() -> None:
    assert "takes --sp; or use --etp 4" in refused(ep=8, family=Family(ep=True, etp=False))


def test_whole_experts_of_inference_take_the_tokens_that_all_ranks_have() -> None:
    for phase in (Workload.PREFILL, Workload.DECODE):
        family = Family(workload=phase, ep=True, etp=False)
        plan = make_plan(num_gpus=8, tp=4, ep=8, seq_len=128, family=family)
        assert {axis: plan.mesh[axis] for axis in ("tp", "ep", "dp")} == {"tp": 4, "ep": 2, "dp": 1}
        alone = Family(workload=phase, etp=False)
        assert refused(family=alone) == (
            "etp=1 with tp=4 and ep=1: every rank would run all experts on the same tokens; "
            "deal them out with --ep 4, or split them with --etp 4"
        )


def test_experts_may_be_split_over_data_parallel_ranks_in_inference() -> None:
    family = Family(workload=Workload.DECODE, etp_dp=True)
    plan = make_plan(num_gpus=8, tp=2, etp=4, seq_len=128, family=family)
    assert {axis: plan.mesh[axis] for axis in ("tp", "ep", "dp")} == {"tp": 2, "ep": 2, "dp": 2}
    assert plan.degrees == "tp2 dp4 etp4"
    assert PlanTable.of([plan]).columns["ep"] == 2
    message = refused(num_gpus=8, tp=2, etp=6, family=family)
    assert message.endswith("over these times ranks of dp=4, or not at all; legal etp: 1, 2, 4, 8")
    assert "in training: not modelled; legal etp: 1, 4" in refused(NotBuiltError, etp=8, family=Family(etp_dp=True))
    both = Family(workload=Workload.DECODE, etp_dp=True, ep=True)
    assert "--etp 8 above --tp 4 with --ep above 1" in refused(NotBuiltError, etp=8, ep=2, family=both)


def test_gathered_tokens_are_of_inference_and_are_not_sent() -> None:
    assert "in training: not modelled" in refused(NotBuiltError, ep=2, family=Family(ep=True, exchange="allgather"))
    family = Family(workload=Workload.DECODE, ep=True, exchange="allgather", dispatch_dtype="fp8")
    assert refused(ep=2, family=family).startswith("dispatch_dtype=fp8: of rows that are sent")
    idle = Family(workload=Workload.DECODE, exchange="allgather")
    assert "without expert parallelism no rows travel" in refused(family=idle)
    assert "alltoall" in refused(UnknownNameError, family=Family(ep=True, exchange="all2all"))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_capacity_is_a_positive_number(factor: float) -> None:
    assert "above 0 up to 1000" in refused(family=Family(capacity=True), capacity_factor=factor)


def test_a_capacity_is_of_the_family() -> None:
    assert "give both" in refused(family=Family(), capacity_factor=1.0)
    assert "give both" in refused(family=Family(capacity=True))


@pytest.mark.parametrize("imbalance", [0.5, 9.0, float("nan")])
def test_no_rank_gets_more_than_all_rows(imbalance: float) -> None:
    message = refused(ep=8, expert_imbalance=imbalance, family=Family(ep=True, imbalance=True))
    assert message.endswith("the busiest of ep=8 ranks gets 1 to 8 times the mean rows")


def test_an_imbalance_is_of_the_family() -> None:
    assert "needs a family with imbalance=True" in refused(ep=8, expert_imbalance=2.0)


def test_how_rows_travel() -> None:
    assert "did you mean 'fp8'? allowed: fp8, same" in refused(UnknownNameError, family=Family(dispatch_dtype="pf8"))
    assert "routing_nodes=-1" in refused(family=Family(ep=True, routing_nodes=-1))
    idle = Family(dispatch_dtype="fp8", routing_nodes=4, imbalance=True)
    assert refused(family=idle).startswith("expert_imbalance, dispatch_dtype=fp8, routing_nodes=4: without expert")
