"""The products of a layer in inference: weights that rest in low precision, and casts of what they are multiplied with.

An operand is cast where it is made: seen another way or gathered, it stays one tensor. A kernel that can write its
result in low precision does so where nothing else reads it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Set
from dataclasses import replace

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Region, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.ops.quantise import QuantiseAttrs
from ...ir.placement import TP
from ...ir.plan.low_inference import INFERENCE, ServingRecipe
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
    nodes = {key: region.producer[key] for key in found}
    operands = [n for n in nodes.values() if not has(n, Trait.READS_TABLE)]
    draft = _Draft(region, {(n.key, n.inputs[0]) for n in operands if not has(n, Trait.ROUTES)})
    for key, own in found.items():
        draft.retype(own.weights, *(nodes[key].inputs[k] for k in places_of(nodes[key])))
    if recipe.operands is None:
        return draft.finish()
    for top in dict.fromkeys(draft.top(value) for _, value in sorted(draft.readers)):
        draft.cast(top, recipe.operands, recipe.makers_of(fused))
    for node in operands:
        if has(node, Trait.ROUTES) and isinstance(node.attrs, ExpertsAttrs):  # a bank casts inside
            draft.replace(node, replace(draft.now(node), attrs=replace(node.attrs, products=str(recipe.operands))))
    return draft.finish()


class _Draft(RegionRewriter):
    """A region whose operands come cast; `readers` are products with the operand that each reads in low precision."""

    def __init__(self, region: Region, readers: Set[tuple[int, int]]) -> None:
        super().__init__(region)
        self.readers = readers

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

    def cast(self, top: int, dtype: DType, makers: Container[str]) -> None:
        """Let a tensor come in low precision: from the kernel that makes it, or from one behind it."""
        maker = self.region.producer.get(top)
        if maker is not None and maker.op in makers and maker.key == top and self._is_free(top):
            self.retype(dtype, top)
            made = top
        else:
            top = self._seen(top)
            old, user = self.region.by_id[top], self._takers(top)[0]
            made = self.add(Value(0, replace(old.type, dtype=dtype), 0, placements=old.placements))
            self.insert_before(user, Node("quantise", (top,), (made,), QuantiseAttrs(), user.scope, user.phase))
        for user in self._takers(top):
            self.rewire(user, {top: made})
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

    def _below(self, user: Node, storage: int, dtype: DType) -> None:
        """What moves a tensor in low precision makes one."""
        if not _moves(user):
            return
        self.retype(dtype, user.key)
        if has(user, OpClass.FREE):
            self.values[user.key] = replace(self.values[user.key], storage=storage)
        else:
            storage = user.key
        for later in self.region.users[user.key]:
            self._below(later, storage, dtype)


def _moves(node: Node) -> bool:
    """Whether a node hands on one tensor: seen another way, gathered over tp, or sent to experts in low precision."""
    attrs = node.attrs
    if isinstance(attrs, CollectiveAttrs):
        return (has(node, Trait.GATHERS) and attrs.axes == (TP,)) or (has(node, Trait.EXCHANGES) and bool(attrs.wire))
    return has(node, OpClass.FREE) and len(node.inputs) == 1
