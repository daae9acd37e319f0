"""Traffic as it is typed, drawn, and read from files."""

from pathlib import Path

import numpy as np
import pytest

from slipstick.cost.serving.traffic.sizes import DrawnRequests, Fixed, LengthMix, Lognormal, Requests, Uniform
from slipstick.cost.serving.traffic.trace_files import read_trace
from slipstick.cost.serving.traffic.traffic import Traffic, burst, closed, poisson, poisson_for
from slipstick.cost.serving.traffic.traffic_text import parse_sizes, parse_traffic
from slipstick.cost.serving.traffic.varying import diurnal_traffic, stepped_traffic
from slipstick.ir.errors import UsageError

SOME = LengthMix(Fixed(100), Fixed(10))


def test_gaps_of_a_poisson_process_are_exponential() -> None:
    gaps = np.diff(poisson(5.0, SOME, num=50_000).arrival_s)
    assert gaps.mean() == pytest.approx(0.2, rel=0.02)
    # Standard deviation over mean: 1, and 1 / sqrt(shape) of a gamma distribution.
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)
    burstier = np.diff(poisson(5.0, SOME, num=50_000, burstiness=0.25).arrival_s)
    assert burstier.mean() == pytest.approx(0.2, rel=0.03)
    assert burstier.std() / burstier.mean() == pytest.approx(2.0, abs=0.05)


def test_a_request_rate_is_that_of_the_gaps() -> None:
    # Three requests in half a second: two gaps of a quarter of a second.
    three = burst(3, SOME).requests
    assert Traffic(np.array([1.0, 1.25, 1.5]), three).request_rate == 4.0
    assert burst(3, SOME).request_rate == np.inf
    assert Traffic(np.array([1.0, 1.25, 1.5]), three, clients=2).request_rate == np.inf


def test_a_seed_is_the_same_gaps_at_any_rate_and_the_same_lengths() -> None:
    sizes = LengthMix(Uniform(1, 500), Lognormal(50, 1.0))
    slow, fast = poisson(1.0, sizes, seed=5), poisson(4.0, sizes, seed=5)
    np.testing.assert_allclose(slow.arrival_s, 4 * fast.arrival_s)
    np.testing.assert_array_equal(slow.requests.prompt, fast.requests.prompt)
    np.testing.assert_array_equal(slow.requests.output, closed(2, sizes, num=1000, seed=5).requests.output)
    assert (poisson(1.0, sizes, seed=6).arrival_s[1:] != slow.arrival_s[1:]).all()


def test_a_duration_ends_what_is_sent() -> None:
    traffic = poisson_for(50.0, SOME, 100.0)
    assert len(traffic) == pytest.approx(5000, rel=0.05)
    assert 99.0 < traffic.arrival_s[-1] <= 100.0
    for never in (0.0, np.inf):
        with pytest.raises(UsageError, match="a duration must be above 0"):
            poisson_for(50.0, SOME, never)


def test_a_day_rises_and_falls_between_its_rates() -> None:
    # Dynamo's load test: 5 requests/s, 45 after half a period, and 5 again; 25 on average.
    arrival_s = diurnal_traffic(45.0, 5.0, 600.0, 6000.0, SOME).arrival_s
    assert len(arrival_s) == pytest.approx(25 * 6000, rel=0.01)
    parts, _ = np.histogram(arrival_s % 600.0, bins=24)
    middle_s = (np.arange(24) + 0.5) * 25.0
    rates = 25.0 - 20.0 * np.cos(2 * np.pi * middle_s / 600.0) * np.sinc(1 / 24)
    np.testing.assert_allclose(parts / 250.0, rates, atol=4 * np.sqrt(45 / 250.0))


def test_rates_that_change_are_read_as_they_are_typed() -> None:
    day = diurnal_traffic(9.0, 2.0, 20.0, 60.0, SOME, seed=4).arrival_s
    for text in ("diurnal:9,2,period=20s,duration=1min,seed=4", "diurnal:9/s,low=2,period=20s,duration=60s,seed=4"):
        np.testing.assert_array_equal(parse_traffic(text, SOME).arrival_s, day)
    assert parse_traffic("diurnal:0.01,0.001", SOME).arrival_s[-1] < 24 * 3600.0
    steps = stepped_traffic([(9.0, 5.0), (2.0, 60.0)], SOME).arrival_s
    np.testing.assert_array_equal(parse_traffic("steps:9@5s+2/s@1min", SOME).arrival_s, steps)


