"""The benchmarks: what is measured, how often, and what was asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType

from .children import cpu_s, measured, said, slipstick, written
from .rows import Row, Target, row

MODEL = "llama-3.1-405b"
MODELS = (MODEL, "deepseek-v3")
SERVED = "llama-3.1-70b"
_PLAN = ("--system", "dgx-h100", "--gpus", "512", "--tp", "8", "--seq", "8192", "--gbs", "512", "--allow-infeasible")
_ESTIMATE = ("estimate", MODEL, *_PLAN, "--quiet")
_TORCH = "import sys; from slipstick.cli import run; run(sys.argv[1:]); print(int('torch' in sys.modules))"
_DEPLOYED = ("--system", "dgx-h100", "--phase", "decode", "--tp", "8", "--seq", "8192", "--no-cache", "--quiet")
_MEMORY = (
    "import resource, sys; from slipstick.cli import run; run(sys.argv[1:]); "
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)
_WHOLE = (
    "--system", "dgx-h100", "--stack", "megatron-core", "--gpus", "16384", "--seq", "8192", "--gbs", "2048",
    "--objective", "step_time_s,peak_mem_bytes",
)  # fmt: skip
# A plan that fits: what people ask most often.
_FITTING = (
    "estimate", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "8", "--tp", "2", "--zero", "1",
    "--recompute", "selective", "--seq", "8192", "--gbs", "64", "--stack", "megatron-core", "--quiet",
)  # fmt: skip
_SERVERS = (
    "search", "qwen3-32b", "--phase", "serve", "--system", "dgx-h200", "--gpus", "32", "--isl", "4000", "--osl", "500",
    "--ttft", "1000ms", "--tpot", "20ms", "--no-ledger", "--no-why", "--quiet",
)  # fmt: skip
_ONE_CORE = ("taskset", "-c", "0")
TABLES = (1, 1_000, 100_000, 1_000_000)
DISTINCT = (20_000, 100_000)
# Schedule, chunks a stage, plans, and plans a second asked for.
PIPELINES = (
    ("gpipe", 1, 1_000_000, 1_000_000),
    ("1f1b", 1, 1_000_000, 1_000_000),
    ("1f1b", 3, 1_000_000, 1_000_000),
    ("zb-h1", 1, 20_000, 20_000),
    ("zb-h2", 1, 20_000, 20_000),
    ("zb-v", 2, 20_000, 20_000),
    ("dualpipe", 1, 20_000, 20_000),
)
FAST = 5  # how many times more often what takes milliseconds is repeated

Case = Callable[[int], Iterator[Row]]


def trace(repeat: int) -> Iterator[Row]:
    """First recording of a training step in a fresh process, imports not counted, and the memory that it takes."""
    for model, most_s in zip(MODELS, (2.0, 3.0), strict=True):
        samples = [measured("trace", model) for _ in range(repeat)]
        what = f"trace {model}, forward and backward, folded"
        yield row(what, [s["trace_s"][0] for s in samples], "s", Target(most_s))
        yield row(f"{what}: peak memory", [s["peak_rss_mib"][0] for s in samples], "MiB", Target(600.0))


def cold(repeat: int) -> Iterator[Row]:
    """A whole process that records the model."""
    samples = [cpu_s(slipstick(*_ESTIMATE, "--no-cache")) for _ in range(repeat)]
    yield row(f"slipstick estimate {MODEL}, nothing cached", samples, "s", Target(5.0))


def cached(repeat: int) -> Iterator[Row]:
    """A whole process that finds the model recorded, and whether it loads torch."""
    with TemporaryDirectory() as folder:
        cache = Path(folder)
        cpu_s(slipstick(*_ESTIMATE), cache)
        samples = [cpu_s(slipstick(*_ESTIMATE), cache) for _ in range(repeat * FAST)]
        yield row(f"slipstick estimate {MODEL}, graph cached", samples, "s", Target(1.0))
        loaded = float(said([sys.executable, "-c", _TORCH, *_ESTIMATE], cache).split()[-1])
        yield row("torch loaded by an estimate of a cached graph", [loaded], "1", Target(0.0))
        cpu_s(slipstick(*_FITTING), cache)
        samples = [cpu_s(slipstick(*_FITTING), cache) for _ in range(repeat * FAST)]
        yield row("slipstick estimate llama-3.1-8b, a plan that fits, graph cached", samples, "s", Target(0.35))


def onnx(repeat: int) -> Iterator[Row]:
    """A whole process that reads a model of 405B parameters in ONNX, weights absent, and the memory that it takes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{MODEL}.onnx"
        written(path)
        args = ("estimate", str(path), *_DEPLOYED)
        samples = [cpu_s(slipstick(*args)) for _ in range(repeat)]
        yield row(f"slipstick estimate {path.name}, 126 layers, weights absent", samples, "s", Target(3.0))
        rss = [float(said([sys.executable, "-c", _MEMORY, *args]).split()[-1]) for _ in range(repeat)]
        mib = [n / (2**20 if sys.platform == "darwin" else 2**10) for n in rss]
        yield row(f"slipstick estimate {path.name}: peak memory", mib, "MiB", Target(500.0))


