"""Ops without a sharding rule: refused, left alone where nothing is sharded, or fed with gathered inputs."""

from __future__ import annotations

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate, lower
from slipstick.ir.errors import UnsupportedOpError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import symbol
from slipstick.passes.manager import parse_pipeline
from slipstick.passes.sharding import rules

MBS, SEQ = symbol("mbs"), symbol("seq")


@pytest.fixture
def no_rule_for_rope(monkeypatch: pytest.MonkeyPatch) -> None:
    rule_of = rules.rule_of
    monkeypatch.setattr(rules, "rule_of", lambda op: None if op.startswith("rope") else rule_of(op))


@pytest.mark.usefixtures("no_rule_for_rope")
def test_without_the_flag_the_op_is_refused(tiny_llama: Graph) -> None:
    with pytest.raises(UnsupportedOpError, match=r"op 'rope' at 'model\.layers.* --replicate-unknown gathers its inpu"):
        parse_pipeline("shard").run(tiny_llama)


@pytest.mark.usefixtures("no_rule_for_rope")
def test_inputs_are_gathered_and_reported(tiny_llama: Graph) -> None:
    lowered = parse_pipeline("shard{replicate_unknown=true}").run(tiny_llama)[0]
    region = lowered.region("block0")
    # Queries of 4 heads and keys of 2, of 16 numbers in bf16, from all ranks of tp; each replica has its own samples.
    wanted = {MBS * SEQ * heads * 16 * 2 for heads in (4, 2)}
    gathered = [
        message_bytes(call_of(region, n))
        for n in region.nodes
        if n.op == "all_gather" and isinstance(n.attrs, CollectiveAttrs) and "for rope at" in n.attrs.why
    ]
    assert wanted <= set(gathered)
    notes = [n for n in lowered.notes if "has no sharding rule" in n]
    assert len(notes) == 4  # queries and keys, forward and backward
    assert notes[0].startswith("op 'rope' at 'model.layers.*.self_attn' (block0, forward) has no sharding rule")
    assert f"{MBS * SEQ * 4 * 16 * 2} bytes" in notes[0]
    crossing = [n for n in region.nodes if isinstance(n.attrs, CollectiveAttrs) and "dp" in n.attrs.axes]
    assert {n.phase for n in crossing} == {Phase.REDUCE}  # gradients alone


@pytest.mark.usefixtures("no_rule_for_rope")
def test_an_estimate_warns(tiny_llama: Graph) -> None:
    family = Family(replicate_unknown=True)
    plan = make_plan(num_gpus=2, seq_len=64, family=family, tp=2)
    answer = estimate(tiny_llama, load_system("dgx-h100"), plan)
    assert sum("has no sharding rule" in w for w in answer.warnings) == 4


@pytest.mark.usefixtures("no_rule_for_rope")
def test_the_flag_changes_nothing_where_every_op_has_a_rule(tiny_gpt2: Graph) -> None:
    without, asked = (lower(tiny_gpt2, Family(replicate_unknown=flag)).graph for flag in (False, True))
    assert without == asked


def test_whole_inputs_need_no_rule(tiny_llama: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of the rotary embedding are whole on every rank, so what computes them is refused nowhere."""
    rule_of = rules.rule_of
    monkeypatch.setattr(rules, "rule_of", lambda op: None if op == "concat" else rule_of(op))
    lowered = parse_pipeline("shard").run(tiny_llama)[0]
    assert any(n.op == "concat" for r in lowered.regions for n in r.nodes)
    assert not [n for n in lowered.notes if "no sharding rule" in n]
