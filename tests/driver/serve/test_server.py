"""A server on a small model: what adds up, what grows with what, how forms of load agree."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine import Overheads
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.batching.speculative import Drafter, Speculation
from slipstick.cost.serving.capacity import held_bytes
from slipstick.cost.serving.slo import SLO
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.cost.serving.traffic.traffic_text import parse_sizes, parse_traffic
from slipstick.driver.estimate import lower
from slipstick.driver.serve.answer import ServeEstimate, request_flops
from slipstick.driver.serve.drafts import draft_model, drafting, num_layers, prediction_head
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.money import worth_serving
from slipstick.driver.serve.pools import Pools, link_of
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.serve_pools import serve_pools
from slipstick.driver.serve.server import Server
from slipstick.driver.serve.tables import ServedModel
from slipstick.driver.serve.traffic.simulated import serve_traffic, serve_traffic_apart
from slipstick.explore.goals import Goal
from slipstick.frontend import load
from slipstick.ir.errors import InfeasibleError, UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.report.search.why import why, why_text
from slipstick.report.serving.screen import serving_text

CONFIG = Path(__file__).parents[2] / "data" / "configs" / "tiny-llama.json"
LENGTHS = Lengths(64.0, 32.0)
# What is said of every engine here: see `server`.
UNFITTED = ("host times of vllm are judgement on H100-SXM5-80GB: no measured requests",)


@cache
def served(pp: bool = False) -> ServedModel:
    graphs = [load(str(CONFIG), phase) for phase in (Workload.PREFILL, Workload.DECODE)]
    prefill, decode = (lower(graph, Family(workload=graph.workload, pp=pp)) for graph in graphs)
    return ServedModel(prefill, decode)


@cache
def server(engine: str = "vllm", tp: int = 1, dp: int = 1) -> Server:
    system = load_system("dgx-h100")
    plan = make_plan(num_gpus=tp * dp, tp=tp, seq_len=512, family=Family(workload=Workload.DECODE))
    # As people set it: what is checked here does not move with what is fitted.
    return Server.of(served(), system, plan, load_engine(engine, system.chip.name, fitted=False), 512)


def answer(load: Load, lengths: Lengths = LENGTHS, of: Server | None = None) -> ServeEstimate:
    return serve(of or server(), lengths, load)


@given(
    prompt=st.integers(1, 400), output=st.integers(1, 112), clients=st.integers(1, 2000), static=st.booleans(),
    engine=st.sampled_from(["vllm", "sglang", "tensorrt-llm", "ideal"]),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_parts_add_up_whatever_comes(prompt: int, output: int, clients: int, static: bool, engine: str) -> None:
    given_load = Load(batch=clients) if static else Load(concurrency=clients)
    found = answer(given_load, Lengths(float(prompt), float(output)), server(engine))
    assert sum(found.breakdown_s.values()) == pytest.approx(found.metrics["e2el_s"])
    assert all(seconds > 0 for seconds in found.breakdown_s.values())
    at, capacity = server(engine).engine.scheduler, server().system.chip.hbm_bytes
    taken = sum(found.memory_bytes.values())
    assert taken == pytest.approx(capacity * at.memory_utilization - (1 / at.cache_utilization - 1) *
                                  server(engine).times.free_bytes)  # fmt: skip
    if output > 1:
        assert found.metrics["tokens_per_s"] <= found.metrics["batch"] / found.metrics["tpot_s"] * output / (output - 1)


@pytest.mark.parametrize("chunk", [8, 64, 256])
@pytest.mark.parametrize("clients", [1, 16, 128])
def test_a_step_reads_what_decodes_in_it_and_no_more_than_the_memory_gives(chunk: int, clients: int) -> None:
    base = server().engine
    # A memory with nothing else to do: what a step must read cannot take less than it takes.
    at = replace(base, scheduler=replace(base.scheduler, max_batched_tokens=chunk), overheads=Overheads())
    small = Server.of(served(), server().system, server().plan, at, 512)
    found = answer(Load(concurrency=clients), Lengths(448.0, 16.0), small)
    assert 0.0 < found.metrics["mbu"] <= 1.0
    # Of 448 + 15 tokens of a request 15 are steps of a decode: no more than that share of a full step decodes.
    assert float(found.found.decodes) <= 1.0 + chunk * 15 / 463
    assert found.decode.plan.micro_batch == round(float(found.found.decodes))


@pytest.mark.parametrize("clients", [1, 2, 4])
def test_stages_that_have_no_request_read_nothing(clients: int) -> None:
    plan = make_plan(num_gpus=2, pp=2, seq_len=512, family=Family(workload=Workload.DECODE, pp=True))
    two = Server.of(served(pp=True), server().system, plan, server().engine, 512)
    found = answer(Load(batch=clients), of=two)
    moved = found.decode.table.lowered.must_move
    assert moved is not None
    # Each of two requests is a group of its own; four are two groups of two.
    assert found.decode.plan.micro_batch == max(clients // 2, 1)
    read = float(moved.evaluate(found.decode.table.plans)[0]) * min(clients, 2)
    assert found.metrics["mbu"] == pytest.approx(read / (found.metrics["itl_s"] * two.system.chip.hbm_bytes_per_s))


def test_one_request_alone_is_a_static_batch_of_one() -> None:
    alone, batch = answer(Load(concurrency=1)), answer(Load(batch=1))
    for name in ("ttft_s", "tpot_s", "e2el_s"):
        assert alone.metrics[name] == pytest.approx(batch.metrics[name], rel=1e-6)


def test_an_engine_of_static_batches_runs_what_is_under_way_together() -> None:
    base = server().engine
    static = replace(server(), engine=replace(base, scheduler=replace(base.scheduler, batching="static")))
    asked, usual = answer(Load(concurrency=8), of=static), answer(Load(batch=8))
    assert asked.metrics == pytest.approx(usual.metrics)
    with pytest.raises(UsageError, match="static batches"):
        answer(Load(requests_per_s=1.0), of=static)


@pytest.mark.parametrize("clients", [1, 7, 64, 1000])
def test_the_load_of_static_batches_is_of_the_most_that_static_batches_do(clients: int) -> None:
    base = server("nemo-2023").engine
    host = replace(base, overheads=Overheads(1e-4, 1e-5, 1e-3, 1e-6))
    found = answer(Load(concurrency=clients), of=replace(server("nemo-2023"), engine=host))
    assert 0.0 < found.metrics["serve_utilization"] <= 1.0
    # All of a batch ends at once: each sequence needs room for all its tokens.
    held = found.server.times.free_bytes // found.metrics["kv_bytes_per_request"]
    assert found.metrics["max_batch"] == min(held, host.scheduler.max_num_seqs)
    one = answer(Load(concurrency=clients), of=server("nemo-2023")).metrics["serve_utilization"]
    assert clients == 1 or one > answer(Load(concurrency=1), of=server("nemo-2023")).metrics["serve_utilization"]


def test_a_batch_in_waves_says_how_it_runs() -> None:
    base = server().engine
    at = replace(base, scheduler=replace(base.scheduler, max_num_seqs=8), overheads=Overheads(1e-4, 1e-5))
    few = replace(server(), engine=at)
    found, fits = answer(Load(batch=24), of=few), answer(Load(batch=8), of=few)
    assert fits.warnings == UNFITTED
    # Waves end at 1, 2 and 3 times what one takes: of 24 requests two thirds are in flight on average.
    assert any("in 3 waves of 8" in text and "16 are in flight" in text for text in found.warnings)
    assert found.metrics["batch"] == 8
    shown = serving_text(found, 120)
    assert "At other loads: static batch" in shown
    assert f"{fits.metrics['tokens_per_s_per_gpu']:,.0f}" in shown


def test_growing_sequences_beyond_what_fits_at_full_length_are_told_of() -> None:
    lengths = Lengths(16.0, 400.0)
    whole = 40 * float(held_bytes(server().times, server().engine.scheduler, 416.0))
    tight = replace(server(), times=replace(server().times, free_bytes=whole))
    found, few = answer(Load(), lengths, tight), answer(Load(concurrency=40), lengths, tight)
    assert float(found.found.batch) > 40
    assert any("holds 40 requests at their full length" in text and "--serve" in text for text in found.warnings)
    assert few.warnings == UNFITTED
    set_aside = replace(tight.engine, scheduler=replace(tight.engine.scheduler, reserve_output=True))
    assert answer(Load(), lengths, replace(tight, engine=set_aside)).warnings == UNFITTED


def test_flops_of_a_request_are_those_of_its_prompt_and_of_each_step() -> None:
    # Model FLOPs of a prompt of 64 tokens and of 31 decode steps, added up one by one.
    decode, prefill = served().decode.flops, served().prefill.flops

    def flops(seq: float, context: float) -> float:
        env = {"batch": np.ones(1), "seq": np.array([seq]), "kv": np.array([context])}
        whole = decode if context else prefill
        return float(np.sum(whole.total(env, server().phase(served().decode, 1, 1, 1).table.convention)))

    steps = sum(flops(1.0, 64.0 + i) for i in range(1, 32))
    assert request_flops(server(), LENGTHS) == pytest.approx(flops(64.0, 0.0) + steps, rel=1e-9)


def test_a_rate_is_what_is_answered_and_latencies_grow_with_it() -> None:
    most = answer(Load()).metrics["requests_per_s"]
    found = [answer(Load(requests_per_s=most * share)).metrics for share in (0.01, 0.3, 0.6, 0.9)]
    assert [m["serve_utilization"] for m in found] == pytest.approx([0.01, 0.3, 0.6, 0.9])
    for name in ("ttft_s", "tpot_s", "batch"):
        values = [m[name] for m in found]
        assert values == sorted(values)
    with pytest.raises(InfeasibleError, match="replicas would do"):
        answer(Load(requests_per_s=1.5 * most))


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_the_simulation_agrees_with_the_closed_form(share: float) -> None:
    rate = share * answer(Load()).metrics["requests_per_s"]
    closed = answer(Load(requests_per_s=rate)).metrics
    text = f"poisson:{rate:.9g},n=800"
    traffic = parse_traffic(text, parse_sizes("64", "32"))
    found = serve_traffic(server(), traffic, Load(traffic=text), SLO(ttft_s=10.0), cut=0.1)
    assert found.metrics["ttft_s"] == pytest.approx(closed["ttft_s"], rel=0.1)
    assert found.metrics["tpot_s"] == pytest.approx(closed["tpot_s"], rel=0.05)
    assert found.metrics["request_goodput_share"] == 1.0


@pytest.mark.parametrize("apart", [False, True])
def test_more_requests_than_can_be_answered_are_told_of(apart: bool) -> None:
    pools = Pools(server(), server(), link_of(server().system, 2))
    most = (serve_pools(pools, LENGTHS, Load()) if apart else answer(Load())).metrics["requests_per_s"]
    for share, is_told in ((0.5, False), (2.0, True)):
        traffic = parse_traffic(f"poisson:{share * most:.9g},n=400", parse_sizes("64", "32"))
        run = partial(serve_traffic_apart, pools) if apart else partial(serve_traffic, server())
        found = run(traffic, Load(traffic="x"), SLO())
        told = [text for text in found.warnings if f"and {most:.3g} can be answered" in text]
        assert bool(told) == is_told
    burst = serve_traffic(server(), parse_traffic("burst:50", parse_sizes("64", "32")), Load(traffic="x"), SLO())
    assert burst.warnings == UNFITTED


def test_replicas_answer_as_many_times_as_much_for_as_much_money_a_token() -> None:
    two = worth_serving(answer(Load(concurrency=8), of=server(tp=4, dp=2)))
    eight = worth_serving(answer(Load(concurrency=32), of=server(tp=4, dp=8)))
    assert two.money is not None
    assert eight.money is not None
    assert eight.metrics["requests_per_s"] == pytest.approx(4 * two.metrics["requests_per_s"])
    m = eight.money.metrics
    assert m["usd_per_mtok_output"] == pytest.approx(two.money.metrics["usd_per_mtok_output"], rel=0.2)
    # Dollars an hour over tokens an hour.
    per_s = m["usd_per_gpu_hour"] * 32 / 3600
    assert m["usd_per_mtok_output"] == pytest.approx(1e6 * per_s / eight.metrics["tokens_per_s"])
    assert m["usd_per_mtok"] == pytest.approx(m["usd_per_mtok_output"] / 3)  # 64 in, 32 out
    assert m["usd_per_request"] == pytest.approx(32e-6 * m["usd_per_mtok_output"])


@given(clients=st.integers(1, 300), prompts=st.integers(1, 3), answers=st.integers(1, 3), output=st.integers(2, 112))
@settings(max_examples=8, deadline=None)
def test_parts_of_a_request_over_two_pools_add_up(clients: int, prompts: int, answers: int, output: int) -> None:
    pools = Pools(server(dp=prompts), server(dp=answers), link_of(server().system, 8))
    found = serve_pools(pools, Lengths(64.0, float(output)), Load(concurrency=clients))
    assert sum(found.breakdown_s.values()) == pytest.approx(found.metrics["e2el_s"])
    assert found.num_gpus == prompts + answers
    assert max(found.metrics["prefill_busy"], found.metrics["decode_busy"]) <= 1.0 + 1e-6
    assert found.metrics["requests_per_s"] == pytest.approx(clients / found.metrics["e2el_s"], rel=1e-3)


def test_pools_answer_what_comes_and_no_more_than_they_can() -> None:
    pools = Pools(server(dp=1), server(dp=2), link_of(server().system, 3))
    most = serve_pools(pools, LENGTHS, Load()).metrics["requests_per_s"]
    half = serve_pools(pools, LENGTHS, Load(requests_per_s=most / 2)).metrics
    assert half["requests_per_s"] == pytest.approx(most / 2)
    assert worth_serving(serve_pools(pools, LENGTHS, Load(requests_per_s=most / 2))).money is not None
    with pytest.raises(InfeasibleError, match="use more workers"):
        serve_pools(pools, LENGTHS, Load(requests_per_s=2 * most))
    with pytest.raises(UsageError, match="one pool"):
        serve_pools(pools, LENGTHS, Load(batch=2))
    found = serve_traffic_apart(
        pools, parse_traffic(f"poisson:{most / 10:.6g},n=300", parse_sizes("64", "32")), Load(traffic="x"), SLO()
    )
    tenth = serve_pools(pools, LENGTHS, Load(requests_per_s=most / 10)).metrics
    assert found.metrics["ttft_s"] == pytest.approx(tenth["ttft_s"], rel=0.15)
    assert found.metrics["tpot_s"] == pytest.approx(tenth["tpot_s"], rel=0.05)


@pytest.mark.parametrize("workers", [(1, 1), (2, 1), (1, 3)])
def test_pools_without_a_load_show_a_request_that_finds_room(workers: tuple[int, int]) -> None:
    pools = Pools(server(dp=workers[0]), server(dp=workers[1]), link_of(server().system, 8))
    most, alone = (serve_pools(pools, LENGTHS, load) for load in (Load(), Load(concurrency=1)))
    # One prompt at a time: whoever finds a worker free waits no longer than one that is alone.
    assert most.metrics["ttft_s"] == pytest.approx(alone.metrics["ttft_s"])
    assert most.metrics["serve_utilization"] == pytest.approx(1.0)
    assert max(most.metrics["prefill_busy"], most.metrics["decode_busy"]) == pytest.approx(1.0)
    assert most.metrics["concurrency"] == pytest.approx(most.metrics["requests_per_s"] * most.metrics["e2el_s"])
    assert sum(most.breakdown_s.values()) == pytest.approx(most.metrics["e2el_s"])


def test_a_simulated_pool_is_as_busy_as_its_closed_form_says() -> None:
    pools = Pools(server(dp=1), server(dp=1), link_of(server().system, 8))
    rate = serve_pools(pools, LENGTHS, Load()).metrics["requests_per_s"] / 4
    traffic = parse_traffic(f"poisson:{rate:.9g},n=800", parse_sizes("64", "32"))
    found = serve_traffic_apart(pools, traffic, Load(traffic="x"), SLO(), cut=0.1).metrics
    closed = serve_pools(pools, LENGTHS, Load(requests_per_s=found["requests_per_s"])).metrics
    for name in ("prefill_busy", "decode_busy"):
        assert found[name] == pytest.approx(closed[name], rel=1e-4)


def test_the_network_that_joins_pools_is_the_innermost_that_holds_both() -> None:
    system = server().system
    inside, across = link_of(system, 8), link_of(system, 9)
    assert inside.bytes_per_s == system.levels[0].bytes_per_s * system.levels[0].efficiency
    assert across.bytes_per_s == system.levels[1].bytes_per_s * system.levels[1].efficiency
    assert link_of(system, 9, bytes_per_s=1e9).bytes_per_s == 1e9


def test_drafts_that_are_always_right_make_as_many_tokens_a_round_and_none_changes_nothing() -> None:
    plain = answer(Load(concurrency=4)).metrics
    none = drafting(server(), Speculation(drafter=Drafter(), length=0, acceptance=0.5))
    assert none is server()
    found = answer(Load(concurrency=4), of=drafting(server(), Speculation(drafter=Drafter(), length=3, acceptance=1.0)))
    assert found.metrics["tokens_per_round"] == 4.0
    assert found.metrics["itl_s"] == pytest.approx(4 * found.metrics["tpot_s"])
    assert plain["tpot_s"] / 4 <= found.metrics["tpot_s"] < plain["tpot_s"]
    assert "draft" not in found.breakdown_s


def test_a_drafter_takes_time_and_memory() -> None:
    own = server()
    drafter = draft_model(served(), own.system, own.plan, own.engine, 512)
    found = answer(Load(concurrency=4), of=drafting(own, Speculation(drafter=drafter, length=2, acceptance=0.5)))
    assert found.breakdown_s["draft"] > 0.0
    assert sum(found.breakdown_s.values()) == pytest.approx(found.metrics["e2el_s"])
    # The draft is the model itself: as many weights again.
    assert found.memory_bytes["draft_weights"] == pytest.approx(found.memory_bytes["weights"])
    head = prediction_head(own)
    assert (head.share, num_layers(served())) == (0.5, 2)


@pytest.mark.parametrize("tp", [1, 2])
def test_a_prediction_head_weighs_what_the_last_layer_does(tp: int) -> None:
    own, config = server(tp=tp), json.loads(CONFIG.read_text())
    width, inner, heads, groups = (
        config[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    )
    # Query and output, key and value, three of the MLP, split over ranks; two norms on each. Two bytes a number.
    split = 2 * width**2 + 2 * width**2 * groups // heads + 3 * width * inner
    head = prediction_head(own)
    assert head.weight_bytes == 2 * (split / tp + 2 * width)
    drafts = drafting(own, Speculation(drafter=head, length=1, acceptance=0.8))
    assert answer(Load(concurrency=4), of=drafts).memory_bytes["draft_weights"] == head.weight_bytes
    assert drafts.times.free_bytes == own.times.free_bytes - head.weight_bytes


def test_a_target_keeps_as_many_under_way_as_it_lets() -> None:
    alone, most = answer(Load(concurrency=1)).metrics, answer(Load()).metrics
    target = SLO(tpot_s=(alone["tpot_s"] + most["tpot_s"]) / 2)
    found = serve(server(), LENGTHS, Load(), target)
    more = answer(Load(concurrency=found.metrics["concurrency"] + 1))
    assert target.met_by(found.found)
    assert not target.met_by(more.found)
    with pytest.raises(InfeasibleError, match="one request alone has TTFT"):
        serve(server(), LENGTHS, Load(), SLO(ttft_s=1e-6))


def test_long_prompts_in_chunks_need_no_more_memory_than_a_chunk() -> None:
    base = server().engine
    small = replace(base, scheduler=replace(base.scheduler, max_batched_tokens=64, max_num_seqs=8))
    whole = replace(small, scheduler=replace(small.scheduler, chunked_prefill=False))
    free = [Server.of(served(), server().system, server().plan, e, 512).times.free_bytes for e in (small, whole)]
    assert free[0] > free[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Load(concurrency=2, batch=2), "give one"),
        (lambda: Load(concurrency=0.5), "1 or more"),
        (lambda: Load(requests_per_s=0.0), "more than 0"),
        (lambda: answer(Load(concurrency=1), of=server(dp=2)), "2 or more"),
        (lambda: answer(Load(), Lengths(512.0, 1.0)), "was priced for 512"),
        (lambda: Server.of(served(), server().system, server().plan, server().engine, 513), "512 positions"),
        (lambda: SLO(ttft_s=0.0), "more than 0 s"),
    ],
)
def test_what_cannot_be_is_refused(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=words):
        call()


def test_why_a_server_beats_another_adds_up_to_the_time_of_a_request() -> None:
    one, two = (answer(Load(concurrency=8.0), of=server(tp=tp)) for tp in (1, 2))
    found = why(one, two, [Goal("tokens_per_s_per_gpu", -1.0)])
    assert found.time is not None
    whole = one.metrics["e2el_s"] - two.metrics["e2el_s"]
    assert sum(part.difference for part in found.time.parts) == pytest.approx(whole)
    assert {"ttft_s", "tpot_s", "e2el_s"} <= {change.name for change in found.metrics}
    lines = why_text(found).splitlines()
    assert lines[0].startswith("tp1 dp1 against tp2 dp1: tokens/s/GPU ")
    # One GPU alone has no messages, and computes all by itself.
    assert "less decode: tp communication" in lines[2]


def test_a_step_and_a_server_are_not_compared() -> None:
    found = answer(Load(concurrency=8.0))
    with pytest.raises(UsageError, match="two of one kind"):
        why(found, found.decode)