def help_(repeat: int) -> Iterator[Row]:
    """The shortest process there is."""
    samples = [cpu_s(slipstick("--help")) for _ in range(repeat * FAST)]
    yield row("slipstick --help", samples, "s", Target(0.1))


def plans(repeat: int) -> Iterator[Row]:
    """Tables of random legal training plans on one core."""
    for size in TABLES:
        asked = 50_000 if size <= 1_000 else 100_000
        target = Target(asked, at_most=False) if size > 1 else None
        times = repeat * (FAST if size <= 1_000 else 1)
        found = measured("evaluation", MODEL, str(size), "repeated", str(times))
        speeds = [size / t for t in found["evaluate_s"]]
        yield row(f"{MODEL} training plans a second, table of {size:,}", speeds, "1/s", target)
        yield row(f"peak memory of the process, table of {size:,}", found["peak_bytes"], "B")
    for size in DISTINCT:
        found = measured("evaluation", MODEL, str(size), "distinct", str(repeat))
        speeds = [size / t for t in found["evaluate_s"]]
        yield row(f"{MODEL} training plans a second, {size:,} of a length each", speeds, "1/s")
        yield row(f"peak memory of the process, {size:,} plans of a length each", found["peak_bytes"], "B")


def decoding(repeat: int) -> Iterator[Row]:
    """Decode steps at many degrees, batches and contexts, all distinct, on one core."""
    size = 100_000
    samples = measured("decoding", SERVED, str(size), str(repeat))["evaluate_s"]
    yield row(f"{size:,} decode steps of {SERVED}", samples, "s", Target(2.0))


def requests(repeat: int) -> Iterator[Row]:
    """Requests one by one through the scheduler of a server, on one core: half idle, nearly full, and too many."""
    size = 100_000
    for load, name in ((0.5, "half its greatest rate"), (0.95, "nearly its greatest rate"), (2.0, "twice its rate")):
        found = measured("requests", SERVED, str(load), str(size), str(repeat))
        yield row(f"{size:,} requests to {SERVED}, {name}", found["simulate_s"], "s", Target(20.0))
    yield row(f"peak memory of the process, {size:,} requests", found["peak_bytes"], "B")


def designs(repeat: int) -> Iterator[Row]:
    """One plan on a table of chip designs, all distinct, on one core."""
    size = 100_000
    found = measured("machines", MODEL, str(size), str(repeat))
    yield row(f"{size:,} chip designs with timing of {MODEL} training", found["evaluate_s"], "s", Target(20.0))
    yield row(f"peak memory of the process, {size:,} chip designs", found["peak_bytes"], "B")


def spaces(repeat: int) -> Iterator[Row]:
    """Spaces of chip designs: what they cost, and with the time of a model on them; on one core."""
    for what, args, asked in (("die, package and TCO", ("costs", "1000000"), 5.0),
                              (f"money, and time of {MODEL} training", ("pays", MODEL, "100000"), 20.0)):  # fmt: skip
        found = measured(*args, str(repeat))
        name = f"{found['num_designs'][0]:,.0f} chip designs explored: {what}"
        yield row(name, found["explore_s"], "s", Target(asked))
        yield row(f"peak memory of the process, {name}", found["peak_bytes"], "B")


def single(repeat: int) -> Iterator[Row]:
    """One estimate inside a running process, without pipeline stages and with four."""
    for stages in (1, 4):
        found = measured("single", MODEL, str(stages), str(repeat * FAST * 20))
        name = f"training estimate of {MODEL}, a cached graph, {stages} stage{'s' if stages > 1 else ''}"
        yield row(name, [t * 1e3 for t in found["estimate_s"]], "ms", Target(2.0))