def test_steps_have_their_rates_and_gaps_at_random() -> None:
    arrival_s = stepped_traffic([(50.0, 400.0), (0.0, 100.0), (5.0, 4000.0)], SOME, seed=1).arrival_s
    first, last = arrival_s[arrival_s < 400.0], arrival_s[arrival_s > 500.0]
    assert len(first) + len(last) == len(arrival_s)
    for part, rate, length_s in ((first, 50.0, 400.0), (last, 5.0, 4000.0)):
        assert len(part) == pytest.approx(rate * length_s, rel=0.03)
        assert np.diff(part).std() == pytest.approx(1.0 / rate, rel=0.04)
    assert arrival_s[-1] < 4500.0


def test_lengths_have_their_mean_and_their_spread() -> None:
    drawn = burst(100_000, LengthMix(Uniform(1, 3), Lognormal(200.0, 0.5)), seed=2).requests
    np.testing.assert_allclose(np.bincount(drawn.prompt)[1:], 100_000 / 3, rtol=0.02)
    assert drawn.output.mean() == pytest.approx(200, rel=0.01)
    assert drawn.output.std() / drawn.output.mean() == pytest.approx(0.5, rel=0.02)
    assert LengthMix(Fixed(1), Fixed(1), cached=0.9).draw(np.random.default_rng(0), 1).cached[0] == 0


@pytest.mark.parametrize(
    ("text", "num", "clients"),
    [("poisson:4", 1000, 0), ("poisson:4/s,n=20,seed=3,burstiness=0.5", 20, 0), ("burst:7", 7, 0),
     ("closed:8", 100, 8), ("closed:32", 320, 32), ("closed:8,n=40,think=2s,ramp=1min,seed=1", 40, 8)],
)  # fmt: skip
def test_traffic_is_read_as_it_is_typed(text: str, num: int, clients: int) -> None:
    traffic = parse_traffic(text, SOME)
    assert (len(traffic), traffic.clients) == (num, clients)


