"""Bytes a GPU holds, against closed forms."""

from collections.abc import Callable

import pytest

from slipstick.backends.machine.system import System
from slipstick.cost.memory.liveness import EXPERT_TOKENS, live_bytes
from slipstick.cost.memory.moments import moments
from slipstick.cost.memory.peak import MemoryProgram
from slipstick.driver.estimate import Lowered, lower
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan
from slipstick.ir.sizes.points import Points
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.types import DType

Traced = Callable[[str], Graph]

# tiny-llama: hidden 64, 2 layers, 4 heads of 16, 2 of them for keys and values, MLP 96, vocabulary 160, head untied.
LAYERS, HIDDEN, KV, MLP, VOCAB = 2, 64, 32, 96, 160
LLAMA_NORMS = (2 * LAYERS + 1) * HIDDEN
LLAMA_MATRICES = 2 * VOCAB * HIDDEN + LAYERS * (2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * MLP * HIDDEN)
# tiny-gpt2: 512 positions, biases everywhere, head tied to the embedding.
GPT2_LAYER = 12 * HIDDEN * HIDDEN + (4 + 4 + 1) * HIDDEN + 4 * HIDDEN
GPT2 = (VOCAB + 512) * HIDDEN + LAYERS * GPT2_LAYER + 2 * HIDDEN


def memory(lowered: Lowered, *plans: Plan) -> dict[str, list[float]]:
    table = PlanTable.of(plans)
    points = Points(table)
    found = MemoryProgram.of(lowered.graph).evaluate(points, 2.0**30, table, lowered.stages.evaluate(table, points))
    return {part: [float(b) for b in column] for part, column in found.items()}


def train(tp: int = 1, dp: int = 1, micro_batch: int = 1, micro_batches: int = 1, **policy: int) -> Plan:
    family = Family(zero=policy.get("zero", 0))
    batch = micro_batch * micro_batches * dp
    return make_plan(num_gpus=tp * dp, tp=tp, seq_len=64, family=family, micro_batch=micro_batch, global_batch=batch)


@pytest.mark.parametrize("tp", [1, 2])
def test_states_are_eighteen_bytes_a_parameter_of_which_norms_are_on_every_rank(traced: Traced, tp: int) -> None:
    found = memory(lower(traced("tiny-llama.train"), Family()), train(tp))
    held = LLAMA_MATRICES / tp + LLAMA_NORMS
    # bf16 weights, fp32 gradients, fp32 master weights and two moments.
    assert [found[part][0] for part in ("weights", "gradients", "optimizer")] == [2 * held, 4 * held, 12 * held]


def test_a_tied_matrix_has_one_weight_one_gradient_and_one_state(traced: Traced) -> None:
    graph = traced("tiny-gpt2.train")
    assert graph.num_parameters == GPT2
    found = memory(lower(graph, Family()), train())
    assert found["weights"] == [2 * GPT2]
    assert found["gradients"] == [4 * GPT2]
    assert found["optimizer"] == [12 * GPT2]


@pytest.mark.parametrize(("zero", "shares"), [(1, (1, 1, 4)), (2, (1, 4, 4)), (3, (4, 4, 4))])
def test_zero_divides_states_by_the_replicas(traced: Traced, zero: int, shares: tuple[int, int, int]) -> None:
    found = memory(lower(traced("tiny-llama.train"), Family(zero=zero)), train(dp=4, zero=zero))
    num = LLAMA_MATRICES + LLAMA_NORMS
    wanted = [size * num / share for size, share in zip((2, 4, 12), shares, strict=True)]
    assert [found[part][0] for part in ("weights", "gradients", "optimizer")] == wanted