def shapes(repeat: int) -> Iterator[Row]:
    """Models of other sizes than before in a process that has recorded one: what a table of many models takes each."""
    for kind in ("llama", "gpt2"):
        found = measured("shapes", kind, str(repeat * FAST))
        yield row(f"record and lower a {kind} of new sizes", found["shape_s"], "s", Target(0.5))


def doubling(repeat: int) -> Iterator[Row]:
    """What a table of 1,000 plans takes with twice as much of something, over what it takes without."""
    times = measured("doubling", MODEL, "1000", str(repeat * FAST * 20))
    base = median(times["base"])
    for name in ("layers", "micro-batches", "gpus"):
        ratio = median(times[name]) / base
        yield row(f"evaluation time, twice the {name}, over once", [ratio], "1", Target(1.1))


def serving(repeat: int) -> Iterator[Row]:
    """One answer of a server, and what it takes with twice as much of something, over what it takes without."""
    times = measured("serving", SERVED, str(repeat * FAST))
    base = median(times["base"])
    yield row(f"answer of a server of {SERVED}, graphs lowered", [t * 1e3 for t in times["base"]], "ms")
    for name in ("tokens", "layers", "gpus"):
        yield row(f"answer of a server, twice the {name}, over once", [median(times[name]) / base], "1", Target(1.1))


def lowering(repeat: int) -> Iterator[Row]:
    """One family: every pass, verification, tables."""
    for model, asked in zip(MODELS, (0.15, 0.5), strict=True):
        samples = measured("lowering", model, str(repeat * FAST))["lower_s"]
        yield row(f"lower {model}, one training family", samples, "s", Target(asked))
    shares = measured("verifying", MODELS[0], str(repeat * FAST))["percent"]
    yield row(f"verify the layouts of {MODELS[0]} after every pass, of lowering it", shares, "%", Target(5))


def screening(repeat: int) -> Iterator[Row]:
    """A table of plans over all axes through constraints and memory, on one core."""
    size = 1_000_000
    samples = measured("screening", "deepseek-v3", str(size), str(repeat))["screen_s"]
    yield row(f"constraints and memory of {size:,} deepseek-v3 plans", samples, "s", Target(5.0))


def searching(repeat: int) -> Iterator[Row]:
    """What a search does with a family of plans, and how many families it lowers, on one core."""
    for model in MODELS:
        found = measured("searched", model, str(repeat * FAST))
        num, feasible = found["num_plans"][0], found["num_feasible"][0]
        speeds = [feasible / t for t in found["search_s"]]
        target = Target(200_000, at_most=False) if model == MODEL else None
        yield row(f"{model}: feasible training plans a second inside a family", speeds, "1/s", target)
        speeds = [num / t for t in found["search_s"]]
        yield row(f"{model}: plans a second inside a family, screened and timed", speeds, "1/s")
        lowered = [measured("families", model) for _ in range(repeat)]
        speeds = [x["num_families"][0] / x["lower_s"][0] for x in lowered]
        yield row(f"{model}: families lowered a second, {lowered[0]['num_families'][0]:.0f} in turn", speeds, "1/s")


def whole_search(repeat: int) -> Iterator[Row]:
    """A whole search on one core: every plan of a large model on a large machine, and the memory that it takes."""
    asked = ("search", MODEL, *_WHOLE, "--no-ledger", "--quiet")
    samples = [cpu_s([*_ONE_CORE, *slipstick(*asked)]) for _ in range(min(repeat, 2))]
    found = json.loads(said(slipstick(*asked, "--format", "json", "--no-why")))
    what = f"slipstick search {MODEL}, 16,384 GPUs: {found['num_legal']:,} legal plans, {found['num_kept']:,} priced"
    yield row(what, samples, "s", Target(30.0))
    peak = [float(said([sys.executable, "-c", _MEMORY, *asked]).split()[-1]) / 1024]
    yield row(f"slipstick search {MODEL}, 16,384 GPUs: peak memory", peak, "MiB", Target(2048.0))


