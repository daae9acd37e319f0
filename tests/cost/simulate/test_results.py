"""Latencies into statistics and into the file of a serving benchmark."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from slipstick.backends.machine.software.engine import Engine
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.simulate.result import spread, weighted_spread
from slipstick.cost.serving.simulate.run import Pool, simulate
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix, Lognormal
from slipstick.cost.serving.traffic.traffic import burst, closed, poisson
from slipstick.ir.errors import UsageError

SIZES = LengthMix(Lognormal(300, 1.0), Lognormal(40, 1.0))


def test_a_spread_with_counts_is_that_of_all_the_values() -> None:
    values, num = np.array([0.3, 0.1, 0.2]), np.array([5.0, 900.0, 95.0])
    counted, one_by_one = weighted_spread(values, num), np.repeat(values, num.astype(int))
    assert counted.mean == pytest.approx(one_by_one.mean())
    assert counted.std == pytest.approx(one_by_one.std())
    assert (counted.median, counted.p90, counted.p95, counted.p99) == (0.1, 0.1, 0.2, 0.2)
    assert counted.longest == 0.3


def test_a_spread_of_nothing_is_no_number() -> None:
    assert np.isnan(spread(np.zeros(0)).mean)
    assert weighted_spread(np.zeros(0), np.zeros(0)).as_bench("itl")["p99_itl_ms"] is None


def test_a_benchmark_file_has_the_names_of_vllm(made: Callable[..., StepTimes]) -> None:
    run = simulate(poisson(20.0, SIZES, num=100), Pool(made(), Engine()))
    found = json.loads(json.dumps(dict(run.to_bench_json(detailed=True, goodput=run.goodput(0.1, 0.01)))))
    # Field names of `vllm bench serve --save-result`.
    names = {"completed", "duration", "total_input_tokens", "total_output_tokens", "request_throughput",
             "request_goodput", "output_throughput", "total_token_throughput", "max_concurrency",
             "num_prompts"}  # fmt: skip
    names |= {f"{s}_{m}_ms" for s in ("mean", "median", "std", "p99") for m in ("ttft", "tpot", "itl", "e2el")}
    assert names <= set(found)
    assert found["completed"] == 100
    assert found["total_token_throughput"] * found["duration"] == pytest.approx(
        found["total_input_tokens"] + found["total_output_tokens"])  # fmt: skip
    assert found["mean_ttft_ms"] == pytest.approx(1e3 * np.mean(found["ttfts"]))
    assert found["p99_ttft_ms"] == pytest.approx(1e3 * np.percentile(found["ttfts"], 99))


def test_answers_of_one_token_have_no_time_per_token(made: Callable[..., StepTimes]) -> None:
    run = simulate(burst(3, LengthMix(Fixed(100), Fixed(1))), Pool(made(), Engine()))
    found = run.to_bench_json()
    assert found["mean_tpot_ms"] is None
    assert found["mean_itl_ms"] is None
    assert run.goodput(tpot_s=1e-9).share == 1.0


def test_goodput_counts_those_who_meet_every_limit(made: Callable[..., StepTimes]) -> None:
    run = simulate(poisson(60.0, SIZES, num=300), Pool(made(), Engine()))
    limit = run.ttft.median
    assert run.goodput(ttft_s=limit).share == pytest.approx(0.5)
    assert run.goodput(ttft_s=limit, tpot_s=run.tpot.median).share < 0.5
    everyone = run.goodput()
    assert (everyone.share, everyone.requests_per_s) == (1.0, run.requests_per_s)
    assert run.goodput(e2el_s=0.0).requests_per_s == 0.0


def test_the_middle_of_a_run_leaves_out_its_ends(made: Callable[..., StepTimes]) -> None:
    run = simulate(closed(16, LengthMix(Fixed(300), Lognormal(40, 0.5)), num=800), Pool(made(), Engine()))
    middle = run.middle(0.1)
    assert len(middle.served.output) == pytest.approx(640, abs=16)
    assert middle.duration_s < run.duration_s
    # Nothing fills up or runs dry in it: all clients are served all the time.
    assert middle.requests_per_s * middle.e2el.mean == pytest.approx(16, rel=0.01)
    with pytest.raises(UsageError, match="none are left"):
        run.middle(0.5)