@pytest.mark.parametrize(("reduced", "gradients"), [(None, 1), (DType.FP32, 2)])
def test_two_units_of_weights_and_two_of_gradients_are_whole_at_once(
    traced: Traced, reduced: DType | None, gradients: int
) -> None:
    # Without activations: the weights of a layer and of the one that comes next, its gradients, and those of the layer
    # before on their way, in the type in which they are reduced. Layers are larger than the table and the head.
    graph = lower(traced("tiny-llama.train"), Family(zero=3, reduce_dtype=reduced)).graph
    layer = 2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * MLP * HIDDEN + 2 * HIDDEN
    for dp in (2, 8):
        found = max(float(e.evaluate({"mbs": 0, "seq": 0, "tp": 1, "dp": dp})) for _, _, e in moments(graph))
        assert found == (2 + 1 + gradients) * 2 * layer


def test_reduced_every_micro_batch_two_units_of_gradients_are_whole_at_once(traced: Traced) -> None:
    graph = lower(traced("tiny-llama.train"), Family(zero=2)).graph
    layer = 2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * MLP * HIDDEN + 2 * HIDDEN
    found = max(float(e.evaluate({"mbs": 0, "seq": 0, "tp": 1, "dp": 8})) for _, _, e in moments(graph))
    assert found == 2 * 2 * layer


def test_a_stage_keeps_its_gathered_parameters_once_however_many_micro_batches_are_under_way(traced: Traced) -> None:
    # Two stages of one layer each, the table with the first, head and last norm with the second: either is the fullest.
    family = Family(zero=3, reshard="microbatch", pp=True)
    plans = [make_plan(num_gpus=8, pp=2, seq_len=64, family=family, global_batch=4 * m) for m in (1, 8)]
    one, many = memory(lower(traced("tiny-llama.train"), family), *plans)["weights"]
    layer = 2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN + 3 * MLP * HIDDEN + 2 * HIDDEN
    end = VOCAB * HIDDEN
    assert {one, many} <= {(layer + end + norm) * 2 * (1 + 1 / 4) for norm in (0, HIDDEN)}


def test_what_another_stage_sends_is_not_on_this_one(traced: Traced) -> None:
    # A region's temporaries beside those of a neighbour count where a stage has both.
    graph = lower(traced("tiny-llama.train"), Family(zero=3)).graph
    first, layer, last = graph.sequence_once()
    regions = {names for _, names, _ in moments(graph)}
    assert {frozenset({first, layer}), frozenset({layer, last}), frozenset({layer})} <= regions
    assert not any(names >= {first, last} and layer not in names for names in regions)


def test_activations_are_those_of_one_micro_batch(traced: Traced) -> None:
    lowered = lower(traced("tiny-llama.train"), Family())
    found = memory(lowered, train(), train(micro_batches=8), train(micro_batch=3))
    one, many, three = found["activations"]
    assert one == many
    # Positions and rotary tables do not grow with the batch.
    assert 2.9 * one < three <= 3 * one


def test_more_replicas_change_nothing_on_a_gpu(traced: Traced) -> None:
    found = memory(lower(traced("tiny-llama.train"), Family()), train(), train(dp=8))
    assert all(one == many for one, many in found.values())


def test_full_recomputation_keeps_what_enters_a_layer(traced: Traced) -> None:
    none = memory(lower(traced("tiny-llama.train"), Family()), train())["activations"][0]
    full = memory(lower(traced("tiny-llama.train"), Family(recompute="full")), train())["activations"][0]
    entering = LAYERS * 64 * HIDDEN * 2
    assert entering < full < none


@pytest.mark.parametrize(("tp", "batch", "kv"), [(1, 1, 100), (2, 3, 1000)])
def test_the_cache_is_keys_and_values_of_every_layer(traced: Traced, tp: int, batch: int, kv: int) -> None:
    family = Family(workload=Workload.DECODE)
    plan = make_plan(num_gpus=tp, tp=tp, seq_len=1, kv_len=kv, micro_batch=batch, family=family)
    found = memory(lower(traced("tiny-llama.decode"), family), plan)
    # Two tensors, two bytes, and the new token is kept as well.
    assert found["kv_cache"] == [2 * LAYERS * 2 * 16 * 2 * batch * (kv + 1) / tp]
    assert found["gradients"] == found["optimizer"] == found["activations"] == [0.0]


