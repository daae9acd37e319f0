"""What plans leave open is decided by their degrees and the software; what contradicts them is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Workload
from slipstick.ir.placement import DP, TP
from slipstick.ir.plan import Defaults, Family, PlanNumbers, PlanWords, make_plan, plan_of, structure_of
from slipstick.ir.plan.structure import check_axes, check_structure
from slipstick.ir.plan.training.decisions import Decisions
from slipstick.ir.plan.word import changed
from slipstick.ir.types import DType


@dataclass(frozen=True)
class Stack:
    decides: Decisions = field(default_factory=lambda: Decisions(kernels="merged", scatter_p2p=True))


def test_sequence_parallelism_is_on_in_training_where_tp_divides_the_sequence() -> None:
    found = {
        (tp, seq): Defaults().family(PlanNumbers(seq_len=seq, tp=tp)).sp for tp in (1, 2) for seq in (64, 65)
    }  # fmt: skip
    assert found == {(1, 64): False, (1, 65): False, (2, 64): True, (2, 65): False}
    assert not Defaults(policy=Family(workload=Workload.PREFILL)).family(PlanNumbers(seq_len=64, tp=2)).sp
    assert not Defaults(sp=False).family(PlanNumbers(seq_len=64, tp=2)).sp


def test_kernels_and_sends_are_those_of_the_stack() -> None:
    plain, staged = (Defaults(Stack()).family(PlanNumbers(seq_len=64, pp=pp)) for pp in (1, 2))
    assert (plain.kernels, plain.scatter_p2p) == ("merged", False)
    assert (staged.kernels, staged.scatter_p2p) == ("merged", True)
    served = Defaults(Stack(), Family(workload=Workload.DECODE)).family(PlanNumbers(seq_len=64, pp=2))
    assert (served.kernels, served.scatter_p2p) == ("eager", False)
    assert (
        Defaults(Stack(Decisions("fused")), Family(workload=Workload.DECODE)).family(PlanNumbers(seq_len=64)).kernels
        == "fused"
    )
    assert Defaults(Stack(), kernels="torch", scatter_p2p=False).family(PlanNumbers(seq_len=64, pp=2)) == Family(
        kernels="torch", pp=True, tp=False
    )


STRICT = Stack(Decisions(early_stop=False, reduce_dtype="fp32", reshard="step", pp_layout="filled"))


def test_a_stack_decides_what_training_leaves_open_and_where_it_matters() -> None:
    plain = structure_of(PlanWords(num_gpus=8), STRICT)
    assert (plain.early_stop, plain.reduce_dtype, plain.reshard, plain.pp_layout) == (True, None, "layer", "auto")
    again = structure_of(PlanWords(num_gpus=8, zero=3, pp=2, recompute="full"), STRICT)
    assert (again.early_stop, again.reduce_dtype, again.reshard, again.pp_layout) == (
        False,
        DType.FP32,
        "step",
        "filled",
    )
    assert structure_of(PlanWords(num_gpus=8, zero=3), STRICT).reshard == "layer"
    assert structure_of(PlanWords(num_gpus=8, phase="prefill", pp=2), STRICT) == structure_of(
        PlanWords(num_gpus=8, phase="prefill", pp=2), Stack(Decisions())
    )


@pytest.mark.parametrize(
    ("word", "value"),
    [("early_stop", True), ("reduce_dtype", DType.BF16), ("reshard", "layer"), ("pp_layout", "even")],
)
def test_a_word_goes_before_what_the_stack_decides(word: str, value: object) -> None:
    words = PlanWords(num_gpus=8, zero=3, pp=2, recompute="full")
    assert getattr(structure_of(changed(words, {word: value}), STRICT), word) == value
    policy = Family(zero=3, recompute="full")
    open_again = Defaults(STRICT, policy).family(PlanNumbers(num_gpus=8, seq_len=64, pp=2))
    assert open_again.early_stop is False
    assert open_again.reshard == "step"
    said = Defaults(Stack(), replace(policy, early_stop=False, reshard="step"))
    assert said.family(PlanNumbers(num_gpus=8, seq_len=64)).reshard == "step"
    assert said.family(PlanNumbers(num_gpus=8, seq_len=64)).early_stop is False


def test_structure_follows_the_degrees_and_a_policy_keeps_the_rest() -> None:
    policy = Family(zero=3, tp_plan="auto", cp="ring", pp=True, usp=True)
    assert Defaults(policy=policy).family(PlanNumbers(seq_len=64)) == Family(zero=3, tp_plan="auto:1", tp=False)
    numbers = PlanNumbers(
        seq_len=64, tp=2, pp=2, cp=4, ep=2, etp=1, cp_ulysses=2, dp_shard=1, capacity_factor=1.5, expert_imbalance=1.2
    )
    found = Defaults(policy=policy, cp_method="ring").family(numbers)
    assert found == Family(
        zero=3, tp_plan="auto:2", sp=True, cp="ring", usp=True, ep=True, pp=True, etp=False, hsdp=True, capacity=True,
        imbalance=True,
    )  # fmt: skip
    spread = Defaults(policy=Family(workload=Workload.DECODE)).family(PlanNumbers(seq_len=64, tp=2, etp=8))
    assert spread.etp_dp
    assert spread.etp


def test_interleaved_stages_are_1f1b_with_chunks() -> None:
    left_open = Defaults(policy=Family(schedule="interleaved"))
    assert left_open.family(PlanNumbers(seq_len=64, pp=2, vpp=2)).schedule == "1f1b"
    with pytest.raises(PlanError, match=r"interleaved needs several chunks a stage, not vpp=1; legal vpp: 2, 3"):
        left_open.family(PlanNumbers(seq_len=64, pp=2))


def test_without_software_a_plan_says_what_to_give() -> None:
    for nothing in (None, Defaults(sp=True)):
        with pytest.raises(PlanError, match=r"kernels follow from the software.*Defaults\(stack=system\.stack\)"):
            make_plan(num_gpus=8, seq_len=64, family=nothing)


@pytest.mark.parametrize(
    ("degrees", "told"),
    [
        ({"cp": 4}, r"cp=4 with a family of cp=none: .* use Family\(cp='allgather'\), or Defaults"),
        ({"ep": 8}, r"ep=8 with a family of ep=False: .* use Family\(ep=True\), or Defaults"),
        ({"pp": 4}, r"pp=4 with a family of pp=False: .* use Family\(pp=True\), or Defaults"),
        ({"pp": 2, "ep": 2}, r"ep=2, pp=2 with a family of ep=False, pp=False: .* use Family\(ep=True, pp=True\)"),
    ],
)
def test_a_degree_that_the_graph_is_not_cut_over_is_refused(degrees: dict[str, int], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        make_plan(num_gpus=64, seq_len=64, family=Family(), **degrees)
    with pytest.raises(PlanError, match=told):
        check_structure(Family(), degrees)


def test_axes_of_a_graph_are_compared_with_those_of_plans() -> None:
    check_axes((DP, TP), {"tp": 8, "dp": 4, "pp": 1})
    with pytest.raises(
        PlanError, match=r"lowered over dp, tp, and plans have ep=2, pp=4: .*lower\(graph, plan\.family"
    ):
        check_axes((DP, TP), {"pp": 4, "ep": 2, "tp": 8})


def test_words_make_the_axes_of_degrees_above_one_and_no_other() -> None:
    family = structure_of(PlanWords(cp=2, cp_method="ring", ep=4))
    assert (family.cp, family.ep, family.pp, family.usp) == ("ring", True, False, False)


def test_a_plan_says_the_words_that_make_it() -> None:
    words = PlanWords(num_gpus=64, tp=4, cp=2, seq_len=8192, global_batch=64, zero=1, cp_method="ring")
    again = plan_of(words).words
    # Replicas follow from the other degrees; what a rule decides is said.
    assert again == replace(
        words, sp=True, kernels="plain", scatter_p2p=False, early_stop=True, reshard="layer", pp_layout="auto"
    )
    assert plan_of(again) == plan_of(words)
