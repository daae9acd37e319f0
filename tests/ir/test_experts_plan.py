"""Plans of experts: which degrees and loads are legal, and what is named when one is not."""

import pytest

from slipstick.ir.errors import NotBuiltError, PlanError, UnknownNameError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

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
    assert message.startswith(f"ep={ep}: with etp=1 experts are dealt out over all tp=4 ranks")
    assert message.endswith(f"legal ep: {legal}")


def test_whole_experts_route_the_tokens_of_a_rank() -> None:
    assert "takes --sp; or use --etp 4" in refused(ep=8, family=Family(ep=True, etp=False))
    decode = Family(workload=Workload.DECODE, ep=True, etp=False)
    assert "--etp 1 with --tp 4 in decode" in refused(NotBuiltError, ep=8, family=decode)


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