def test_the_reserve_is_the_stack_s(traced: Traced, made_up: System) -> None:
    found = memory(lower(traced("tiny-llama.train"), Family()), train(), train(tp=2))
    assert found["reserved"] == [2.0**30, 2.0**30]
    assert made_up.stack.memory_reserve_bytes == 2.0**30


def test_temporaries_live_from_their_maker_to_their_last_reader() -> None:
    region = parse_graph(CHAIN).region("only")
    # Inputs are not temporary; from then on each node holds its input and its result.
    assert live_bytes(region) == [100, 100 + 200, 200 + 400, 400 + 800]


def test_views_live_as_long_as_any_of_them_is_read() -> None:
    region = parse_graph(VIEW).region("only")
    # The view %3 keeps the 100 bytes of %2 until %4 has read it.
    assert live_bytes(region) == [100, 100, 200]


def test_what_experts_have_inside_is_there_for_a_chunk_of_tokens() -> None:
    tokens, hidden, inner, copies = 2 * EXPERT_TOKENS, 64, 96, 2
    whole = parse_graph(EXPERTS.format(tokens=tokens, rows=copies * tokens)).region("only")
    result = 2 * tokens * hidden
    row = 2 * (hidden + 2 * inner + inner + hidden)
    assert live_bytes(whole) == [result + copies * EXPERT_TOKENS * row]
    few = parse_graph(EXPERTS.format(tokens=100, rows=200)).region("only")
    assert live_bytes(few) == [2 * 100 * hidden + 200 * row]


EXPERTS = """slipstick.graph 1
graph "experts" prefill bf16
schedule only
region only
  %0 = input "x" : bf16[{tokens}, 64]
  %1 = input "places" : int64[{tokens}, 2]
  %2 = input "weights" : bf16[{tokens}, 2]
  %3 = param "up" : bf16[8, 192, 64]
  %4 = param "down" : bf16[8, 64, 96]
  %5, %6, %7, %8, %9 = experts(%0, %1, %2, %3, %4) : bf16[{tokens}, 64] ; bf16[{rows}, 64] ; bf16[{rows}, 192] ; \
bf16[{rows}, 96] ; bf16[{rows}, 64]
  out "z" = %5
end
"""
CHAIN = """slipstick.graph 1
graph "chain" prefill bf16
schedule only
region only
  %0 = input "x" : bf16[400]
  %1 = input "y" : bf16[50]
  %2 = cast(%1) : int8[100]
  %3 = cast(%2) : int8[200]
  %4 = cast(%3) : int8[400]
  %5 = cast(%4) : int8[800]
  out "z" = %5
end
"""
VIEW = """slipstick.graph 1
graph "view" prefill bf16
schedule only
region only
  %0 = input "x" : bf16[100]
  %2 = cast(%0) : int8[100]
  %3 = reshape(%2) : int8[10, 10] ~2
  %4 = cast(%3) : int8[10, 10]
  out "z" = %4
end
"""


def test_a_long_table_has_the_bytes_of_its_plans(traced: Traced) -> None:
    """More plans than are looked at together, over stages and replicas."""
    family = Family(sp=True, pp=True, zero=1)
    lowered = lower(traced("tiny-llama.train"), family)
    plans = [
        make_plan(num_gpus=tp * pp * dp, tp=tp, pp=pp, dp=dp, micro_batch=mbs, global_batch=mbs * dp * num,
                  seq_len=64, family=family)
        for tp in (1, 2) for pp in (1, 2) for dp in (1, 2, 4) for mbs in (1, 2, 3) for num in (1, 2, 8)
    ]  # fmt: skip
    few = memory(lowered, *plans)
    many = memory(lowered, *(plans * 12))
    assert len(plans) * 12 > 1024
    assert many == {part: column * 12 for part, column in few.items()}
    assert all(few[part][k] == memory(lowered, plan)[part][0] for k, plan in enumerate(plans) for part in few)
