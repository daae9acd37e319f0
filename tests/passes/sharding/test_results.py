"""Results of a step without a loss leave whole or sharded: a sum over ranks that nobody makes is no answer."""

from __future__ import annotations

from slipstick.driver.estimate import lower
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import PlanWords, plan_of
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.text.parse import parse_graph

# Split by columns, then by rows: what the second product makes are summands.
MLP = """slipstick.graph 1
graph "Mlp" prefill bf16
schedule prologue | epilogue
region prologue
  %0 = input "input_ids" : int64[batch, seq]
  %1 = param "embed_tokens.weight" : bf16[1000, 4096]
  %2 = param "up.weight" : bf16[16384, 4096]
  %3 = param "down.weight" : bf16[4096, 16384]
  %4 = embedding(%0, %1) : bf16[batch, seq, 4096] @embed_tokens
  %5 = matmul(%4, %2) {spec="abc,dc->abd"} : bf16[batch, seq, 16384] @up
  %6 = elementwise(%5) {fns=["relu"]} : bf16[batch, seq, 16384]
  %7 = matmul(%6, %3) {spec="abc,dc->abd"} : bf16[batch, seq, 4096] @down
  out "result0" = %7
end
region epilogue
end
"""


def test_a_result_of_summands_is_summed() -> None:
    plan = plan_of(PlanWords(phase="prefill", num_gpus=8, tp=8, seq_len=2048))
    region = lower(parse_graph(MLP), plan.family).graph.region("prologue")
    sent = [n for n in region.nodes if isinstance(n.attrs, CollectiveAttrs)]
    assert [n.op for n in sent] == ["all_reduce"]
    assert message_bytes(call_of(region, sent[0])) == symbol("mbs") * symbol("seq") * 4096 * 2
    assert [port.value for port in region.outputs] == list(sent[0].outputs)
