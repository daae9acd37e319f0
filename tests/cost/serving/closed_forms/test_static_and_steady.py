"""Static batches against sums over all tokens, steady states against a replay of a scheduler, and the laws of both."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.software.engine import Engine
from slipstick.cost.serving.batching.continuous import most_throughput, steady
from slipstick.cost.serving.batching.open_loop import at_rate
from slipstick.cost.serving.batching.static import static_batch
from slipstick.cost.serving.batching.steps import stretch
from slipstick.cost.serving.batching.times import StepTimes, Surface
from slipstick.cost.serving.metrics import ServingMetrics
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.ir.errors import InfeasibleError, UsageError

Replica = Callable[..., StepTimes]
Engines = Callable[..., Engine]
READ, TOKEN, LOOK = st.floats(1e-3, 2e-2), st.floats(5e-6, 5e-5), st.floats(1e-9, 3e-7)
PROMPT, OUTPUT, BATCH = st.integers(1, 4096), st.integers(2, 1024), st.integers(1, 256)


def test_a_static_batch_by_hand(replica: Replica, engine: Engines) -> None:
    # 4 prompts of 100 tokens: max(5 ms, 400 x 20 us) + 1 ms + 4 x 1e-10 x 100^2; then 10 steps over 101 .. 110 tokens:
    # 6 ms and 4 x 105.5 x 0.1 us each; the host adds 0.5 ms and 4 x 10 us a step, 2 ms and 100 x 1 us a prompt.
    found = static_batch(replica(), engine(5e-4, 1e-5, 2e-3, 1e-6), 4, Lengths(100, 11))
    ttft, step = 2e-3 + 1e-4 + 8e-3 + 1e-3 + 4e-6 + 5e-4, 6e-3 + 4 * 105.5e-7 + 5e-4 + 4e-5
    assert float(found.ttft_s) == pytest.approx(ttft, rel=1e-3)
    assert float(found.tpot_s) == pytest.approx(step, rel=1e-9)
    assert float(found.e2el_s) == pytest.approx(ttft + 10 * step, rel=1e-3)
    assert float(found.output_tokens_per_s) == pytest.approx(44 / float(found.e2el_s))
    assert float(found.total_tokens_per_s) == pytest.approx(444 / float(found.e2el_s))
    assert float(found.tokens_per_s_per_user) == pytest.approx(1 / step)
    assert float(found.itl_s) == float(found.tpot_s)


@given(st.integers(1, 3000), st.integers(2, 6000), st.integers(1, 64), st.integers(200, 4000))
def test_the_sum_over_growing_contexts_is_that_over_all_tokens(
    replica: Replica, engine: Engines, prompt: int, output: int, batch: int, window: int
) -> None:
    # A window bends the table as sharply as any model does; with this much room there is one wave.
    times = replica(read=1e-4, fixed=0.0, free=1e12)
    at = times.decode_attention.columns
    bent = Surface(
        times.decode_attention.rows, at, times.decode_attention.rows[:, None] * 1e-6 * np.minimum(at, window)
    )
    bending = replace(times, decode_attention=bent)
    found = static_batch(bending, engine(), batch, Lengths(prompt, output))
    each = bending.decode_s(float(batch), np.arange(prompt + 1, prompt + output, dtype=float))
    assert float(found.tpot_s) == pytest.approx(float(each.mean()), rel=1e-4)


def test_a_batch_that_does_not_fit_runs_in_waves(replica: Replica, engine: Engines) -> None:
    lengths, at = Lengths(96, 64), engine(max_num_seqs=10)
    one, three = static_batch(replica(), at, 8, lengths), static_batch(replica(), at, 24, lengths)
    assert (float(three.batch), float(three.concurrency)) == (8, 24)
    assert float(three.requests_per_s) == pytest.approx(float(one.requests_per_s))
    assert float(three.ttft_low_s) == pytest.approx(float(one.ttft_s))
    assert float(three.ttft_s - one.ttft_s) == pytest.approx(float(one.e2el_s))
    assert float(three.ttft_high_s - one.ttft_s) == pytest.approx(2 * float(one.e2el_s))


def test_groups_follow_each_other_through_stages(replica: Replica, engine: Engines) -> None:
    # Two stages of equal time: a group steps as often as one pass takes, and both groups at once.
    lengths = Lengths(512, 64)
    one, two = replica(), replica(groups=2, pace=0.5)
    whole, halves = static_batch(one, engine(), 8, lengths), static_batch(two, engine(), 16, lengths)
    assert float(halves.tpot_s) == pytest.approx(float(whole.tpot_s))
    assert float(halves.ttft_s) == pytest.approx(1.5 * float(whole.ttft_s))
    many = steady(one, engine(), 8, lengths), steady(two, engine(), 16, lengths)
    assert float(many[1].tpot_s) == pytest.approx(float(many[0].tpot_s))
    assert float(many[1].requests_per_s) == pytest.approx(2 * float(many[0].requests_per_s))
    assert float(steady(two, engine(), 1, lengths).e2el_s) == pytest.approx(
        float(steady(one, engine(), 1, lengths).e2el_s)
    )


@given(READ, TOKEN, LOOK, PROMPT, OUTPUT, st.booleans(), st.booleans())
def test_one_request_alone_is_a_static_batch_of_one(
    replica: Replica, engine: Engines, read: float, token: float, look: float, prompt: int, output: int, mixed: bool,
    chunked: bool,
) -> None:  # fmt: skip
    times = replica(read, token, look=look)
    at = engine(5e-4, 1e-5, 2e-3, 1e-6, mixed=mixed, chunked_prefill=chunked, max_batched_tokens=512)
    lengths = Lengths(prompt, output)
    alone, batch = steady(times, at, 1, lengths), static_batch(times, at, 1, lengths)
    for name in ("ttft_s", "tpot_s", "e2el_s", "requests_per_s", "ttft_low_s", "ttft_high_s"):
        assert float(getattr(alone, name)) == pytest.approx(float(getattr(batch, name)), rel=1e-9)


@given(READ, TOKEN, LOOK, PROMPT, OUTPUT, st.booleans(), st.sampled_from((512, 8192)), st.floats(0.3, 1.0))
def test_laws_over_concurrency(
    replica: Replica, engine: Engines, read: float, token: float, look: float, prompt: int, output: int, mixed: bool,
    budget: int, interference: float,
) -> None:  # fmt: skip
    times = replica(read, token, look=look)
    at = engine(5e-4, 1e-5, 2e-3, 1e-6, interference, mixed=mixed, max_batched_tokens=budget)
    found = steady(times, at, np.unique(np.rint(np.geomspace(1.0, 600.0, 40))), Lengths(prompt, output))
    slack = 1 - 1e-9
    assert (np.diff(found.tpot_s) >= -1e-9 * found.tpot_s[1:]).all()
    assert (np.diff(found.requests_per_s) >= -0.01 * found.requests_per_s[1:]).all()
    # TPOT leaves out the first token, which may cost less than the others: of those others no more come.
    behind_first = found.requests_per_s * (output - 1)
    assert (behind_first * slack <= found.batch / found.tpot_s).all()
    assert (found.ttft_low_s * slack <= found.ttft_s).all()
    assert (found.ttft_s * slack <= found.ttft_high_s).all()
    assert (found.stall_s >= found.tpot_s * slack).all()
    # Little's law: what is in flight is what comes a second times how long it stays.
    assert found.requests_per_s * found.e2el_s == pytest.approx(found.concurrency)


@given(READ, TOKEN, LOOK, st.integers(64, 4096), OUTPUT, BATCH)
def test_throughput_never_exceeds_batch_over_tpot(
    replica: Replica, engine: Engines, read: float, token: float, look: float, prompt: int, output: int, batch: int
) -> None:
    # A prompt of real length costs no less than a token of decode.
    found = steady(replica(read, token, look=min(look, 1e-8)), engine(5e-4), batch, Lengths(prompt, output))
    if float(found.ttft_s) >= float(found.tpot_s):
        assert float(found.output_tokens_per_s) <= float(found.batch / found.tpot_s) * (1 + 1e-9)


@given(READ, TOKEN, LOOK, PROMPT, OUTPUT, BATCH, st.booleans())
def test_longer_answers_and_contexts_never_make_a_token_faster(
    replica: Replica, engine: Engines, read: float, token: float, look: float, prompt: int, output: int, batch: int,
    mixed: bool,
) -> None:  # fmt: skip
    # Where cache and steps have room for all; when they are full, longer requests leave fewer decodes in each.
    times = replica(read, token, look=look, free=1e15)
    at = engine(max_num_seqs=256, max_batched_tokens=200_000, mixed=mixed)
    short, long = (
        steady(times, at, batch, Lengths(prompt, output)),
        steady(times, at, batch, Lengths(prompt + 64, output)),
    )
    static = [static_batch(times, at, batch, Lengths(prompt, n)) for n in (output, output + 64)]
    assert float(long.tpot_s) >= float(short.tpot_s) * (1 - 1e-9)
    assert float(static[1].tpot_s) >= float(static[0].tpot_s) * (1 - 1e-9)


@given(READ, TOKEN, LOOK, PROMPT, OUTPUT, st.floats(1.0, 4.0), st.booleans())
def test_more_room_for_the_cache_never_hurts(
    replica: Replica, engine: Engines, read: float, token: float, look: float, prompt: int, output: int, more: float,
    mixed: bool,
) -> None:  # fmt: skip
    lengths, at = Lengths(prompt, output), engine(mixed=mixed)
    small, large = replica(read, token, look=look, free=4e9), replica(read, token, look=look, free=4e9 * more)
    assert (
        most_throughput(large, at, lengths).requests_per_s >= most_throughput(small, at, lengths).requests_per_s * 0.999
    )
    # A request meets the b - 1 others: of a full step the closed form takes (b - 1)/b, and is as much too fast.
    held = steady(small, at, 500, lengths)
    slack = max(0.001, 1.0 / float(held.batch))
    assert steady(large, at, 500, lengths).requests_per_s >= held.requests_per_s * (1.0 - slack)


@given(READ, TOKEN, LOOK, st.integers(2, 4096), OUTPUT, BATCH, st.floats(0.0, 0.99), st.booleans())
def test_a_cached_prefix_never_slows(
    replica: Replica, engine: Engines, read: float, token: float, look: float, prompt: int, output: int, batch: int,
    rate: float, mixed: bool,
) -> None:  # fmt: skip
    times, at = replica(read, token, look=look), engine(5e-4, mixed=mixed, max_batched_tokens=200_000)
    cached = min(rate * prompt, prompt - 1)
    cold, warm = (
        steady(times, at, batch, Lengths(prompt, output)),
        steady(times, at, batch, Lengths(prompt, output, cached)),
    )
    for name in ("ttft_s", "tpot_s", "e2el_s"):
        assert float(getattr(warm, name)) <= float(getattr(cold, name)) * (1 + 1e-9)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=12))
def test_chunks_of_a_prompt_add_up_to_its_attention(replica: Replica, chunks: list[int]) -> None:
    times, ends = replica(), np.cumsum(chunks)
    parts = times.chunk_attention_s(np.concatenate([[0], ends[:-1]]), ends)
    assert float(parts.sum()) == pytest.approx(float(times.prompt_attention(1.0, float(ends[-1]))), rel=1e-9)


def test_a_chunk_bounds_the_longest_gap(replica: Replica, engine: Engines) -> None:
    # 8 decodes at 4136 tokens beside a chunk: 6 ms + 8 x 0.41 ms, and what 512 (2048) tokens more than 8 take.
    gaps = [
        float(steady(replica(square=0.0), engine(max_batched_tokens=most), 8, Lengths(4096, 81)).stall_s)
        for most in (512, 2048)
    ]
    assert gaps == pytest.approx([6e-3 + 8 * 413.65e-6 + n * 2e-5 - 5e-3 for n in (519, 2055)], rel=0.02)


def test_prompts_share_the_tokens_of_a_step(replica: Replica, engine: Engines) -> None:
    # 64 requests of 8192 + 16 tokens in steps of 2048: no more than 2048 / 8207 of them can start each step.
    found = steady(replica(), engine(max_batched_tokens=2048), 64, Lengths(8192, 16))
    assert float(found.requests_per_s * found.tpot_s) == pytest.approx(2048 / 8207, rel=0.03)


def test_beyond_what_fits_requests_wait(replica: Replica, engine: Engines) -> None:
    lengths, at = Lengths(1024, 256), engine(max_num_seqs=32)
    full, twice = steady(replica(), at, 32, lengths), steady(replica(), at, 64, lengths)
    assert float(twice.tpot_s) == float(full.tpot_s)
    assert float(twice.requests_per_s) == pytest.approx(float(full.requests_per_s))
    assert float(twice.ttft_s - full.ttft_s) == pytest.approx(32 / float(full.requests_per_s))


@pytest.mark.parametrize("mixed", [True, False])
def test_of_what_prompts_do_not_add_between_tokens_a_fifth_of_what_they_add_comes_before_the_first(
    replica: Replica, engine: Engines, mixed: bool
) -> None:
    lengths = Lengths(1024, 128)
    all_between, half = (steady(replica(), engine(0.0, 0.0, 0.0, 0.0, x, mixed=mixed), 32, lengths) for x in (1.0, 0.5))
    assert float(half.tpot_s) < float(all_between.tpot_s)
    assert float(half.ttft_s) > float(all_between.ttft_s)
    # With x = 0.5, half of what all prompts of others take is between tokens, and a fifth of that half before them.
    others = 2.0 * (float(all_between.tpot_s) - float(half.tpot_s))
    assert float(half.ttft_s) == pytest.approx(float(all_between.ttft_s) + float(lengths.gaps) * 0.2 * 0.5 * others)


@pytest.mark.parametrize("interference", [0.4, 0.9, 1.0])
def test_clients_that_wait_get_no_more_answers_than_the_engine_can_give(
    replica: Replica, engine: Engines, interference: float
) -> None:
    lengths, one = Lengths(1024, 128), engine(0.0, 0.0, 0.0, 0.0, interference)
    most = float(most_throughput(replica(), one, lengths).requests_per_s)
    found = steady(replica(), one, np.arange(1.0, 300.0), lengths)
    assert (found.requests_per_s <= most).all()
    assert found.requests_per_s[-1] == pytest.approx(most, rel=0.02)
    assert (np.diff(found.ttft_s) >= -1e-12).all()
    # Little's law.
    np.testing.assert_allclose(found.concurrency, found.requests_per_s * found.e2el_s)


def test_arrays_say_what_numbers_say(replica: Replica, engine: Engines) -> None:
    prompts, clients = np.array([100.0, 1000.0, 5000.0]), np.array([[1.0], [7.0], [300.0]])
    table = steady(replica(), engine(5e-4), clients, Lengths(prompts, 100))
    most, rate = (f(replica(), engine(5e-4), Lengths(prompts, 100)) for f in (most_throughput, _tenth_of_most))
    assert table.tpot_s.shape == table.ttft_s.shape == table.batch.shape == (3, 3)
    for column, prompt in enumerate(prompts):
        one = Lengths(float(prompt), 100)
        assert most.requests_per_s[column] == pytest.approx(
            float(most_throughput(replica(), engine(5e-4), one).requests_per_s), rel=1e-3
        )
        assert rate.ttft_s[column] == pytest.approx(
            float(_tenth_of_most(replica(), engine(5e-4), one).ttft_s), rel=1e-3
        )
        for row, num in enumerate(clients[:, 0]):
            alone = steady(replica(), engine(5e-4), float(num), one)
            assert table.ttft_s[row, column] == pytest.approx(float(alone.ttft_s))
            assert table.tpot_s[row, column] == pytest.approx(float(alone.tpot_s))


def _tenth_of_most(times: StepTimes, at: Engine, lengths: Lengths) -> ServingMetrics:
    return at_rate(times, at, most_throughput(times, at, lengths).requests_per_s / 10, lengths)


def test_an_answer_of_one_token_has_no_tpot(replica: Replica, engine: Engines) -> None:
    found = steady(replica(), engine(), 4, Lengths(100, 1))
    assert np.isnan(found.tpot_s)
    assert float(found.e2el_s) == float(found.ttft_s)


def test_no_request_under_way_is_refused(replica: Replica, engine: Engines) -> None:
    with pytest.raises(UsageError, match="concurrency=0"):
        steady(replica(), engine(), 0, Lengths(10, 10))


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize(("prompt", "output", "clients"), [(1024, 128, 8), (1024, 128, 96), (4096, 64, 32)])
def test_a_steady_state_is_what_a_scheduler_does(
    replica: Replica, engine: Engines, mixed: bool, prompt: int, output: int, clients: int
) -> None:
    at = engine(5e-4, 1e-5, mixed=mixed, max_num_seqs=64, max_batched_tokens=2048)
    replayed = _replay(replica(), at, clients, prompt, output)
    found = steady(replica(), at, clients, Lengths(prompt, output))
    assert float(found.tpot_s) == pytest.approx(replayed.tpot_s, rel=0.06)
    assert float(found.requests_per_s) == pytest.approx(replayed.requests_per_s, rel=0.05)
    assert replayed.ttft_s * 1.001 >= float(found.ttft_low_s)
    assert replayed.ttft_s <= float(found.ttft_high_s)


class _Replayed:
    def __init__(self, first: list[float], gaps: list[float], rate: float) -> None:
        self.ttft_s, self.tpot_s, self.requests_per_s = float(np.mean(first)), float(np.mean(gaps)), rate


class _Request:
    def __init__(self, fresh: int, output: int, sent_s: float) -> None:
        self.left, self.made, self.output, self.sent_s, self.first_s = fresh, 0, output, sent_s, 0.0


def _replay(times: StepTimes, at: Engine, clients: int, prompt: int, output: int) -> _Replayed:
    """Step by step: lengths of answers vary by half, as else all requests would stay in lockstep."""
    draw, now, cap = random.Random(1), 0.0, at.scheduler.max_num_seqs

    def new() -> _Request:
        return _Request(prompt, draw.randint(output // 2, output + output // 2), now)

    waiting, running, done = [new() for _ in range(clients)], list[_Request](), list[tuple[float, float, float]]()
    while len(done) < 3 * clients + 300:
        while waiting and len(running) < cap:
            running.append(waiting.pop(0))
        decodes = [r for r in running if not r.left]
        chunks = _chunks(running, at.scheduler.max_batched_tokens - len(decodes) * at.scheduler.mixed)
        decodes = [] if chunks and not at.scheduler.mixed else decodes
        context = float(np.mean([prompt + r.made for r in decodes])) if decodes else 1.0
        attention = sum(float(times.chunk_attention_s(prompt - r.left, prompt - r.left + n)) for r, n in chunks)
        now += float(times.step_s(float(len(decodes)), context, float(sum(n for _, n in chunks)), attention))
        now += at.overheads.step_s + at.overheads.sequence_s * len(decodes)
        for request, tokens in chunks:
            request.left -= tokens
            request.first_s = now
        for request in decodes + [r for r, _ in chunks if not r.left]:
            request.made += 1
        for request in [r for r in running if r.made >= r.output]:
            running.remove(request)
            waiting.append(new())
            done.append(
                (request.first_s - request.sent_s, (now - request.first_s) / (request.output - 1), now - request.sent_s)
            )
    first, gaps, stay = zip(*done[3 * clients :], strict=True)
    return _Replayed(list(first), list(gaps), clients / float(np.mean(stay)))


def _chunks(running: list[_Request], most: int) -> list[tuple[_Request, int]]:
    chunks = list[tuple[_Request, int]]()
    for request in running:
        tokens = min(most, request.left)
        most -= tokens
        chunks += [(request, tokens)] if tokens else []
    return chunks


def test_an_open_loop_has_the_batch_that_little_s_law_asks_for(replica: Replica, engine: Engines) -> None:
    lengths, at = Lengths(1024, 128), engine(5e-4)
    most = float(most_throughput(replica(), at, lengths).requests_per_s)
    found = at_rate(replica(), at, np.array([0.01, 0.5, 0.9, 0.99]) * most, lengths)
    assert found.requests_per_s * found.e2el_s == pytest.approx(found.concurrency)
    assert (np.diff(found.ttft_s) > 0).all()
    assert (np.diff(found.tpot_s) > 0).all()
    alone = steady(replica(), at, 1, lengths)
    assert float(at_rate(replica(), at, 1e-6, lengths).e2el_s) == pytest.approx(float(alone.e2el_s), rel=1e-4)
    with pytest.raises(InfeasibleError, match=r"no more than .* 3 replicas would do"):
        at_rate(replica(), at, 2.5 * most, lengths)
    with pytest.raises(UsageError, match="rate=0"):
        at_rate(replica(), at, 0.0, lengths)


def test_groups_of_sequences_take_turns_on_the_stages(replica: Callable[..., StepTimes]) -> None:
    # Four stages, each pass half as long as a round of one: eight sequences form four groups, 4 x 0.5; two form two,
    # 2 x 0.5; one sequence waits for its own pass alone, never for less than one.
    found = stretch(replica(groups=4, pace=0.5), np.array([8.0, 2.0, 1.0]))
    assert found.tolist() == [2.0, 1.0, 1.0]
