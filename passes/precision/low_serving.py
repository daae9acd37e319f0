"""The products of a layer in inference: weights that rest in low precision, and casts of what they are multiplied with.

An operand is cast where it is made: seen another way or gathered, it stays one tensor. A kernel that can write its
result in low precision does so where nothing else reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from ...ir.graph import Node, Region, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.ops.quantise import QuantiseAttrs
from ...ir.placement import TP
from ...ir.plan.low_inference import INFERENCE, ServingRecipe
from ...ir.records import dataclass
from ...ir.types import DType
from .low_products import fits, selects

# Where the weights of an op stand. Torch's linear layers have theirs on the right; on the left none is known.
_PLACES: Mapping[str, tuple[int, ...]] = {
    "matmul": (1,),
    "grouped_matmul": (1,),
    "experts": (3, 4),
    "expert_bank": (1, 2),
    "embedding": (1,),
}


def readers(region: Region) -> list[Node]:
    """Return the products of weights and the lookups of tables, in order."""
    return [
        n
        for n in region.nodes
        if (places := places_of(n)) and all(region.by_id[n.inputs[k]].role is Role.PARAM for k in places)
    ]


def places_of(node: Node) -> tuple[int, ...]:
    """Return the places of a reader's weights among its inputs; any other node has none."""
    return _PLACES.get(node.op, ())


def products(region: Region, asked: Mapping[int, str]) -> Mapping[int, str]:
    """Return, of the readers for which a recipe is asked, those that can run by it, by key.

    A weight that something else reads as well stays, and so does one that is seen in part: latent attention takes its
    matrix apart, and engines keep both halves in the model's type (vLLM, `v1/attention/backends/mla/common.py`).
    """
    found = {n.key: asked[n.key] for n in readers(region) if n.key in asked and _is_low(region, n)}
    while True:
        alone = {key: recipe for key, recipe in found.items() if _are_alone(region, key, found)}
        if len(alone) == len(found):
            return found
        found = alone


def _is_low(region: Region, node: Node) -> bool:
    fit = all(fits(region, node.inputs[k]) for k in places_of(node))
    return fit and (has(node, Trait.HOLDS_EXPERTS, Trait.READS_TABLE) or not selects(region, node))


def _are_alone(region: Region, key: int, found: Mapping[int, str]) -> bool:
    node = region.producer[key]
    users = [user.key for k in places_of(node) for user in region.users[node.inputs[k]]]
    return all(found.get(user) == found[key] for user in users)


def served(region: Region, found: Mapping[int, str], fused: bool) -> Region:
    """Return a region whose weights rest in low precision, of each product in that of its recipe.

    With `fused` kernels write their results cast. What products of two types read is cast once for each.
    """
    kinds = dict.fromkeys(INFERENCE[recipe].operands for recipe in found.values())
    made = region
    for operands in kinds:
        made = _of_type(made, {k: INFERENCE[r] for k, r in found.items() if INFERENCE[r].operands is operands}, fused)
    return made


def _of_type(region: Region, found: Mapping[int, ServingRecipe], fused: bool) -> Region:
    """Rewrite the products of one type of operands, which is that of all these recipes."""
    recipe = next(iter(found.values()))
    draft = _Draft(region, recipe, recipe.makers_of(fused))
    for key, own in found.items():
        draft.kinds |= {region.producer[key].inputs[k]: own.weights for k in places_of(region.producer[key])}
    if recipe.operands is not None:
        operands = [(key, region.producer[key]) for key in found if not has(region.producer[key], Trait.READS_TABLE)]
        draft.banks = {key for key, node in operands if has(node, Trait.ROUTES)}
        draft.readers = {(key, node.inputs[0]) for key, node in operands if not has(node, Trait.ROUTES)}
        for top in dict.fromkeys(draft.top(value) for _, value in sorted(draft.readers)):
            draft.cast(top, recipe.operands)
    return draft.made()


