"""`python -m benchmarks.layouts`: the laws of layouts over every causal language model and eight kinds of plan.

Graphs of training steps are traced once and kept, so that a second run takes minutes.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slipstick.ir.errors import PlanError, SlipstickError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family
from slipstick.ir.text.files import load_graph, save_graph
from slipstick.passes.families import pipeline_for

from .coverage.case import model_types
from .coverage.graphs import of_config, traced
from .small_configs import small_config

ROOT = Path(__file__).resolve().parents[1]
FAMILIES: Mapping[str, Family] = {
    "tp": Family(), "tp+sp": Family(sp=True), "cp": Family(sp=True, cp="ring"), "ep": Family(sp=True, ep=True),
    "zero3": Family(zero=3), "recompute": Family(sp=True, recompute="full"), "hf plan": Family(tp_plan="hf"),
    "pp": Family(sp=True, pp=True, zero=1),
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Lower each model for each kind of plan, verified after every pass; print what breaks a law."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layouts", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="TYPE", help="model types to look at (default: all)")
    parser.add_argument("--graphs", type=Path, default=ROOT / "results" / "graphs", metavar="FOLDER")
    given = parser.parse_args(words)
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    given.graphs.mkdir(parents=True, exist_ok=True)
    found: Counter[str] = Counter()
    for name in given.only or model_types():
        for kind, outcome in _outcomes(name, given.graphs):
            found[outcome.partition(":")[0]] += 1
            if outcome not in ("keeps every law", "has no plan of its own"):
                print(f"{name}, {kind}: {outcome}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in found.most_common()), file=sys.stderr)


def _outcomes(model_type: str, folder: Path) -> Iterator[tuple[str, str]]:
    graph = _graph(model_type, folder / f"{model_type}.graph")
    if isinstance(graph, str):
        yield "traced", f"not traced: {graph}"
        return
    for kind, family in FAMILIES.items():
        yield kind, _outcome(graph, family)


def _graph(model_type: str, path: Path) -> Graph | str:
    """Return the kept graph, else trace it; a reason where there is none."""
    if path.exists():
        return load_graph(path)
    found = traced(lambda workload: of_config(model_type, small_config(model_type), workload), [Workload.TRAIN])
    if found.graph is None:
        return found.why_not[Workload.TRAIN]
    save_graph(found.graph, path)
    return found.graph


def _outcome(graph: Graph, family: Family) -> str:
    try:
        pipeline_for(family).run(graph)
    except PlanError as error:
        return "has no plan of its own" if family.tp_plan == "hf" else f"refused: {error}"
    except SlipstickError as error:
        return f"breaks a law: {error}"
    return "keeps every law"


if __name__ == "__main__":
    main()
