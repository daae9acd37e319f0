"""The same model as our graphs: traced for each workload or failed with a reason, and what the graph counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstick.frontend import config_of, load_config
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Node, Phase, Region, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.ops.scan import ScanAttrs

from .counter import Counted
from .oracle import BATCH, KV, SEQ

# What tells layers apart, as people call it; of the ops that do the most in a layer.
_KINDS = ("attention", "scan", "conv", "experts", "grouped_matmul")


@dataclass(frozen=True, slots=True)
class Traced:
    """A graph, or why there is none."""

    graph: Graph | None = None
    why_not: str = ""


def traced(model_type: str, fields: Mapping[str, object], workload: Workload) -> Traced:
    """Trace a config; whatever goes wrong is a reason, and where it is not an error of ours that is said."""
    config = config_of(model_type, {"model_type": model_type, **fields})
    try:
        return Traced(load_config(config, workload))
    except SlipstickError as error:
        return Traced(why_not=_one_line(str(error)))
    except Exception as error:
        return Traced(why_not=f"internal: {type(error).__name__}: {_one_line(str(error))}")


def _one_line(message: str) -> str:
    return " ".join(message.split())


def counted(graph: Graph, phase: Phase) -> Counted:
    """FLOPs of products in one phase, those of scans apart; what a kernel does a second time is left out."""
    env = {"batch": float(BATCH), "seq": float(SEQ), "kv": float(KV)}
    if graph.workload is Workload.DECODE:
        env["seq"] = 1.0
    parts = {True: 0.0, False: 0.0}
    for region in graph.regions:
        for node in (n for n in region.nodes if n.phase is phase):
            work = work_of(region, node)
            flops = float(work.tensor_flops.evaluate(env)) * work.model_share
            parts[node.op.startswith("scan")] += graph.counts[region.name] * flops
    return Counted(round(parts[False]), round(parts[True]))


def num_parameters(graph: Graph) -> int:
    """Return the distinct parameters of the graph."""
    return round(float(graph.num_parameters.evaluate({})))


def layers_of(graph: Graph) -> str:
    """Say of what kinds the layers are: `2 attention + experts, 1 scan.ssd`; without layers, of the whole model."""
    blocks = [r for r in graph.regions if r.name.startswith("block")]
    if not blocks:
        return f"not folded: {_kind(graph.regions)}"
    found: dict[str, int] = {}
    for region in blocks:
        found[_kind([region])] = found.get(_kind([region]), 0) + graph.counts[region.name]
    return ", ".join(f"{count} {kind}" for kind, count in found.items())


def _kind(regions: Sequence[Region]) -> str:
    ops = [_label(n) for r in regions for n in r.nodes if n.phase is Phase.FORWARD and n.op in _KINDS]
    found = dict.fromkeys(sorted(ops, key=lambda label: _KINDS.index(label.partition(".")[0])))
    return " + ".join(found) or "dense"


def _label(node: Node) -> str:
    return f"scan.{node.attrs.kind}" if isinstance(node.attrs, ScanAttrs) else node.op


__all__ = ["Traced", "counted", "layers_of", "num_parameters", "traced"]