@dataclass
class _Draft:
    """A region in the making: types that change, casts in front of nodes, and what nodes read now.

    `readers` are products with the operand that each reads in low precision, `banks` those that cast inside.
    """

    region: Region
    recipe: ServingRecipe
    makers: frozenset[str]
    kinds: dict[int, DType] = field(default_factory=dict)
    readers: set[tuple[int, int]] = field(default_factory=set)
    banks: set[int] = field(default_factory=set)
    front: dict[int, Node] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    now: dict[tuple[int, int], int] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)

    def top(self, value: int) -> int:
        """What is cast for an operand: the operand, or the tensor that it is seen in or gathered from."""
        maker = self.region.producer.get(value)
        while maker is not None and _moves(maker) and self._is_free(value):
            value = maker.inputs[0]
            maker = self.region.producer.get(value)
        return value

    def _is_free(self, value: int) -> bool:
        """Whether nothing but products in low precision reads a value, as it is or moved."""
        users = self.region.users.get(value, ())
        leaves = any(p.value == value for p in self.region.outputs)
        return bool(users) and not leaves and all(self._takes(user, value) for user in users)

    def _takes(self, user: Node, value: int) -> bool:
        return (user.key, value) in self.readers or (_moves(user) and self._is_free(user.key))

    def cast(self, top: int, dtype: DType) -> None:
        """Let a tensor come in low precision: from the kernel that makes it, or from one behind it."""
        maker = self.region.producer.get(top)
        if maker is not None and maker.op in self.makers and maker.key == top and self._is_free(top):
            self.kinds[top] = dtype
            made = top
        else:
            top = self._seen(top)
            made = self._quantised(top, self._takers(top)[0], dtype)
        for user in self._takers(top):
            self.now[user.key, top] = made
            self._below(user, made, dtype)

    def _takers(self, value: int) -> list[Node]:
        return [user for user in self.region.users[value] if self._takes(user, value)]

    def _seen(self, value: int) -> int:
        """A tensor as products see it: a kernel that casts walks over rows of its last dim."""
        users = self._takers(value)
        while len(users) == 1 and has(users[0], OpClass.FREE):
            value = users[0].key
            users = self._takers(value)
        return value

    def _quantised(self, source: int, user: Node, dtype: DType) -> int:
        old = self.region.by_id[source]
        ident = self.region.fresh_id + len(self.values)
        self.values.append(Value(ident, replace(old.type, dtype=dtype), ident, placements=old.placements))
        self.front[user.key] = Node("quantise", (source,), (ident,), QuantiseAttrs(), user.scope, user.phase)
        return ident

    def _below(self, user: Node, storage: int, dtype: DType) -> None:
        """What moves a tensor in low precision makes one."""
        if not _moves(user):
            return
        self.kinds[user.key] = dtype
        if has(user, OpClass.FREE):
            self.storages[user.key] = storage
        for later in self.region.users[user.key]:
            self._below(later, self.storages.get(user.key, user.key), dtype)

    def made(self) -> Region:
        nodes: list[Node] = []
        for node in self.region.nodes:
            nodes += [self.front[node.key]] if node.key in self.front else []
            nodes.append(self._rewired(node))
        return replace(self.region, values=(*map(self._retyped, self.region.values), *self.values), nodes=tuple(nodes))

    def _rewired(self, node: Node) -> Node:
        made = replace(node, inputs=tuple(self.now.get((node.key, i), i) for i in node.inputs))
        if node.key not in self.banks or not isinstance(node.attrs, ExpertsAttrs):
            return made
        return replace(made, attrs=replace(node.attrs, products=str(self.recipe.operands)))

    def _retyped(self, value: Value) -> Value:
        if value.id not in self.kinds:
            return value
        kind = replace(value.type, dtype=self.kinds[value.id])
        return replace(value, type=kind, storage=self.storages.get(value.id, value.storage))


def _moves(node: Node) -> bool:
    """Whether a node hands on one tensor: seen another way, gathered over tp, or sent to experts in low precision."""
    attrs = node.attrs
    if isinstance(attrs, CollectiveAttrs):
        return (has(node, Trait.GATHERS) and attrs.axes == (TP,)) or (has(node, Trait.EXCHANGES) and bool(attrs.wire))
    return has(node, OpClass.FREE) and len(node.inputs) == 1
