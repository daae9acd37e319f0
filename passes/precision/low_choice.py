"""Which products of a graph in inference run by which recipe: one for all layers, and those that patterns name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from ...ir.errors import PlanError, UsageError, did_you_mean
from ...ir.graph import Graph, Node, Region, Role, Run, Value
from ...ir.ops import Trait, has
from ...ir.plan.low_inference import INFERENCE
from ...ir.plan.precision import NONE
from ...ir.records import dataclass
from ..recompute.layers import merged_runs
from .low_patterns import Patterns, in_layer, parts_of
from .low_serving import places_of, products, readers

# Weights named in an error about one that is not there.
_SHOWN = 12
Asked = Mapping[int, str]


@dataclass(frozen=True, slots=True)
class LowPrecisionChoice:
    """A graph whose layers are told apart where they differ, and by region the recipe of each product that has one."""

    graph: Graph
    recipes: Mapping[str, Asked]


@dataclass
class Chooser:
    """Reads what is asked for off patterns; the first `num_lenient` pairs may name nothing, as those of checkpoints.

    `base` is the recipe of `layers`, regions of that name; regions in `apart` stay as they are.
    """

    base: str
    patterns: Patterns
    num_lenient: int
    layers: frozenset[str]
    apart: frozenset[str]
    named: dict[str, tuple[str, list[int]]] = field(default_factory=dict)

    def choose(self, graph: Graph) -> LowPrecisionChoice:
        """Choose for a whole graph; UsageError or PlanError for a pattern that cannot be followed."""
        told, asked = (
            self._told_apart(graph)
            if self.patterns.numbered
            else (graph, {r.name: self._asked(r, r.name, {}) for r in graph.regions})
        )
        found = _agreed(told, {r.name: products(r, asked[r.name]) for r in told.regions})
        self._check(told, found)
        return LowPrecisionChoice(told, found)

    def _told_apart(self, graph: Graph) -> tuple[Graph, Mapping[str, Asked]]:
        """Give layers that differ regions of their own."""
        counts: dict[str, int] = {}
        made: dict[tuple[str, tuple[tuple[int, str], ...]], str] = {}
        runs: list[Run] = []
        for name in graph.sequence():
            region = graph.region(name)
            heads = {v.name.partition("*")[0] for _, v in _weights(region) if "*" in v.name}
            asked = tuple(sorted(self._asked(region, name, counts).items()))
            same = sum(old == name for old, _ in made)
            runs.append(Run((made.setdefault((name, asked), f"{name}_low{same}" if same else name),)))
            counts |= {head: counts.get(head, 0) + 1 for head in heads}
        regions = (replace(r, name=new) for r in graph.regions for (old, _), new in made.items() if old == r.name)
        told = replace(graph, regions=tuple(regions), schedule=merged_runs(runs))
        return told, {new: dict(asked) for (_, asked), new in made.items()}

    def _asked(self, region: Region, name: str, numbers: Mapping[str, int]) -> Asked:
        """Return the recipe asked for each product; `numbers` is that of the layer, by what stands before its star."""
        if name in self.apart:
            return {}
        inside = name in self.layers
        found = {node.key: self._of_node(region, node, inside, numbers) for node in readers(region)}
        return {key: recipe for key, recipe in found.items() if recipe != NONE}

    def _of_node(self, region: Region, node: Node, inside: bool, numbers: Mapping[str, int]) -> str:
        names = [p for k in places_of(node) for p in parts_of(region.by_id[node.inputs[k]].name)]
        base = self.base if inside and not has(node, Trait.READS_TABLE) else NONE
        recipes = {n: self._of_name(n, base, numbers) for n in names}
        if len(set(recipes.values())) > 1:
            told = ", ".join(f"{n} {r}" for n, r in recipes.items())
            raise PlanError(
                f"weights of one kernel differ in precision: {told}; name all of them, or use --kernels eager where "
                "engines join products"
            )
        recipe = next(iter(recipes.values()))
        return NONE if recipe != NONE and INFERENCE[recipe].experts and not has(node, Trait.HOLDS_EXPERTS) else recipe

    def _of_name(self, name: str, base: str, numbers: Mapping[str, int]) -> str:
        head = name.partition("*")[0]
        full = in_layer(name, numbers.get(head, 0)) if self.patterns.numbered else name
        if full not in self.named:
            self.named[full] = (name, self.patterns.naming(full))
        found = self.named[full][1]
        return self.patterns.pairs[found[-1]][1] if found else base

    def _check(self, graph: Graph, found: Mapping[str, Asked]) -> None:
        """Refuse a pattern of the user's that names no weight, or only such as stay in the model's type."""
        low = {p for r in graph.regions for n, v in _weights(r) if n.key in found[r.name] for p in parts_of(v.name)}
        for k, (pattern, recipe) in list(enumerate(self.patterns.pairs))[self.num_lenient :]:
            if not any(k in of for _, of in self.named.values()):
                raise UsageError(_unknown(graph, pattern))
            wins = list(dict.fromkeys(name for name, of in self.named.values() if of and of[-1] == k))
            if recipe != NONE and wins and low.isdisjoint(wins):
                raise PlanError(f"--precision-of {pattern}={recipe}: {_listed(wins)} {_why(recipe)}")


def _unknown(graph: Graph, pattern: str) -> str:
    names = dict.fromkeys(p for r in graph.regions for _, v in _weights(r) for p in parts_of(v.name))
    modules = list(dict.fromkeys(n.removesuffix(".weight") for n in names))
    scopes = [*modules, *dict.fromkeys(m.rpartition(".")[0] for m in modules if "." in m)]
    return (
        f"--precision-of {pattern}: no weight of {graph.name} has such a path{did_you_mean(pattern, scopes)} there "
        f"are: {_listed(modules)}"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _why(recipe: str) -> str:
    if INFERENCE[recipe].experts:
        return "cannot: that recipe is of banks of experts alone"
    return "stay in the model's type: routers, dims that are no multiples of 16, or weights that something else reads"


def _weights(region: Region) -> Iterator[tuple[Node, Value]]:
    return ((n, region.by_id[n.inputs[k]]) for n in readers(region) for k in places_of(n))


def _agreed(graph: Graph, found: Mapping[str, Asked]) -> Mapping[str, Asked]:
    """Leave out products with weights that another region has in another type: a tied table is one tensor."""
    types: dict[str, set[str]] = {}
    for region in graph.regions:
        of = {v.id: found[region.name][n.key] for n, v in _weights(region) if n.key in found[region.name]}
        for v in region.of_role(Role.PARAM):
            types.setdefault(_own_name(region, v), set()).add(of.get(v.id, NONE))
    apart = {name for name, kinds in types.items() if len(kinds) > 1}
    if not apart:
        return found
    kept: dict[str, Asked] = {}
    for region in graph.regions:
        out = {n.key for n, v in _weights(region) if _own_name(region, v) in apart}
        kept[region.name] = {key: recipe for key, recipe in found[region.name].items() if key not in out}
    return kept


def _own_name(region: Region, v: Value) -> str:
    return f"{region.name}/{v.name}" if "*" in v.name else v.name
