"""The graphs of the catalogue that are part of the package: recorded anew, compared with what is there, or written.

`python -m benchmarks.graphs` compares all of them, `--write` writes those that differ and removes what nothing reads,
NAME... does some models. `--tables` records the graphs that tests need of the tables of measurements.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import TemporaryDirectory

from slipstick.frontend import load_config
from slipstick.frontend.cache import SHIPPED, shipped_graph, shipped_path
from slipstick.frontend.huggingface.configs.models import Config, names, read_config
from slipstick.frontend.loading import unquantised
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.text.files import save_graph
from slipstick.ir.types import DType

# Training also as the model's own code spells norms and the like out, which some stacks run.
VARIANTS = ((Workload.TRAIN, False), (Workload.TRAIN, True), (Workload.PREFILL, False), (Workload.DECODE, False))

TESTS = Path(__file__).resolve().parents[1] / "tests"
# A graph cache that tests start with.
RECORDED = TESTS / "data" / "recorded"


@dataclass(frozen=True)
class Shipped:
    """One graph of the package."""

    config: Config
    workload: Workload
    spelled_out: bool

    @property
    def path(self) -> Path:
        """Where the package has it."""
        variant = ("spelled-out",) if self.spelled_out else ()
        return shipped_path(self.config.name, self.config.text, self.workload, DType.BF16, *variant)

    def recorded(self) -> Graph:
        """Record it anew, without what is said of published weights, which loading adds."""
        return load_config(self.config, self.workload, options=TraceOptions(spelled_out=self.spelled_out))


def shipped(models: Sequence[str] = ()) -> Iterator[Shipped]:
    """Yield the graphs of some models, of all where none are named."""
    for name in models or names():
        config = unquantised(read_config(name))
        yield from (Shipped(config, *variant) for variant in VARIANTS)


def of_tables() -> int:
    """Judge every table with an empty cache, and keep the graphs that were recorded for it; return the exit code."""
    tables = [str(table) for table in (TESTS / "validation").glob("*.csv")]
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "slipstick", "validate", *tables, "--quiet"]
        environment = {**os.environ, "SLIPSTICK_CACHE": folder}
        done = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False)
        if not done.returncode:
            rmtree(RECORDED / "graphs")
            copytree(Path(folder) / "graphs", RECORDED / "graphs")
    return done.returncode


def main(args: Sequence[str] | None = None) -> int:
    """Compare or write; the exit code is 1 where something differs."""
    parser = argparse.ArgumentParser(description="Record the graphs of the package anew.")
    parser.add_argument("models", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="write what differs")
    parser.add_argument("--tables", action="store_true", help="write the graphs of the tables of measurements")
    given = parser.parse_args(args)
    if given.tables:
        return of_tables()
    differ = 0
    for one in shipped(given.models):
        graph = one.recorded()
        if shipped_graph(one.path) == graph:
            continue
        differ += 1
        print(f"{one.path.name}: {'written' if given.write else 'differs'}", flush=True)
        if given.write:
            save_graph(replace(graph, name=one.config.name), one.path)
    if given.write:
        for path in set(SHIPPED.glob("*.graph.gz")) - {one.path for one in shipped()}:
            path.unlink()
    return int(differ > 0 and not given.write)


if __name__ == "__main__":
    sys.exit(main())
