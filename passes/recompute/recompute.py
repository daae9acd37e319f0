"""Activation recomputation: what the forward phase does not keep, the backward phase computes again."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...ir.errors import PlanError
from ...ir.graph import Graph, Node, Phase, Region, Workload
from ...ir.layers import layer_names
from ...ir.ops import OpClass, Trait, has
from ...ir.plan import check_recompute
from ...ir.plan.layout.stages import RECOMPUTED
from ...ir.records import dataclass
from ...ir.saved import mark_saved
from ..base import Pass, PassResult
from .layers import first_layers, in_groups, num_in_pass
from .modules import RecomputedPiece, check_names, named_results, pieces, weight_products
from .rerun import Rerun, rerun

NOTHING = frozenset[str]()
_KEPT_MESSAGES = (Trait.SCATTERS, Trait.EXCHANGES)


@dataclass(frozen=True, slots=True)
class Recompute(Pass):
    """Recompute inside every layer.

    | option     | meaning                                                                                           |
    |------------|---------------------------------------------------------------------------------------------------|
    | policy     | full: keep only the layer's input; selective: recompute modules; ops: keep some results; save:    |
    |            | keep the results that are named; none                                                             |
    | modules    | of selective: core_attn, layernorm, mlp, ... or module paths, `*` allowed; default core_attn      |
    | save, rest | of save: results that layers keep, and those of layers behind the first so many; default all      |
    | layers     | of full, save: only the first so many layers, the others keep everything or `rest`; 0: all        |
    | every      | of full: keep the input of every so-many-th layer only, and recompute so many together            |
    | early_stop | stop where nothing further is needed; false: run all of it again, as reentrant checkpoints do     |

    The attention core is what Korthikanti et al. (arXiv 2205.05198) recompute: the scores, their softmax and dropout,
    and the product with the values; all of fused attention. `ops` keeps what torchtitan keeps: the results of
    attention, of reduce-scatter and all-to-all, and of every second product with a weight, beginning with the first.
    What is recomputed includes the communication of the forward phase. Parameters that are gathered for it stay
    gathered for the backward phase.
    """

    name: ClassVar[str] = "recompute"
    policy: str = "full"
    modules: tuple[str, ...] = ()
    save: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    layers: int = 0
    every: int = 1
    early_stop: bool = True

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that repeat; prologue and epilogue run once and stay."""
        check_recompute(self.policy, self.modules, self.layers, self.every)
        if self.policy == "none" or graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        ends = _ends(graph)
        named = (*self.modules, *self.save, *self.rest)
        check_names([r for r in graph.regions if r.name not in ends], named if num_in_pass(graph, ends) else ())
        made = self._rewrite(graph, ends)
        return PassResult(graph, changed=False) if made == graph else PassResult(mark_saved(made), changed=True)

    def unchanged(self, graph: Graph) -> None:
        """Refuse a policy by which nothing runs again, such as that of layers where there are none."""
        if self.policy == "none" or graph.workload is not Workload.TRAIN:
            return
        layers = num_in_pass(graph, _ends(graph))
        what = " of " + ", ".join(self.modules or ("core_attn",)) if self.policy == "selective" else ""
        why = (
            f"its {layers} layers have nothing that it would run again"
            if layers
            else "it is one piece, in which no layers were found"
        )
        raise PlanError(f"recompute={self.policy}{what} changes nothing in {graph.name}: {why}; use recompute=none")

    def _rewrite(self, graph: Graph, ends: frozenset[str]) -> Graph:
        total = num_in_pass(graph, ends)
        if max(self.layers, self.every if self.every > 1 else 0) > total > 0:
            raise PlanError(
                f"{max(self.layers, self.every)} layers to recompute: {graph.name} has {total}; allowed: 1 to {total}"
            )
        if self.every > 1:
            return in_groups(graph, self.every, self._whole, ends)
        if self.layers:
            made = first_layers(graph, self.layers, self._whole, ends)
            return self._rest(made, ends) if self.rest else made
        return graph.with_regions(tuple(r if r.name in ends else self._layer(r) for r in graph.regions))

    def _rest(self, graph: Graph, ends: frozenset[str]) -> Graph:
        """Let the layers behind the first ones keep other results."""
        other = replace(self, save=self.rest)
        kept = {r.name for r in graph.regions if r.name in ends or r.name.endswith(RECOMPUTED)}
        return graph.with_regions(
            tuple(r if r.name in kept else other._whole(r, NOTHING, NOTHING) for r in graph.regions)
        )

    def _layer(self, region: Region) -> Region:
        if self.policy != "selective":
            return self._whole(region, NOTHING, NOTHING)
        for piece in pieces(region, self.modules or ("core_attn",)):
            region = rerun(region, self._of_piece(region, piece))
        return region

    def _whole(self, region: Region, entering: frozenset[str], leaving: frozenset[str]) -> Region:
        """Let the whole backward phase of a layer read new results."""
        kept = _kept_ops(region) if self.policy == "ops" else named_results(region, self.save)
        again = {n.key for n in region.nodes if n.phase is Phase.FORWARD} - kept
        readers = {n.key for n in region.nodes if n.phase is Phase.BACKWARD}
        return rerun(region, Rerun(again, readers, self._all_of(region, again), entering, leaving))

    def _of_piece(self, region: Region, piece: RecomputedPiece) -> Rerun:
        """What is kept for other nodes, a checkpoint's own backward reads anew too."""
        made = {o for n in region.nodes if n.key in piece.nodes for o in n.outputs}
        later = [n for n in region.nodes if n.phase in (Phase.BACKWARD, Phase.RECOMPUTE)]
        if piece.discards:
            readers = {n.key for n in later if made & {*n.inputs}}
        else:
            own = {n.key for n in later if n.phase is Phase.BACKWARD and n.forward in piece.nodes}
            readers = own | {n.key for n in later if made & {*n.inputs} and _brings(region, n, own)}
        return Rerun(piece.nodes, readers, self._all_of(region, piece.nodes))

    def _all_of(self, region: Region, again: set[int] | frozenset[int]) -> frozenset[int]:
        if self.early_stop:
            return frozenset()
        return frozenset(o for n in region.nodes if n.key in again for o in n.outputs)


def _ends(graph: Graph) -> frozenset[str]:
    """What is no layer: prologue, epilogue, and what runs between layers."""
    return frozenset(r.name for r in graph.regions) - layer_names(graph)


def _brings(region: Region, node: Node, readers: set[int]) -> bool:
    """Whether a message, or the slice of a shard, is there for some readers alone."""
    users = {u.key for o in node.outputs for u in region.users.get(o, ())}
    return node.forward is None and bool(users) and users <= readers


def _kept_ops(region: Region) -> frozenset[int]:
    """Keys of the forward nodes whose results `ops` keeps."""
    kept = {n.key for n in weight_products(region)[::2]}
    kept |= {n.key for n in region.nodes if has(n, OpClass.ATTENTION, *_KEPT_MESSAGES)}
    return frozenset(kept)