def servers(repeat: int) -> Iterator[Row]:
    """A whole search of servers and pools on one core, its graphs recorded before, and the memory that it takes."""
    with TemporaryDirectory() as folder:
        cache = Path(folder)
        found = json.loads(said(slipstick(*_SERVERS, "--format", "json"), cache))
        samples = [cpu_s([*_ONE_CORE, *slipstick(*_SERVERS)], cache) for _ in range(repeat)]
        what = f"slipstick search qwen3-32b, servers of 32 GPUs: {found['num_candidates']:,} candidates"
        yield row(what, samples, "s", Target(2.5))
        peak = float(said([sys.executable, "-c", _MEMORY, *_SERVERS], cache).split()[-1]) / 1024
        yield row("slipstick search qwen3-32b, servers of 32 GPUs: peak memory", [peak], "MiB")


def layouts(repeat: int) -> Iterator[Row]:
    """Tables of pipelines with a length each, whose layers divide into stages evenly and not, on one core."""
    for stages, size, how in ((9, 20_000, "even"), (16, 2_000, "balanced by their costs")):
        found = measured("layouts", MODEL, str(stages), str(size), str(repeat))
        speeds = [size / t for t in found["evaluate_s"]]
        name = f"{MODEL} pipelines a second, {stages} stages, {how}, {size:,} of a length each"
        yield row(name, speeds, "1/s", Target(100_000, at_most=False))


def driver(repeat: int) -> Iterator[Row]:
    """What the process that asks does a block, and how many workers that holds; made-up ones, blocks measured.

    Each worker has as many blocks as one of 1,000 has of a billion plans: what is dear is its first one. Memory is that
    of the driver and all made-up workers.
    """
    for how, workers in (("shards", 100), ("reduced", 1), ("reduced", 10), ("reduced", 100)):
        found = measured("driving", MODEL, str(workers), str(workers), str(61 * workers), how)
        plans = found["block_plans"][0]
        if workers == 100:
            what = f"a block of {plans:,.0f} plans, {how}"
            yield row(f"driver of a search, {what}", [s * 1e3 for s in found["driver_s"]], "ms")
            yield row(f"worker, {what}", [s * 1e3 for s in found["block_s"]], "ms")
            held = [block / own for block, own in zip(found["block_s"], found["driver_s"], strict=True)]
            yield row(f"workers that a driver holds, {how}", held, "1", Target(1_000, at_most=False))
        memory = f"peak memory of a search, {61 * workers * plans:,.0f} plans, {how}"
        yield row(memory, found["peak_bytes"], "B", Target(5e9))


def products(repeat: int) -> Iterator[Row]:
    """Matrix products, all distinct, through their kernel model on one core."""
    size = 1_000_000
    found = measured("products", str(size), str(repeat * FAST))
    speeds = [size / t for t in found["many_s"]]
    yield row(f"matrix products a second, {size:,} distinct", speeds, "1/s", Target(1_000_000, at_most=False))
    yield row("40 matrix products", [t * 1e6 for t in found["few_s"]], "us", Target(150.0))


def schedules(repeat: int) -> Iterator[Row]:
    """Pipelines: one step task by task, and tables of plans on one core."""
    found = measured("simulation", str(repeat * FAST))
    yield row("512 micro-batches, 64 stages, 3 chunks, task by task", found["simulate_s"], "s", Target(2.0))
    for schedule, chunks, size, asked in PIPELINES:
        times = measured("pipelines", schedule, str(chunks), str(size), str(repeat))["pipeline_s"]
        speeds = [size / t for t in times]
        yield row(
            f"{schedule} x{chunks} pipelines a second, {size:,} distinct", speeds, "1/s", Target(asked, at_most=False)
        )


def watching(repeat: int) -> Iterator[Row]:
    """What `slipstick.watch` takes of the steps behind the first: 1 % was asked for."""
    samples = [float(said([sys.executable, "-m", "benchmarks.watching", "40"])) for _ in range(repeat)]
    yield row("share of a training step that watching it takes, readings included", samples, "%", Target(1.0))


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "trace": trace,
        "cold": cold,
        "cached": cached,
        "onnx": onnx,
        "help": help_,
        "plans": plans,
        "decoding": decoding,
        "requests": requests,
        "designs": designs,
        "spaces": spaces,
        "single": single,
        "shapes": shapes,
        "doubling": doubling,
        "serving": serving,
        "lowering": lowering,
        "screening": screening,
        "searching": searching,
        "whole_search": whole_search,
        "servers": servers,
        "layouts": layouts,
        "driver": driver,
        "products": products,
        "schedules": schedules,
        "watching": watching,
    }
)
