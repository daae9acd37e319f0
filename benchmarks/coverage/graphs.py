"""The same model as our graphs: traced for each workload or failed with a reason, and what the graph counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType

from slipstick.frontend import config_of, load_config
from slipstick.frontend.huggingface.lengths import with_source
from slipstick.frontend.record.failures import first_line
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Node, Phase, Region, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.ops.fused.scan import ScanAttrs

from .counter import Counted
from .oracle import BATCH, KV, SEQ
from .plans import Planned, planned

# The lengths that both sides count at.
LENGTHS: Mapping[str, int] = MappingProxyType({"batch": BATCH, "seq": SEQ, "kv": KV})

# What tells layers apart, as people call it; of the ops that do the most in a layer.
_KINDS = ("attention", "scan", "conv", "experts", "grouped_matmul")


@dataclass
class Traced:
    """The graphs of a module by workload, why others are missing, and the seconds that each took."""

    graphs: dict[str, Graph] = field(default_factory=dict)
    why_not: dict[str, str] = field(default_factory=dict)
    trace_s: dict[str, float] = field(default_factory=dict)

    @property
    def graph(self) -> Graph | None:
        """One of them, that of training first."""
        return self.graphs.get("train") or self.graphs.get("prefill")

    @property
    def layers(self) -> str:
        """Kinds of layers of the graph."""
        return "" if self.graph is None else layers_of(self.graph)

    @property
    def num_parameters(self) -> int:
        """Distinct parameters of the graph, 0 without one."""
        return 0 if self.graph is None else round(float(self.graph.num_parameters.evaluate({})))

    @property
    def plans(self) -> Planned:
        """What comes of the training step under the plans."""
        return planned(with_source(self.graphs["train"])) if "train" in self.graphs else Planned()


def traced(trace: Callable[[Workload], Graph], workloads: Iterable[str]) -> Traced:
    """Trace each workload; whatever goes wrong is a reason, and where it is no error of ours that is said."""
    found = Traced()
    for workload in workloads:
        start = perf_counter()
        try:
            found.graphs[workload] = trace(Workload(workload))
        except SlipstickError as error:
            found.why_not[workload] = " ".join(str(error).split())
        except Exception as error:
            found.why_not[workload] = f"internal: {first_line(error)}"
        found.trace_s[workload] = round(perf_counter() - start, 2)
    return found


def of_config(model_type: str, fields: Mapping[str, object], workload: Workload) -> Graph:
    """Return the graph of a config."""
    return load_config(config_of(model_type, {"model_type": model_type, **fields}), workload)


def counted(graph: Graph, phase: Phase, lengths: Mapping[str, int] = LENGTHS) -> Counted:
    """FLOPs of products in one phase, those of scans apart; what a kernel does a second time is left out."""
    env = {name: float(size) for name, size in lengths.items()}
    if graph.workload is Workload.DECODE:
        env["seq"] = 1.0
    parts = {True: 0.0, False: 0.0}
    for region in graph.regions:
        for node in (n for n in region.nodes if n.phase is phase):
            work = work_of(region, node)
            flops = float(work.tensor_flops.evaluate(env)) * work.model_share
            parts[node.op.startswith("scan")] += graph.counts[region.name] * flops
    return Counted(round(parts[False]), round(parts[True]))


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


__all__ = ["Traced", "counted", "layers_of", "of_config", "traced"]
