"""What every test runs under; imports nothing heavy, so that a light test stays light.

`--deep` tries as many examples as each law asks for, and every case; without it laws try half as many, and cases
marked `deep` are left out: others beside them go through the same code.
"""

import gc
import os
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slipstick.backends.machine.system import System
    from slipstick.frontend.huggingface.configs.models import Config
    from slipstick.frontend.loading import Report
    from slipstick.frontend.runs.options import TraceOptions
    from slipstick.ir.graph import Graph, Workload
    from slipstick.ir.types import DType
    from slipstick.tests.warm import Warm

# A test that would fetch from a hub must fail at once, on every machine alike.
os.environ["HF_HUB_OFFLINE"] = "1"
# Ray reads this when it is first imported, by whichever test: what it says of dead workers is no output of ours.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")

# The same examples on every machine, and no deadline: a busy machine is not a bug.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

# With torch, half a million objects are alive: looking for rings among them after every 700 new ones took a tenth.
gc.set_threshold(50_000, 20, 10)
# So few examples are no longer halved.
_FEW = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden graphs anew instead of comparing")
    parser.addoption("--deep", action="store_true", help="all examples of laws, and the cases marked deep")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes long first, so that no worker is left with it at the end; thin what is for `--deep`."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if config.getoption("--deep"):
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    config.hook.pytest_deselected(items=deep)
    items[:] = [item for item in items if not item.get_closest_marker("deep")]
    for law in {item.function for item in items if isinstance(item, pytest.Function)}:
        if asked := getattr(law, "_hypothesis_internal_use_settings", None):
            few = max(min(asked.max_examples, _FEW), asked.max_examples // 2)
            law._hypothesis_internal_use_settings = settings(asked, max_examples=few)


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later search for garbage."""
    gc.collect()
    gc.freeze()


# Where tests are about recording itself; all others may be given a graph that was recorded for another test.
_RECORDING = {"cli", "coverage", "frontend", "oracles"}


@pytest.fixture(scope="session", autouse=True)
def graph_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Path]":
    """The graph cache of this run, shared by its workers and by the commands that tests start.

    Graphs of the tables of measurements are there from the start, but with `--deep`, which records them anew.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "recorded"
    (folder / "graphs").mkdir(parents=True, exist_ok=True)
    if not request.config.getoption("--deep"):
        for graph in (Path(__file__).parent / "data" / "recorded" / "graphs").iterdir():
            with suppress(FileExistsError):  # another worker was first
                (folder / "graphs" / graph.name).symlink_to(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPSTICK_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def recorded_once(request: pytest.FixtureRequest, graph_folder: Path) -> "Iterator[None]":
    """Let `load` without a cache look into that of the run: a model is recorded once, not once a module of tests."""
    from slipstick.frontend import GraphCache, loading

    if _RECORDING & set(request.path.relative_to(Path(__file__).parent).parts):
        yield
        return
    recording, shared = loading.load_config, GraphCache(graph_folder)

    def load_config(
        config: "Config",
        kind: "Workload",
        element: "DType",
        cache: GraphCache | None,
        report: "Report | None",
        options: "TraceOptions",
    ) -> "Graph":
        return recording(config, kind, element, cache or shared, report, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load_config", load_config)
        yield


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Warm]":
    """Run commands and scripts in forks of one process that has imported everything, instead of a cold one each."""
    from slipstick.tests.warm import Warm

    # A socket's name holds at most 107 bytes, whatever the base of the run's folders is.
    with TemporaryDirectory() as folder:
        warm = Warm(Path(folder))
        process = warm.start()
        yield warm
        process.communicate()


@pytest.fixture(scope="session")
def traced() -> "Callable[[str], Graph]":
    """Read a traced graph of the golden ones by name, such as `tiny-llama.train`; needs no torch."""
    from slipstick.ir.text.files import load_graph

    folder = Path(__file__).parent / "golden"
    return cache(lambda name: load_graph(folder / f"{name}.graph"))


@pytest.fixture(scope="session")
def h100_text() -> str:
    """The file of a machine with nothing referred to: chip and network are written out in it."""
    folder = resources.files("slipstick.backends")
    system, chip, network = (
        (folder / kind / f"{name}.yaml").read_text(encoding="utf-8")
        for kind, name in (("systems", "dgx-h100"), ("chips", "h100-sxm-80gb"), ("networks", "ndr-infiniband"))
    )
    levels = network.partition("levels:\n")[2]
    system = system.replace("chip: h100-sxm-80gb\n", "chip:\n" + indent(chip, "  "))
    return system.replace("  - ndr-infiniband\n", levels)


@pytest.fixture(scope="session")
def made_up() -> "System":
    """A machine of round numbers, so that times can be had by hand; every efficiency is another one."""
    from slipstick.backends.kernels.constants import KernelConstants, RooflineConstants
    from slipstick.backends.machine.chip import Chip, Peaks
    from slipstick.backends.machine.software.stack import StackConstants
    from slipstick.backends.machine.system import System
    from slipstick.backends.network.topology.level import NetworkLevel

    peaks = Peaks(bf16=100e12, fp16=100e12, tf32=None, fp32=10e12, fp8=None, int8=None)
    chip = Chip("toy", peaks, 8e12, 1e9, 64 * 2**30, 1e12, 500.0, num_sms=100, l2_bytes=2**25)
    levels = (
        NetworkLevel("inner", 4, 100e9, 1e-6, "switch", 0.5),
        NetworkLevel("outer", None, 10e9, 4e-6, "switch", 0.8),
    )
    kernels = KernelConstants("toy", {"default": RooflineConstants(0.5, 0.8, 0.25)})
    return System("toy", chip, 4, levels, kernels, StackConstants("toy", 2e-6, 3e-6, 2**30), ())


@pytest.fixture(scope="session")
def roofline_only() -> "Callable[[System], System]":
    """Price everything by peaks, bandwidth and one launch: what laws of plain proportion hold for."""
    from dataclasses import replace

    from slipstick.backends.kernels.constants import KernelConstants
    from slipstick.backends.machine.system import System

    def plain(system: System) -> System:
        kept = KernelConstants("roofline", roofline=system.kernels.roofline)
        levels = tuple(replace(level, protocol="") for level in system.levels)
        return replace(system, kernels=kept, levels=levels, stack=replace(system.stack, issue_s=0.0))

    return plain
