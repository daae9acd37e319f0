"""Percentiles in closed form beside simulated requests on random fleets: `python -m benchmarks.percentiles`.

Every fleet has a model, a system, an engine, requests and a load drawn at random; its requests come at random. With
`--write` the table goes into docs/serving_percentiles.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.batching.continuous import most_throughput
from slipstick.cost.serving.slo import SLO
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.driver.estimate import lower
from slipstick.driver.serve.pools import Pools, link_of, most_of
from slipstick.driver.serve.server import Server, replicated
from slipstick.driver.serve.sizes.confirm import seen_by
from slipstick.driver.serve.sizes.shapes import ReplicaShape
from slipstick.driver.serve.sizes.sizing import Question, SizedPlan
from slipstick.driver.serve.tables import ServedModel
from slipstick.frontend import GraphCache, load
from slipstick.ir.errors import InfeasibleError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

from .markdown import table

MODELS = (("llama-3.1-8b", 1), ("llama-3.1-8b", 2), ("llama-3.1-70b", 4), ("llama-3.1-70b", 8))
SYSTEMS = ("dgx-a100-80gb", "dgx-h100", "dgx-h200", "dgx-b200")
ENGINES = ("vllm", "sglang", "tensorrt-llm", "vllm-0.6")
KINDS = ("one replica", "several replicas", "prompts apart")
# Percentiles of both latencies that are asked of each fleet.
SHARES = (0.5, 0.95, 0.99)
PAGE = Path(__file__).parents[1] / "docs" / "serving_percentiles.md"
_MARK = "<!-- Written by `python -m benchmarks.percentiles --write`. -->"


@dataclass(frozen=True, slots=True)
class Held:
    """A fleet: closed form over simulation of TTFT and TPOT, by percentile."""

    kind: str
    engine: str
    load: float
    ttft: tuple[float, ...]
    tpot: tuple[float, ...]


@cache
def served(model: str) -> ServedModel:
    """Return a model of the catalogue, lowered for both phases."""
    graphs = (load(model, phase, cache=GraphCache.default()) for phase in (Workload.PREFILL, Workload.DECODE))
    return ServedModel(*(lower(graph, Family(workload=graph.workload)) for graph in graphs))


def fleets(count: int, seed: int = 0) -> Iterator[Held]:
    """Yield so many fleets; what no closed form answers is drawn anew."""
    random = np.random.default_rng(seed)
    num = 0
    while num < count:
        try:
            held = _held(random, KINDS[num % len(KINDS)])
        except InfeasibleError:
            continue
        num += 1
        yield held


def _held(random: np.random.Generator, kind: str) -> Held:
    model, tp = MODELS[random.integers(len(MODELS))]
    system, name = load_system(SYSTEMS[random.integers(len(SYSTEMS))]), ENGINES[random.integers(len(ENGINES))]
    prompt, output = (int(np.exp(random.uniform(*np.log(ends)))) for ends in ((128, 8192), (32, 1024)))
    lengths = Lengths(float(prompt), float(output))
    busy = float(random.uniform(0.2, 0.9))
    plan = make_plan(num_gpus=tp, tp=tp, seq_len=prompt + output, family=Family(workload=Workload.DECODE))
    server = Server.of(served(model), system, plan, load_engine(name, system.chip.name), prompt + output)
    copies = int(random.integers(2, 9)) if kind == "several replicas" else 1
    shape = ReplicaShape(tp)
    if kind == "prompts apart":
        workers = (replicated(server, int(random.integers(1, 5))), replicated(server, int(random.integers(1, 5))))
        gpus = sum(one.plan.num_gpus for one in workers)
        pools = Pools(*workers, link_of(system, gpus), 1)
        choice = SizedPlan((shape, shape), most_of(pools, lengths), pools.decode, pools)
    else:
        most = float(most_throughput(server.times, server.engine, lengths).requests_per_s)
        choice = SizedPlan((shape,), most * copies, replicated(server, copies))
    ratios = [_ratios(choice, lengths, server, busy, share) for share in SHARES]
    return Held(kind, name, busy, tuple(r[0] for r in ratios), tuple(r[1] for r in ratios))


def _ratios(choice: SizedPlan, lengths: Lengths, server: Server, busy: float, share: float) -> tuple[float, float]:
    question = Question(choice.most_per_s * busy, SLO(1.0, 1.0, share, share), lengths, server.engine)
    seen = seen_by(question, replace(choice))
    return seen.predicted_ttft_s / seen.ttft_s, seen.predicted_tpot_s / seen.tpot_s


def rows(found: Sequence[Held]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of fleet, for each engine and for loads: median and p90 error, and mean error."""
    groups = [("all", found)]
    groups += [(kind, [one for one in found if one.kind == kind]) for kind in KINDS]
    groups += [(name, [one for one in found if one.engine == name]) for name in ENGINES]
    groups += [("load below 0.5", [one for one in found if one.load < 0.5])]
    groups += [("load 0.5 to 0.75", [one for one in found if 0.5 <= one.load < 0.75])]
    groups += [("load above 0.75", [one for one in found if one.load >= 0.75])]
    for name, group in groups:
        if group:
            yield (name, f"{len(group)}", *_errors(group))


def _errors(group: Iterable[Held]) -> Iterator[str]:
    ratios = np.array([[*one.ttft, *one.tpot] for one in group])
    for column in ratios.T:
        off = np.abs(column - 1.0)
        # A closed form may say that a queue has no end where the simulated one has.
        mean = f"{np.mean(column) - 1.0:+.1%}" if np.isfinite(column).all() else "some without end"
        yield f"{np.median(off):.1%}, {np.quantile(off, 0.9, method='nearest'):.0%} ({mean})"


def heading() -> tuple[str, ...]:
    """Return the names of the columns."""
    return ("fleets", "number", *(f"{what} p{share * 100:g}" for what in ("TTFT", "TPOT") for share in SHARES))


def main() -> None:
    """Print the table, or write it into its page."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=200)
    asked.add_argument("--write", action="store_true")
    given = asked.parse_args()
    text = table(heading(), rows(list(fleets(given.count))))
    if not given.write:
        print(text)
        return
    before = PAGE.read_text().partition(_MARK)[0]
    PAGE.write_text(f"{before}{_MARK}\n\n{text}\n")


if __name__ == "__main__":
    main()
