"""Laws of money and energy of a step, and of a server under a load: what is priced one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from slipstick.backends.machine.software.engine import Engine
from slipstick.backends.machine.system import System
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.driver.estimate import Lowered, estimate, worth
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.server import Server
from slipstick.driver.serve.tables import ServedModel
from slipstick.ir.plan import Plan

from .laws import WAVES
from .machines import NARROWER, better_machines

# A law, and by which share it is broken; zero or less where it holds.
Single = tuple[str, float]
# What is no law, and why.
FIRST = "more speed never makes the first token, or those behind it, later"
CROWD = "twice the clients: no fewer answers a second"
SERVER = "more speed never slows a server"
NO_LAWS = {
    f"{SERVER}: {NARROWER}": WAVES,
    f"{SERVER}: chip.memory.hbm.capacity": "more memory lets more requests run at once; a step of more is longer",
    CROWD: "a larger batch may fall on tiles that fill a chip less well, and lengthen a step by more than it adds",
    FIRST: "clients whose answers end sooner ask again sooner: more prompts wait for one another or beside decodes",
}


def of_money(lowered: Lowered, system: System, plan: Plan) -> Iterator[Single]:
    """Yield laws of dollars and joules of a step, and of one with twice the micro-batches."""
    one, two = (_worth(lowered, system, p) for p in (plan, replace(plan, global_batch=2 * plan.global_batch)))
    for value in one.values():
        yield "every sum of money and energy is finite and not negative", 0.0 if 0.0 <= value < float("inf") else 1.0
    if "j_per_token_facility" in one:
        yield "a facility uses no less energy than its machines", one["j_per_token"] / one["j_per_token_facility"] - 1.0
    if "usd_per_step" in one:
        rate = one["usd_per_gpu_hour"] * plan.num_gpus * one["step_time_s"] / 3600.0
        yield "a step costs its GPU-hours at their rate", abs(one["usd_per_step"] / rate - 1.0)
        yield "twice the micro-batches: no cheaper step", one["usd_per_step"] / two["usd_per_step"] - 1.0
        yield "twice the micro-batches: no dearer token", two["usd_per_mtok"] / one["usd_per_mtok"] - 1.0
    if "j_per_token" in one:
        yield "twice the micro-batches: no more energy a token", two["j_per_token"] / one["j_per_token"] - 1.0


def _worth(lowered: Lowered, system: System, plan: Plan) -> dict[str, float]:
    found = worth(estimate(lowered.source, system, plan, lowered=lowered))
    sums = {} if found.money is None else {name: float(np.ravel(x)[0]) for name, x in found.money.metrics.items()}
    return {**found.metrics, **sums}


@dataclass(frozen=True, slots=True)
class Serving:
    """A server: both phases of a model, a machine, a plan and an engine."""

    served: ServedModel
    system: System
    plan: Plan
    engine: Engine

    def on(self, system: System) -> Server:
        """Set it up on a machine."""
        return Server.of(self.served, system, self.plan, self.engine, 8192)


def of_serving(case: Serving, draw: random.Random) -> Iterator[Single]:
    """Yield laws of a server under a load of concurrent requests: faster machines, more clients, longer answers."""
    server = case.on(case.system)
    lengths = Lengths(float(draw.choice([128, 512, 1024, 4096])), float(draw.choice([16, 128, 512])))
    clients = float(draw.choice([1, 4, 16, 64]))
    one = serve(server, lengths, Load(concurrency=clients)).metrics
    for value in one.values():
        yield "every metric of a server is finite and not negative", 0.0 if 0.0 <= value < float("inf") else 1.0
    for better in better_machines(case.system, draw.choice([1.1, 2.0, 8.0])):
        two = serve(case.on(better.system), lengths, Load(concurrency=clients)).metrics
        law = f"{SERVER}: {better.resource}"
        yield law, two["e2el_s"] / one["e2el_s"] - 1.0
        yield law, one["requests_per_s"] / two["requests_per_s"] - 1.0
        yield FIRST, max(two[name] / one[name] - 1.0 for name in ("tpot_s", "ttft_s"))
    more = serve(server, lengths, Load(concurrency=2 * clients)).metrics
    yield CROWD, one["requests_per_s"] / more["requests_per_s"] - 1.0
    yield "twice the clients: no shorter answer", one["e2el_s"] / more["e2el_s"] - 1.0
    longer = serve(server, Lengths(lengths.prompt, 2.0 * lengths.output), Load(concurrency=clients)).metrics
    yield "twice the tokens of an answer: it takes longer", one["e2el_s"] / longer["e2el_s"] - 1.0
    read = serve(server, Lengths(2.0 * lengths.prompt, lengths.output), Load(concurrency=clients)).metrics
    yield "twice the tokens of a prompt: its answer takes longer", one["e2el_s"] / read["e2el_s"] - 1.0
