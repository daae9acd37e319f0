"""Which products of a layer run in low precision, and which of their operands are weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from ...ir.graph import Node, Phase, Region, Role
from ...ir.ops import OpClass, Trait, has
from ...ir.records import dataclass

# Matrix units take operands of low precision in rows of whole 16 bytes; a product of others stays as it is.
MULTIPLE = 16
_PRODUCTS = (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS)


class Side(StrEnum):
    """The copy of an operand: with scales along the dim that the forward product sums over, or along the other."""

    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class LowOperand:
    """One operand of a product: which input of which node, its value, the copy that is wanted, whether a weight."""

    node: Node
    index: int
    value: int
    side: Side
    weight: bool


def operands(region: Region, of_weight_gradients: bool = True) -> list[LowOperand]:
    """Return the operands of all products of weights and of their backward, in running order.

    Those that make the gradient of a weight read none; without `of_weight_gradients` they stay as they are.
    """
    chosen = {n.key for n in region.nodes if n.phase is Phase.FORWARD and _is_low(region, n)}
    products = (list(_of(region, n)) for n in region.nodes if n.key in chosen or n.forward in chosen)
    return [o for found in products if of_weight_gradients or any(o.weight for o in found) for o in found]


def weight_of(region: Region, value: int) -> int | None:
    """Return the parameter that a value is, gathered or seen another way; None for anything else."""
    if region.by_id[value].role is Role.PARAM:
        return value
    node = region.producer.get(value)
    if node is None or len(node.inputs) != 1:
        return None
    seen = has(node, Trait.GATHERS, OpClass.FREE)
    return weight_of(region, node.inputs[0]) if seen else None


def _is_low(region: Region, node: Node) -> bool:
    if has(node, Trait.BANK):
        return all(fits(region, i) for i in node.inputs[1:3])
    if not has(node, Trait.PRODUCT):
        return False
    weights = [i for i in node.inputs[:2] if weight_of(region, i) is not None]
    return len(weights) == 1 and fits(region, weights[0]) and not selects(region, node)


def fits(region: Region, weight: int) -> bool:
    """Whether matrix units take a weight in low precision: both dims are multiples of 16."""
    return all(not isinstance(d, int) or d % MULTIPLE == 0 for d in region.by_id[weight].type.dims[-2:])


def selects(region: Region, node: Node) -> bool:
    """Whether experts are chosen by the result of a product: it reaches a selection before the next product."""
    reached = {node.key}
    for later in region.nodes:
        if later.phase is Phase.FORWARD and reached.intersection(later.inputs):
            if has(later, Trait.CHOOSES):
                return True
            if not has(later, *_PRODUCTS):
                reached.update(later.outputs)
    return False


def _of(region: Region, node: Node) -> Iterator[LowOperand]:
    yield from (LowOperand(node, i, node.inputs[i], side, weight) for i, side, weight in _BANKS.get(node.op, ()))
    if has(node, Trait.PRODUCT):
        pair = node.inputs[:2]
        weights = [weight_of(region, i) is not None for i in pair]
        for index, value in enumerate(pair):
            # Forward all operands in rows; backward weights in columns, gradients in rows for those, else in columns.
            is_weight = weights[index]
            has_weight = any(weights)
            side = Side.ROWS if node.phase is Phase.FORWARD or (has_weight and not is_weight) else Side.COLUMNS
            yield LowOperand(node, index, value, side, weights[index])


# Of banks of experts: place, copy, weight or not. The gradient of a bank is wanted in rows and in columns.
_BANKS: Mapping[str, tuple[tuple[int, Side, bool], ...]] = {
    "expert_bank": ((0, Side.ROWS, False), (1, Side.ROWS, True), (2, Side.ROWS, True)),
    "expert_bank_bwd": (
        (0, Side.ROWS, False),
        (0, Side.COLUMNS, False),
        (1, Side.COLUMNS, False),
        (2, Side.COLUMNS, True),
        (3, Side.COLUMNS, True),
    ),
}
