"""Steps of post-training: laws of their parts, closed forms against the simulation, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.traffic.sizes import Fixed, Lognormal, Uniform
from slipstick.driver.estimate import lower
from slipstick.driver.rl.algorithm import ALGORITHMS, algorithm
from slipstick.driver.rl.rollout import Rollouts, rollout_time
from slipstick.driver.rl.samples import Samples
from slipstick.driver.rl.search import Candidates, find_step
from slipstick.driver.rl.step import ASYNCHRONOUS, SPLIT, PostTraining, PostTrainingStep, post_training_step
from slipstick.driver.serve.server import Server, replicated
from slipstick.driver.serve.tables import ServedModel
from slipstick.frontend import load
from slipstick.ir.errors import InfeasibleError, UnknownNameError, UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.structure import Defaults

MODEL, LONGEST, GPUS = "llama-3.1-8b", 2048, 16
SYSTEM = load_system("dgx-h100")


def plan_of(workload: Workload, num_gpus: int = GPUS, pp: int = 1, **words: object) -> Plan:
    family = Defaults(SYSTEM.stack, Family(workload=workload, **words))  # type: ignore[arg-type]
    return make_plan(num_gpus=num_gpus, pp=pp, seq_len=LONGEST, family=family)


TRAIN = plan_of(Workload.TRAIN, pp=2, zero=1)


@cache
def server(replicas: int = GPUS) -> Server:
    if replicas > 1:
        return replicated(server(1), replicas)
    engine = load_engine("vllm", SYSTEM.chip.name)
    system = load_system("dgx-h100", stack=engine.stack)
    prefill, decode = (plan_of(w, 1) for w in (Workload.PREFILL, Workload.DECODE))
    served = ServedModel(lower(load(MODEL, "prefill"), prefill.family), lower(load(MODEL, "decode"), decode.family))
    return Server.of(served, system, decode, engine, LONGEST)


def rollouts(prompts: int = 16, group: int = 8, spread: float = 0.7, mean: int = 500) -> Rollouts:
    return Rollouts(prompts=prompts, group=group, prompt=Fixed(200), answer=Lognormal(mean, spread), longest=LONGEST)


def step(name: str = "grpo", **words: object) -> PostTrainingStep:
    asked = PostTraining(algorithm=ALGORITHMS[name], **{"rollouts": rollouts(), **words})  # type: ignore[arg-type]
    return post_training_step(asked, load(MODEL), SYSTEM, TRAIN, server())


def test_colocated_parts_add_up_and_split_ones_wait_for_each_other() -> None:
    shared, split = step(), step(placement=SPLIT)
    assert sum(shared.parts_s.values()) == pytest.approx(shared.step_time_s, rel=1e-12)
    assert sum(split.parts_s.values()) == pytest.approx(split.step_time_s, rel=1e-12)
    assert "states" in shared.parts_s
    assert "states" not in split.parts_s
    assert (shared.num_gpus, split.num_gpus) == (GPUS, 2 * GPUS)
    rolled, change = split.parts_s["rollout"], split.parts_s["weights"]
    assert split.idle["trainer"] == pytest.approx(rolled / split.step_time_s)
    assert split.idle["engine"] == pytest.approx(1 - (rolled + change) / split.step_time_s)


def test_an_engine_ahead_hides_the_shorter_side() -> None:
    split, ahead = step(placement=SPLIT), step(placement=ASYNCHRONOUS)
    learning = sum(s for name, s in ahead.parts_s.items() if name.startswith(("pass", "train")))
    longer = max(learning, ahead.parts_s["rollout"])
    assert ahead.step_time_s == pytest.approx(longer + ahead.parts_s["weights"])
    assert ahead.step_time_s < split.step_time_s
    assert min(ahead.idle.values()) == pytest.approx(0.0, abs=1e-9)


def test_more_staleness_is_never_slower_and_never_faster_than_without_stragglers() -> None:
    steps = [step(placement=ASYNCHRONOUS, staleness=k) for k in (1, 2, 4, 16)]
    times = [s.step_time_s for s in steps]
    assert times == sorted(times, reverse=True)
    last = steps[-1]
    assert last.rollout is not None
    assert last.step_time_s >= last.rollout.even_s + last.parts_s["weights"] - 1e-9


def test_answers_alike_are_the_closed_form() -> None:
    """Without spread no one waits for stragglers: the simulation takes what a wave of equal requests takes."""
    for each in (4, 32):
        work = Rollouts(prompts=each, group=1, prompt=Fixed(200), answer=Fixed(500), longest=LONGEST)
        found = rollout_time(server(1), work)
        assert found.all_s == pytest.approx(found.even_s, rel=0.06)


def test_stragglers_cost_time_and_no_tokens() -> None:
    even, odd = (rollout_time(server(), rollouts(spread=s)) for s in (0.0, 1.0))
    assert odd.all_s > 1.3 * even.all_s
    assert odd.tokens == pytest.approx(even.tokens, rel=0.01)
    assert odd.straggler_share > even.straggler_share


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 1200), st.floats(0, 2), st.integers(0, 5))
def test_requests_are_cut_at_the_room_and_keep_their_mean(
    prompts: int, group: int, mean: int, spread: float, seed: int
) -> None:
    answer = Lognormal(mean, spread)
    work = Rollouts(prompts=prompts, group=group, prompt=Uniform(10, 300), answer=answer, longest=LONGEST, seed=seed)
    drawn = answer.draw(np.random.default_rng(seed), prompts * group)
    try:
        found = work.requests()
    except UsageError:
        return
    assert len(found.prompt) == prompts * group == work.samples
    assert (found.prompt + found.output <= LONGEST).all()
    assert (found.output >= 1).all()
    assert (found.cached < found.prompt).all()
    # One answer to each prompt computes it whole.
    assert (found.cached.reshape(prompts, group)[:, 0] == 0).all()
    assert (found.prompt.reshape(prompts, group) == found.prompt.reshape(prompts, group)[:, :1]).all()
    assert len(drawn) == len(found.output)


def test_the_mean_of_answers_stays_where_long_ones_are_cut() -> None:
    found = rollouts(256, 8, 1.5, 600).requests()
    free = Lognormal(600, 1.5).draw(np.random.default_rng(0), 2048)
    assert found.output.max() == LONGEST - 200
    assert found.output.mean() == pytest.approx(free.mean(), rel=0.02)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4096), st.floats(1, LONGEST), st.integers(1, 4), st.booleans())
def test_updates_have_room_for_every_sequence(num: int, mean: float, packs: int, packed: bool) -> None:
    samples = Samples(num, mean, LONGEST, max(num // 4, 1), packed=packed)
    base = replace(TRAIN, micro_batch=packs, global_batch=packs * TRAIN.dp)
    plan = samples.plan(base)
    assert plan.global_batch >= samples.batch
    assert plan.global_batch - samples.batch < plan.micro_batch * plan.dp
    assert plan.seq_len >= min(mean, LONGEST) if packed else plan.seq_len == LONGEST
    # A pack holds no more tokens than a full sequence, but for a sample that is rounded up.
    assert plan.seq_len * plan.micro_batch <= max(packs * LONGEST, plan.seq_len)


def test_packing_is_faster_than_padding() -> None:
    packed, padded = step("sft", rollouts=rollouts(256, 1)), step("sft", rollouts=rollouts(256, 1), packed=False)
    assert packed.step_time_s < padded.step_time_s
    assert packed.tokens == padded.tokens


def test_algorithms_differ_in_who_looks_and_who_learns() -> None:
    parts = {name: {*step(name).parts_s} - {"rollout", "weights", "states"} for name in ALGORITHMS}
    assert parts["grpo"] == {"pass.policy", "pass.reference", "train.policy"}
    assert parts["ppo"] == parts["grpo"] | {"pass.reward", "pass.critic", "train.critic"}
    assert parts["dpo"] == {"pass.reference", "train.policy"}
    assert parts["distillation"] == {"pass.teacher", "train.policy"}
    assert parts["sft"] == {"train.policy"}
    # A pair is two sequences.
    assert step("dpo").samples.num == 2 * step("sft").samples.num
    # The critic has states of its own.
    extra = step("ppo").peak_mem_bytes - step("grpo").peak_mem_bytes
    trainer = step().trainer.memory_bytes
    assert extra == pytest.approx(sum(trainer[name] for name in ("weights", "gradients", "optimizer")))


def test_weights_reach_every_rank_over_its_own_link() -> None:
    """One replica a GPU takes all weights of 8 B parameters in bf16; the level that holds 32 GPUs is the fabric."""
    split = step(placement=SPLIT)
    assert split.change is not None
    level = next(lv for lv in SYSTEM.levels if lv.size is None or lv.size >= 32)
    num_bytes = split.change.num_bytes
    assert num_bytes == pytest.approx(2 * 8.03e9, rel=0.01)
    expected = num_bytes / (float(level.bytes_per_s) * float(level.efficiency)) + float(level.latency_s)
    assert split.change.weights_s == pytest.approx(expected)


def test_a_refit_of_the_whole_model_brings_all_of_it_to_every_rank() -> None:
    """Colocated, a rank has a share of 1/n of what is gathered already."""
    whole, shards = (step(whole_refit=w).change for w in (True, False))
    assert whole is not None
    assert shards is not None
    level = next(lv for lv in SYSTEM.levels if lv.size is None or lv.size >= GPUS)
    gathered = 2 * 8_030_261_248 * (1 - 1 / GPUS)
    expected = gathered / (float(level.bytes_per_s) * float(level.efficiency)) + float(level.latency_s)
    assert whole.weights_s == pytest.approx(expected)
    assert whole.weights_s >= shards.weights_s * 0.99


def test_a_run_is_steps_of_all_devices() -> None:
    one = step(placement=SPLIT)
    run = one.run(1000)
    assert run["gpu_hours"] == pytest.approx(1000 * one.step_time_s / 3600 * 2 * GPUS)
    assert run["usd_run"] > run["gpu_hours"]


@pytest.mark.slow
def test_the_pair_of_plans_that_is_found_beats_every_pair_there_is() -> None:
    asked = PostTraining(algorithm=ALGORITHMS["grpo"], rollouts=rollouts(), placement=ASYNCHRONOUS)
    choices = (1, 2)

    def plans(num_gpus: int) -> list[Plan]:
        return [plan_of(Workload.TRAIN, num_gpus, pp, zero=1) for pp in choices if num_gpus % pp == 0]

    best, _ = find_step(asked, load(MODEL), SYSTEM, 16, Candidates(lambda n: iter(plans(n)), [server(1)]))
    rates = []
    for engines in range(2, 16, 2):
        for plan in plans(16 - engines):
            try:
                found = post_training_step(asked, load(MODEL), SYSTEM, plan, server(engines))
            except InfeasibleError:
                continue
            rates.append(found.metrics["tokens_per_s_per_gpu"])
    assert best.metrics["tokens_per_s_per_gpu"] == pytest.approx(max(rates), rel=1e-12)
    assert best.num_gpus == 16


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="an engine is needed"):
        post_training_step(PostTraining(algorithm=ALGORITHMS["grpo"], rollouts=rollouts()), load(MODEL), SYSTEM, TRAIN)
    small = plan_of(Workload.TRAIN, 1)
    with pytest.raises(InfeasibleError, match="the trainer needs"):
        post_training_step(PostTraining(algorithm=ALGORITHMS["sft"], rollouts=rollouts()), load(MODEL), SYSTEM, small)
    with pytest.raises(UsageError, match="of --placement async alone"):
        step(staleness=2)
    with pytest.raises(UsageError, match="leave no room"):
        step(rollouts=replace(rollouts(), prompt=Fixed(LONGEST)))
    with pytest.raises(UsageError, match="are longer than"):
        step(rollouts=rollouts(mean=5000))
    with pytest.raises(UsageError, match="an update of 1,000 sequences"):
        step(batch=1000)
    with pytest.raises(UnknownNameError, match="grpo"):
        algorithm("grop")
