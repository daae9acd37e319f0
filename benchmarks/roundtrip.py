"""A plan, and the same plan written for a framework and read back, estimated: `python -m benchmarks.roundtrip`.

Plans are drawn in the words of flags, with what the framework's stack decides left open two times in three, and priced
under that stack. What an exporter says that it cannot say is counted apart. All others are read again by the importer
and priced: step time and memory are the same to the last bit. Prints a table, and each disagreement by its kind.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from slipstick.app.export import exported, step_subject
from slipstick.app.plans.text import command_file_text, request_of
from slipstick.app.prepare import sized, system_of
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Lowered, estimate
from slipstick.explore.plans.lowerings import Lowerings
from slipstick.frameworks.imported import ImportedPlan
from slipstick.frameworks.launch import Launch, Word
from slipstick.frameworks.reading import read_launch
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, Plan
from slipstick.ir.plan.plan import differences

# The stack that an importer names, of each framework that plans are exported to; it may name none.
STACKS: Mapping[str, str | None] = {"megatron": "megatron-core", "torchtitan": "torchtitan", "deepspeed": None}
MODELS = ("llama-3.1-8b", "mixtral-8x7b")
SYSTEM = "dgx-h100"
METRICS = ("step_time_s", "peak_mem_bytes")


@dataclass(slots=True)
class Counts:
    """What became of plans: the same, not to be said by the framework, or why not the same."""

    same: int = 0
    unsaid: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    @property
    def num_wrong(self) -> int:
        """Plans that did not come back."""
        return sum(map(len, self.wrong.values()))


@dataclass(slots=True)
class Prices:
    """Estimates of plans; graphs are loaded and families lowered once."""

    _lowerings: dict[str, tuple[Graph, Lowerings]] = field(default_factory=dict)

    def of(self, text: str) -> tuple[Plan, System, tuple[float, ...]]:
        """Return the plan of a plan file, its machine, and what METRICS are."""
        request = request_of(text)
        system = system_of(request)
        graph, plan = sized(request, system.stack)
        metrics = estimate(graph, system, plan, lowered=self._lower(graph, plan.family)).metrics
        return plan, system, tuple(metrics[name] for name in METRICS)

    def _lower(self, graph: Graph, family: Family) -> Lowered:
        known = self._lowerings.setdefault(graph.name, (graph, Lowerings(graph)))
        return known[1].of(family)


def drawn(rng: Random, framework: str, models: Sequence[str] = MODELS) -> list[str]:
    """Draw the command line of an estimate of a plan that a framework may run."""
    megatron, titan, pick = framework == "megatron", framework == "torchtitan", rng.choice
    model = pick(models)
    experts = model == MODELS[1] and megatron
    tp, dp = pick([1, 2, 4]), pick([1, 2, 4])
    pp = pick([1, 1, 2, 4]) if megatron or titan else 1
    cp = pick([1, 1, 2]) if megatron else 1
    mbs = pick([1, 2])
    # On one replica there is nothing to shard.
    zero = {"megatron": [0, 1, 1, 2, 3], "torchtitan": [0, 3, 3, 3], "deepspeed": [0, 1, 2, 3]}[framework]
    policies = {"megatron": ["none", "selective", "full"], "torchtitan": ["none", "ops", "full"], "deepspeed": ["none"]}
    words: dict[str, object] = {
        "gpus": tp * pp * cp * dp, "tp": tp, "pp": pp, "cp": cp, "mbs": mbs, "gbs": mbs * dp * pp * pick([1, 2, 4]),
        "seq": pick([2048, 8192]), "system": SYSTEM, "stack": STACKS[framework],
        "zero": pick(zero) if dp * cp > 1 else 0, "recompute": pick(policies[framework]),
        "grad-dtype": pick([None] * 5 + ["bf16"]), "reduce-dtype": pick([None] * 9 + ["fp32", "bf16"]),
        "sp": pick([None, None, False]) if framework != "deepspeed" else False,
    }  # fmt: skip
    if words["recompute"] != "none":
        words["early-stop"] = pick([None] * 6 + [True, False, False])
    if words["zero"] == 3 and titan:
        words["reshard"] = pick([None, None, "layer", "microbatch", "step"])
    if pp > 1:
        words |= {"vpp": pick([1, 1, 2]), "pp-layout": pick([None, None, "even", "balanced"])}
        words |= {"scatter-p2p": pick([None, None, True, False])} if megatron else {"schedule": pick([None, "gpipe"])}
    if cp > 1:
        words["cp-method"] = pick(["ring", "allgather", "ulysses"])
    if experts:
        words["ep"] = pick([1, 2, dp])
    if megatron:
        words |= {
            "precision": pick(["none", "none", "fp8", "fp8-block", "mxfp8"]),
            "async-tp": pick([None, None, True]),
        }
    words["offload"] = pick([None] * 9 + ["optimizer"])
    return [model, "-q", *(word for name, value in words.items() for word in _flag(name, value))]


def _flag(name: str, value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", str(value)]


def tried(framework: str, num: int, seed: int = 0, *, prices: Prices, models: Sequence[str] = MODELS) -> Counts:
    """Send so many legal plans to a framework and back."""
    rng, found = Random(seed), Counts()
    while found.same + found.unsaid.total() + found.num_wrong < num:
        args = drawn(rng, framework, models)
        text = command_file_text(args)
        try:
            plan, system, first = prices.of(text)
            subject = step_subject(request_of(text))
            export = exported(framework, subject)
        except SlipstickError:
            # Degrees that do not go together.
            continue
        if export.lost:
            found.unsaid[export.lost[0].partition(":")[0]] += 1
            continue
        kind = _kind(framework, export.text, subject.model, plan, (system, first), prices)
        if kind is None:
            found.same += 1
        else:
            found.wrong.setdefault(kind, []).append(" ".join(args))
    return found


def _kind(
    framework: str, text: str, model: str, plan: Plan, meant: tuple[System, tuple[float, ...]], prices: Prices
) -> str | None:
    """Return how a plan that is read back differs; None where its answer is the same."""
    system, first = meant
    try:
        launch: Launch = read_launch(text, framework=framework, num_gpus=plan.num_gpus)
        around: dict[str, Word] = {"model": model, "system": SYSTEM, "seq": plan.seq_len}
        again, there, second = prices.of(ImportedPlan(launch, {**launch.words, **around}).text)
    except SlipstickError as error:
        return f"refused: {error}"
    if first == second:
        return None
    off = ", ".join(f"{name} x{b / a:.4f}" for name, a, b in zip(METRICS, first, second, strict=True) if a != b)
    stack = "" if there.stack == system.stack else f" {', '.join(there.changed) or there.stack.name}"
    return f"{'; '.join(differences(again, plan)) or 'same plan'}{stack} ({off})"


def main() -> int:
    """Print what became of the plans of each framework; 1 where some did not come back."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--total", type=int, default=200, help="plans a framework")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    prices, num_wrong = Prices(), 0
    for framework in STACKS:
        found = tried(framework, given.total, given.seed, prices=prices)
        print(f"{framework}: {found.same} the same, {found.num_wrong} not, {found.unsaid.total()} not to be said")
        for kind, lines in sorted(found.wrong.items(), key=lambda one: -len(one[1])):
            print(f"  {len(lines)} x {kind}\n      {lines[0]}")
        print("  not to be said: " + ", ".join(f"{n} x {word}" for word, n in found.unsaid.most_common()))
        num_wrong += found.num_wrong
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
