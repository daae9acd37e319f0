"""Laws of simulated servers on random traffic and pools: `python -m benchmarks.serving_laws [--count N]`.

Each draw has a model's step times, traffic (a Poisson process, a day, clients who wait), lengths and a pool; each law
is tried on it where it applies. The closed form is compared with spread-out clients, which it describes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import numpy as np

import slipstick
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.batching.continuous import steady
from slipstick.cost.serving.batching.steps import way_in_s
from slipstick.cost.serving.capacity import max_batch
from slipstick.cost.serving.simulate.autoscale import Autoscaling
from slipstick.cost.serving.simulate.failures import ReplicaFailures
from slipstick.cost.serving.simulate.result import SimulatedServing
from slipstick.cost.serving.simulate.run import Pool, Transfer, simulate, simulate_apart
from slipstick.cost.serving.traffic.prefixes import Tier, reused
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix, Lognormal
from slipstick.cost.serving.traffic.traffic import Traffic, closed, poisson
from slipstick.cost.serving.traffic.varying import diurnal_traffic
from slipstick.driver.serve.server import Server

from .markdown import table

SERVERS = (("llama-3.1-8b", "dgx-h100", 1), ("llama-3.1-8b", "dgx-a100-80gb", 1), ("llama-3.1-70b", "dgx-h200", 4),
           ("mixtral-8x7b", "dgx-h100", 2))  # fmt: skip
SEED, COUNT = 28, 200


@dataclass(frozen=True, slots=True)
class Found:
    """A law tried once: whether it held, and by how much a figure is off where it is one of two figures."""

    law: str
    held: bool
    off: float = 0.0


@cache
def server_of(model: str, system: str, tp: int) -> Server:
    """Return a server of one replica."""
    return slipstick.serve(model, system, tp=tp, gpus=tp, isl="1000", osl="200", concurrency="1").answer.server


def traffic_of(random: Random, rate: float) -> Traffic:
    """Draw some requests, about as many as a replica or two answer."""
    sizes = LengthMix(Lognormal(random.uniform(50, 2000), 0.8), Lognormal(random.uniform(5, 150), 0.8))
    seed, kind = random.randrange(10**6), random.choice(("poisson", "day", "closed"))
    if kind == "closed":
        return closed(random.randint(1, 48), sizes, 240, seed, ramp_s=random.choice((0.0, 2.0)))
    if kind == "day":
        return diurnal_traffic(2 * rate, 0.2 * rate, 60.0, 240.0 / rate, sizes, seed)
    return poisson(rate, sizes, 240, seed)


def conserved(run: SimulatedServing, traffic: Traffic) -> bool:
    """Whether each request was answered once, in order of its moments, and every token was waited for once."""
    served = run.served
    in_order = (served.arrived_s < served.start_s) & (served.start_s < served.first_s)
    ends = in_order & (served.first_s <= served.finish_s)
    waited, lived = float(run.gap_s @ run.gaps), float((served.finish_s - served.first_s).sum())
    tokens = run.gaps.sum() == (traffic.requests.output - 1).sum()
    return bool(ends.all() and tokens and abs(waited - lived) <= 1e-9 * max(lived, 1.0))


def trials(random: Random) -> Iterator[Found]:
    """Yield what came of each law on one draw."""
    server = server_of(*random.choice(SERVERS))
    num, traffic = random.randint(1, 4), traffic_of(random, random.choice((2.0, 8.0, 24.0)))
    tight = random.random() < 0.3
    times = replace(server.times, free_bytes=server.times.free_bytes * (0.25 if tight else 1.0))
    pool = Pool(times, load_engine("vllm").at_random, num)
    fixed = simulate(traffic, pool)
    yield Found("requests and tokens are conserved: a fixed fleet", conserved(fixed, traffic))
    failing = replace(pool, failures=ReplicaFailures(random.choice((5.0, 30.0)), random.choice((0.0, 5.0)), 1))
    yield Found("requests and tokens are conserved: replicas that fail", conserved(simulate(traffic, failing), traffic))
    rule = Autoscaling(least=random.randint(0, num), most=num, target=random.choice((2.0, 8.0)), interval_s=1.0,
                       of=random.choice(("concurrency", "rps")), up_s=random.choice((0.0, 3.0)),
                       down_s=random.choice((0.0, 3.0)), startup_s=random.choice((0.0, 1.0, 10.0)))  # fmt: skip
    scaled = replace(pool, autoscaling=rule)
    run = simulate(traffic, scaled)
    yield Found("requests and tokens are conserved: replicas that come and go", conserved(run, traffic))
    yield Found("replicas are within their bounds", all(rule.least <= n <= num for n in run.scaled[0].held))
    for what, part in (("", pool), (" that come and go", scaled)):
        apart = simulate_apart(traffic, part, part, Transfer(50e9))
        yield Found(f"requests and tokens are conserved: pools{what}", conserved(apart, traffic))
    same = simulate(traffic, replace(pool, autoscaling=replace(rule, least=num)))
    equal = all(np.array_equal(getattr(same.served, n), getattr(fixed.served, n)) for n in ("first_s", "finish_s"))
    yield Found("as many at least as at most is a fixed fleet, bit for bit", equal and same.fullness == fixed.fullness)
    yield from tiers(random)
    yield from closed_form(random, server)


def tiers(random: Random) -> Iterator[Found]:
    """Yield laws of tiers: more capacity finds no less, a faster tier loads no slower."""
    rows = np.random.default_rng(random.randrange(10**6))
    # Sessions that grow: each turn has the blocks of those before it.
    turns, blocks = [0] * 20, list[tuple[int, ...]]()
    for at in rows.integers(0, 20, 200):
        turns[at] += int(rows.integers(1, 5))
        blocks.append(tuple(1000 * int(at) + k for k in range(turns[at])))
    prompts = np.array([512 * len(one) + 1 for one in blocks])
    sizes = replace(poisson(1.0, LengthMix(Fixed(1), Fixed(2)), len(blocks)).requests, prompt=prompts)
    traffic = Traffic(np.arange(len(blocks), dtype=np.float64), sizes, blocks=blocks)
    small, large = sorted(random.randint(1, 800) * 512.0 for _ in range(2))
    first, second = (reused(traffic, [Tier("host", one)]).cached for one in (small, large))
    yield Found("more capacity finds no less, of each request", bool((second >= first).all()))
    both = reused(traffic, [Tier("host", small), Tier("ssd", large)]).cached
    yield Found("a tier behind another loses no hit", bool((both >= first).all()))
    slow, fast = sorted((random.uniform(1e-7, 1e-4) for _ in range(2)), reverse=True)
    loads = [reused(traffic, [Tier("host", large, one)]).fetch_s for one in (slow, fast)]
    yield Found("a faster tier loads no slower", bool((loads[1] <= loads[0]).all()))


def closed_form(random: Random, server: Server) -> Iterator[Found]:
    """Yield how far the closed form of spread-out clients is from their simulation."""
    lengths = Lengths(float(random.choice((200, 1000))), float(random.choice((50, 200))))
    clients = random.randint(1, int(min(64, float(max_batch(server.times, server.engine.scheduler, lengths)))))
    engine = server.engine.at_random
    form = steady(server.times, engine, float(clients), lengths)
    sizes = LengthMix(Fixed(int(lengths.prompt)), Fixed(int(lengths.output)))
    life_s = float(form.e2el_s) + float(way_in_s(engine.overheads, lengths))
    traffic = closed(clients, sizes, 30 * clients, ramp_s=life_s)
    run = simulate(traffic, Pool(server.times, engine)).middle(0.2)
    for name, found, of in (
        ("TPOT", run.tpot.mean, form.tpot_s),
        ("requests/s", run.requests_per_s, form.requests_per_s),
    ):
        off = found / float(of) - 1.0
        yield Found(f"the closed form's {name} is within 5 % of the simulation", abs(off) < 0.05, off)


def main() -> None:
    """Try all laws on so many draws and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    random, found = Random(given.seed), defaultdict[str, list[Found]](list)
    for _ in range(given.count):
        for one in trials(random):
            found[one.law].append(one)
    rows = []
    for law, tried in found.items():
        off = np.abs([one.off for one in tried])
        figures = f"median {np.median(off):.1%}, most {off.max():.1%}" if off.any() else "-"
        rows.append([law, str(len(tried)), str(sum(not one.held for one in tried)), figures])
    print(table(["law", "draws", "violations", "off by"], rows))


if __name__ == "__main__":
    main()
