"""Plans as files: what is written, and what is refused because no flags make it."""

from dataclasses import replace

import pytest
import yaml

from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.files import SCHEMA, plan_words, plan_yaml


def plan(num_gpus: int = 8, seq_len: int = 128, **family: object) -> Plan:
    return make_plan(num_gpus=num_gpus, seq_len=seq_len, family=Family(**family))  # type: ignore[arg-type]


def test_what_a_rule_or_the_stack_would_choose_is_always_said() -> None:
    # sp, kernels and scatter_p2p have no fixed default on the command line.
    assert plan_words(plan()) == {
        "phase": "train", "gpus": 8, "mbs": 1, "gbs": 8, "seq": 128, "sp": False, "kernels": "plain",
        "scatter_p2p": False,
    }  # fmt: skip


def test_a_file_names_model_and_system_first_and_keeps_comments_above() -> None:
    text = plan_yaml(plan(), {"set": ["a=1"], "system": "dgx-h100", "model": "gpt2"}, ["the best of 3"])
    assert text.startswith("# the best of 3\nschema: slipstick/plan/1\nmodel: gpt2\nsystem: dgx-h100\nphase: train\n")
    assert yaml.safe_load(text)["set"] == ["a=1"]
    assert yaml.safe_load(text)["schema"] == SCHEMA


def test_words_that_yaml_would_read_as_numbers_are_quoted() -> None:
    # YAML 1.1 reads 2:6 as a number of base 60.
    text = plan_yaml(plan(workload=Workload.PREFILL), {"model": "gpt2", "disagg": "2:6"})
    assert yaml.safe_load(text)["disagg"] == "2:6"


def test_a_decode_step_has_its_context_as_seq() -> None:
    family = Family(workload=Workload.DECODE)
    words = plan_words(make_plan(num_gpus=1, seq_len=512, kv_len=512, family=family))
    assert (words["seq"], "gbs" in words) == (512, False)


def test_a_server_says_no_batch() -> None:
    family = Family(workload=Workload.DECODE)
    words = plan_words(make_plan(num_gpus=2, tp=2, seq_len=512, kv_len=512, family=family), "serve")
    assert words == {"phase": "serve", "gpus": 2, "tp": 2, "sp": False, "kernels": "plain", "scatter_p2p": False}


def test_a_server_has_the_plan_of_its_decode_steps() -> None:
    with pytest.raises(PlanError, match="decode steps, not of train"):
        plan_words(plan(), "serve")


@pytest.mark.parametrize(
    ("family", "numbers", "otherwise"),
    [
        ({"cp": "ring"}, {}, {}),
        ({"pp": True}, {}, {}),
        ({"ep": True}, {}, {}),
        ({}, {"kv_len": 128}, {}),
        ({"usp": True}, {}, {}),
        ({"etp": False, "sp": True}, {}, {}),
        ({"imbalance": True, "ep": True}, {"ep": 2}, {}),
        ({"tp_plan": "auto:4"}, {}, {}),
        ({"tp_plan": "auto"}, {}, {}),
        ({"schedule": "zb-v", "pp": True}, {"pp": 2, "dp": None}, {"vpp": 1}),
        ({"workload": Workload.DECODE}, {"kv_len": 7}, {}),
    ],
)
def test_a_family_that_flags_do_not_make_of_these_degrees_is_refused(
    family: dict[str, object], numbers: dict[str, float | None], otherwise: dict[str, int]
) -> None:
    made = replace(plan().under(Family(**family), numbers), **otherwise)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="no flags make this plan"):
        plan_words(made)
