"""Memory policies that are found beside those that frameworks have, on random plans: `python -m benchmarks.policies`.

Every problem has a model, degrees and a batch drawn at random, and a memory limit between what full recomputation and
what no recomputation needs. A line a problem goes to `--output`;
the summary says how many are worse than a known policy that fits (none may be), how much time is gained over the best
of these, and the CPU seconds that the search took.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

from slipstick.backends.machine.load import load_system
from slipstick.explore.recompute.pricing import Pricer
from slipstick.explore.recompute.search import find_policy
from slipstick.explore.recompute.spaces import PolicySpace
from slipstick.frontend import GraphCache, load
from slipstick.ir.errors import InfeasibleError, PlanError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.structure import Defaults

from .markdown import table

MODELS = ("llama-3.1-8b", "llama-2-13b", "qwen3-8b", "qwen3-32b", "gpt2-xl", "megatron-22b", "llama-3.1-70b",
          "mixtral-8x7b", "gpt-oss-20b", "qwen3-30b-a3b")  # fmt: skip
SYSTEMS = ("dgx-h100", "dgx-h200", "dgx-b200", "dgx-a100-80gb")
SEED, COUNT = 28, 200


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem and its answer: times of the policy found and of the best known one that fits, None where none does."""

    model: str
    system: str
    plan: str
    limit_gib: float
    to_host: bool
    found_s: float
    known_s: float | None
    cpu_s: float

    @property
    def gain(self) -> float:
        """Time saved over the best known policy, as a part of that; 1 where none of them fits."""
        return 1.0 if self.known_s is None else 1 - self.found_s / self.known_s


@cache
def graph_of(name: str) -> Graph:
    """Return a model of the catalogue."""
    return load(name, cache=GraphCache.default())


def trials(seed: int, count: int) -> Iterator[Trial]:
    """Draw problems until so many have an answer; a limit that no policy meets is drawn again."""
    dice = Random(seed)
    while count:
        model, system = dice.choice(MODELS), load_system(dice.choice(SYSTEMS))
        tp, pp = dice.choice((1, 2, 4, 8)), dice.choice((1, 1, 2, 4))
        seq, mbs = dice.choice((1024, 2048, 4096, 8192)), dice.choice((1, 1, 2, 4))
        share, to_host = dice.uniform(0.02, 0.98), dice.random() < 0.3
        family = Defaults(system.stack, Family(zero=dice.choice((0, 1, 3)) if pp == 1 else 1))
        try:
            num_gpus = max(8, tp * pp)
            plan = make_plan(num_gpus=num_gpus, tp=tp, pp=pp, seq_len=min(seq, graph_of(model).max_positions or seq),
                             micro_batch=mbs, global_batch=16 * num_gpus * mbs, family=family)  # fmt: skip
            pricer = Pricer(graph_of(model), system, plan)
            least, most = pricer.price("full", {"recompute": "full"}), pricer.price("none", {})
            if least is None or most is None:
                continue
            limit = least.peak_mem_bytes + share * (most.peak_mem_bytes - least.peak_mem_bytes)
            began = time.process_time()
            answer = find_policy(graph_of(model), system, plan, limit, PolicySpace(to_host=to_host))
        except (InfeasibleError, PlanError):
            continue
        cpu_s = time.process_time() - began
        assert answer.best.peak_mem_bytes <= limit
        known = answer.best_known
        yield Trial(model, system.name, _told(plan), limit / 2**30, to_host, answer.best.step_time_s,
                    None if known is None else known.step_time_s, cpu_s)  # fmt: skip
        count -= 1


def _told(plan: Plan) -> str:
    return f"{plan.degrees} mbs {plan.micro_batch} seq {plan.seq_len} zero {plan.family.zero}"


def summary(found: list[Trial]) -> str:
    """Return what the trials show as a table."""
    gains = np.array([one.gain for one in found if one.known_s is not None])
    seconds = np.array([one.cpu_s for one in found])
    rows = [
        ("random problems", f"{len(found)}"),
        ("worse than a framework policy", f"{int((gains < -1e-9).sum())}"),
        (
            "as good as the best framework policy, better",
            f"{int((abs(gains) <= 1e-9).sum())}, {int((gains > 1e-9).sum())}",
        ),
        ("no framework policy fits", f"{sum(one.known_s is None for one in found)}"),
        ("time gained, median, p90, most", ", ".join(f"{100 * x:.1f} %" for x in np.quantile(gains, (0.5, 0.9, 1)))),
        ("CPU seconds, median, p90, most", ", ".join(f"{x:.1f}" for x in np.quantile(seconds, (0.5, 0.9, 1)))),
    ]
    return table(("", "measured"), rows)


def main() -> None:
    """Run the problems and print what they show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--output", type=Path, help="a line of JSON a problem")
    given = parser.parse_args()
    found: list[Trial] = []
    for one in trials(given.seed, given.count):
        found.append(one)
        if given.output:
            with given.output.open("a", encoding="utf-8") as out:
                out.write(f"{json.dumps(asdict(one))}\n")
    print(summary(found))


if __name__ == "__main__":
    main()