def test_clients_of_a_ramp_begin_one_after_the_other() -> None:
    traffic = parse_traffic("closed:4,n=6,ramp=2s", SOME)
    np.testing.assert_allclose(traffic.arrival_s, [0.0, 0.5, 1.0, 1.5, 2.0, 2.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poison:4", "did you mean 'poisson'"), ("4", "allowed: poisson:RATE"), ("poisson:0", "must be above 0"),
        ("poisson:-2", "must be above 0"), ("poisson:x", "x"), ("poisson:4,m=3", "'m=3' is no option"),
        ("poisson:4,n=3,duration=5s", "not both"), ("poisson:4,n=0", "1 or more"), ("closed:0", "needs a client"),
        ("closed:2.5", "be a whole number"), ("closed:2,think=-1s", "must not be negative"), ("burst:0", "1 or more"),
        ("closed:2,ramp=-1s", "ramp must not be negative"), ("poisson:4,burstiness=0", "burstiness must be above 0"),
        ("poisson:4,sed=1", "did you mean 'seed'"), ("nothing.csv", "cannot be read"), ("closed:4,n=0", "1 or more"),
        ("poisson:4,duration=60", "duration: missing unit of '60': give 60ms or 0.06s"),
        ("closed:2,think=2", "think: missing unit of '2': give 2000ms or 2s"),
        ("diurnal:9", "the peak and the least"), ("diurnal:2,9", "not above it"), ("diurnal:9,2,perod=1h", "'period'"),
        ("diurnal:9,2,period=0s", "period must be above 0"), ("diurnal:1e6,1", "up to 2,000,000"),
        ("steps:3", "as in steps:2@60s"), ("steps:3@0s", "a step must be above 0"), ("steps:0@5s", "0 requests"),
        ("steps:-1@5s", "0 or more"), ("steps:1e-9@1s", "no request came"),
    ],
)  # fmt: skip
def test_traffic_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_traffic(text, SOME)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [("0", "1 token or more"), ("5..2", "5..2"), ("0..4", "0..4"), ("lognormal:0.5", "mean of 1 or more"),
     ("many", "whole number"), ("lognormal:x,1", "mean must be a number")],
)  # fmt: skip
def test_lengths_that_cannot_be_are_refused(prompt: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_sizes(prompt, "10")


TRACES = {
    "ours.csv": "arrival_s,prompt,output,cached,session\n0.5,100,10,20,a\n1.5,200,20,0,\n4.5,300,30,0,a\n",
    "vidur.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,10\n1.5,200,20\n4.5,300,30\n",
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,100,10\n"
                 "2023-11-16 18:15:47.6805900,200,20\n2023-11-16 18:15:50.6805900,300,30\n",
    "azure24.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,100,10\n"
                   "2024-05-10 00:00:01.009930+00:00,200,20\n2024-05-10 00:00:04.009930+00:00,300,30\n",
    "burstgpt.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                    "5,ChatGPT,100,10,110,Conversation log\n6,GPT-4,200,20,220,API log\n9,GPT-4,300,30,330,API log\n",
    "mooncake.jsonl": '{"timestamp": 500, "input_length": 100, "output_length": 10, "hash_ids": [1, 2]}\n\n'
                      '{"timestamp": 1500, "input_length": 200, "output_length": 20, "hash_ids": [1]}\n'
                      '{"timestamp": 4500, "input_length": 300, "output_length": 30, "hash_ids": []}\n',
}  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_traces_are_read_under_the_names_that_people_use(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TRACES[name], encoding="utf-8")
    traffic = read_trace(path)
    np.testing.assert_allclose(np.diff(traffic.arrival_s), [1.0, 3.0])
    np.testing.assert_array_equal(traffic.requests.prompt, [100, 200, 300])
    np.testing.assert_array_equal(traffic.requests.output, [10, 20, 30])
    np.testing.assert_allclose(np.diff(parse_traffic(f"{path},speed=2,n=2", SOME).arrival_s), [0.5])


def test_a_trace_says_what_is_cached_and_who_talks(tmp_path: Path) -> None:
    path = tmp_path / "ours.csv"
    path.write_text(TRACES["ours.csv"], encoding="utf-8")
    traffic = read_trace(path)
    np.testing.assert_array_equal(traffic.requests.cached, [20, 0, 0])
    assert traffic.session is not None
    np.testing.assert_array_equal(traffic.session, [0, -1, 0])


def test_lengths_are_drawn_from_a_file(tmp_path: Path) -> None:
    # As Vidur's lists of lengths, without times.
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n100,1\n200,2\n", encoding="utf-8")
    sizes = parse_sizes(str(path), "")
    assert isinstance(sizes, DrawnRequests)
    drawn = poisson(1.0, sizes, num=500).requests
    np.testing.assert_array_equal(drawn.prompt, 100 * drawn.output)
    assert set(drawn.output.tolist()) == {1, 2}
    with pytest.raises(UsageError, match="no column for arrival: it has num_prefill_tokens"):
        read_trace(path)


HEAD = "arrival_s,prompt,output\n"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "has no requests"), ("0,5,5\n-1,5,5\n", r"line 3: the request is sent at -1 s, before time 0"),
        ("3,5,5\n2,5,5\n", r"line 3: the request is sent at 2 s, before the one above it at 3 s"),
        ("0,0,5\n", "line 2: the request has a prompt of 0 tokens"), ("0,5,0\n", "an answer of 0 tokens"),
        ("0,5\n", "line 2: 2 cells, and the header has 3"), ("x,5,5\n", "line 2: arrival_s is 'x', not a number"),
        ("0,5.5,5\n", "line 2: prompt is '5.5', not a whole number"),
        ("nan,5,5\n", "sent at 'nan' s; the time must be a number"),
    ],
)  # fmt: skip
def test_a_trace_that_cannot_be_is_refused_with_its_line(tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + rows, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "line 1: not JSON"), ("[1]", "line 1: not an object"),
     ('{"timestamp": 1, "input_length": 1}\n{"timestamp": 2}', "line 2: fields are timestamp_ms, and were")],
)  # fmt: skip
def test_lines_that_are_no_requests_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_trace(path)


def test_what_is_cached_leaves_a_token_to_compute() -> None:
    requests = Requests(np.array([5]), np.array([1]), np.array([5]))
    with pytest.raises(UsageError, match="request 1 has 5 tokens of 5 in the cache"):
        Traffic(np.zeros(1), requests)


def test_requests_longer_than_the_model_are_refused() -> None:
    traffic = burst(3, LengthMix(Fixed(100), Fixed(29)))
    traffic.check_positions(129)
    traffic.check_positions(0)
    with pytest.raises(UsageError, match=r"request 1 has a prompt of 100 tokens and 29 more.* 128 positions"):
        traffic.check_positions(128)
