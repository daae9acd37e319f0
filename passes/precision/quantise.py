"""Products of weights in low precision: casts of their operands, what is kept, what is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...ir.errors import NotBuiltError, PlanError, UnknownNameError
from ...ir.graph import Graph, Region, Run, Workload
from ...ir.layers import is_mtp_layer, layer_names, layer_row
from ...ir.plan.low_inference import INFERENCE
from ...ir.plan.precision import NONE, OF_DECODER_LAYERS, OF_TRAINING, RECIPES, read_pair, recipes_of
from ...ir.records import dataclass
from ...ir.saved import mark_saved
from ..base import Pass, PassResult, require_sharded
from ..recompute.layers import merged_runs
from .low_attention import attended
from .low_choice import Chooser, LowPrecisionChoice
from .low_operands import lowered
from .low_patterns import Patterns
from .low_ports import carried
from .low_products import MULTIPLE, operands
from .low_serving import served

_HIGH = "_high"


@dataclass(frozen=True, slots=True)
class Quantise(Pass):
    """Run the products of weights in layers, and of their backward, by a recipe of low precision.

    Routers and the embedding stay as they are, and head and attention unless asked. In inference weights rest in low
    precision.

    | option | meaning                                                                                              |
    |--------|------------------------------------------------------------------------------------------------------|
    | recipe | fp8, fp8-delayed, fp8-rowwise, fp8-block, mxfp8, int8, int8-dgrad, nvfp4; in inference no            |
    |        | fp8-delayed and int8-dgrad, but, weights alone, w8a16, w4a16, mxfp4; and none, where patterns name   |
    |        | some weights                                                                                         |
    | keep   | as TransformerEngine: weights are cast once a step and kept, activations kept quantised; else as     |
    |        | torchao: each use casts, and activations are kept in the model's type                                |
    | fused  | a compiler takes a tensor's maximum in the kernel that makes it; in inference norms and pointwise    |
    |        | kernels write their results cast                                                                     |
    | gather | weights that lie over replicas are gathered in low precision, and rest in it where they rest whole   |
    | attend | training: attention multiplies in fp8                                                                |
    | head   | training: what stands behind the layers too, also in modules of multi-token prediction               |
    | first  | so many first layers stay in the model's type                                                        |
    | last   | so many last layers do                                                                               |
    | given  | inference: weights that a checkpoint has in another recipe, as "PATTERN=RECIPE"; may name nothing    |
    | of     | inference: the same as asked for, also for embedding and head; a later one overrides earlier ones   |
    """

    name: ClassVar[str] = "quantise"
    recipe: str = "fp8"
    keep: bool = False
    fused: bool = False
    gather: bool = False
    attend: bool = False
    head: bool = False
    first: int = 0
    last: int = 0
    given: tuple[str, ...] = ()
    of: tuple[str, ...] = ()

    def requires(self, graph: Graph) -> None:
        """Which operands are gathered is known once the graph is sharded; what is kept or repeated comes later."""
        require_sharded(self.name, graph, sharded=True)
        train = graph.workload is Workload.TRAIN
        legal = recipes_of(graph.workload)
        for recipe in (self.recipe, *(recipe for _, recipe in self._pairs())):
            if recipe not in legal and (train or recipe != NONE):
                raise UnknownNameError.of(f"precision of {graph.workload}", recipe, legal)
        alone = [name for name in ("keep", "gather", "attend", "head") if getattr(self, name)]
        if not train and alone:
            raise PlanError(f"quantise{{{alone[0]}=true}}: of training only; leave it out")
        if train and self._pairs():
            raise NotBuiltError(OF_TRAINING)

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(map(read_pair, (*self.given, *self.of)))

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the layers."""
        ends = frozenset(r.name for r in graph.regions) - layer_names(graph)
        apart = _with_edges(graph, ends, self.first, self.last)
        layers = frozenset(r.name for r in apart.regions if r.name not in ends and not r.name.endswith(_HIGH))
        if self.recipe in OF_DECODER_LAYERS:
            layers = frozenset(name for name in layers if not is_mtp_layer(name))
        if graph.workload is not Workload.TRAIN:
            return self._serving(apart, layers)
        if not any(operands(apart.region(name)) for name in layers):
            raise PlanError(self._nothing(graph))
        layers |= frozenset(layer_row(apart).tail) if self.head else frozenset()
        made = (self._training(r) if r.name in layers else r for r in apart.regions)
        return PassResult(mark_saved(apart.with_regions(tuple(made))), changed=True)

    def _training(self, region: Region) -> Region:
        recipe = RECIPES[self.recipe]
        made = lowered(region, recipe, self.keep, self.fused, self.gather)
        return attended(made, recipe.reads[0]) if self.attend else made

    def _serving(self, graph: Graph, layers: frozenset[str]) -> PassResult:
        high = frozenset(r.name for r in graph.regions if r.name.endswith(_HIGH))
        patterns = Patterns(self._pairs())
        choice = Chooser(self.recipe, patterns, len(self.given), layers, high).choose(graph)
        if not any(choice.recipes.values()) and not patterns.pairs:
            raise PlanError(self._nothing(graph))
        return PassResult(self._made(choice), changed=True)

    def _made(self, choice: LowPrecisionChoice) -> Graph:
        regions = tuple(served(r, choice.recipes[r.name], self.fused) for r in choice.graph.regions)
        used = {INFERENCE[name] for found in choice.recipes.values() for name in found.values()}
        makers = {r.operands: r.makers_of(self.fused) for r in used if r.operands is not None}
        return carried(choice.graph.with_regions(regions), makers)

    def _nothing(self, graph: Graph) -> str:
        if graph.workload is not Workload.TRAIN and INFERENCE[self.recipe].experts:
            others = ", ".join(name for name, r in INFERENCE.items() if not r.experts)
            return f"precision={self.recipe} is of experts alone, and {graph.name} has none; legal: none, {others}"
        return (
            f"precision={self.recipe}: no layer of {graph.name} has a product of weights whose dims are multiples "
            f"of {MULTIPLE}; use --precision none"
        )


def _with_edges(graph: Graph, ends: frozenset[str], first: int, last: int) -> Graph:
    """Give the first and last layers regions of their own, which stay as they are."""
    if not first and not last:
        return graph
    names = list(graph.sequence())
    layers = [k for k, name in enumerate(names) if name not in ends and not is_mtp_layer(name)]
    if first + last >= len(layers):
        raise PlanError(
            f"bf16-first={first} bf16-last={last}: {graph.name} has {len(layers)} layers; allowed: fewer in all"
        )
    high = {*layers[:first], *layers[len(layers) - last :]}
    runs = merged_runs(Run((name + _HIGH if k in high else name,)) for k, name in enumerate(names))
    copied = {names[k] for k in high}
    used = {name for run in runs for name in run.regions}
    both = (r for old in graph.regions for r in _copies(old, copied) if r.name in used)
    return replace(graph, regions=tuple(both), schedule=runs)


def _copies(region: Region, copied: set[str]) -> tuple[Region, ...]:
    return (replace(region, name=region.name + _HIGH), region) if region.name in copied else (region,)
