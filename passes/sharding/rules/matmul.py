"""Sharding of products: a letter sharded on both sides and contracted makes a partial sum."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.ops.fused.experts import GroupedAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.types import TensorType
from ..ask import PARTIAL, REPLICATE, Answer, Ask, Placement, Rule, Shard


def matmul(ask: Ask) -> Answer:
    """Shard along one letter of the spec; when two operands shard different letters, gather one of them.

    The parameter stays; between two activations, the one whose letter survives in the result stays.
    """
    attrs = ask.call.attrs_as(MatmulAttrs)
    left, right, out = attrs.letters
    a, b = ask.whole(0), ask.whole(1)
    letter_a, letter_b = _letter(a, left), _letter(b, right)
    letter = letter_a or letter_b
    if letter_a and letter_b and letter_a != letter_b:
        right_stays = ask.is_param[1] if ask.is_param[0] != ask.is_param[1] else letter_b in out and letter_a not in out
        letter = letter_b if right_stays else letter_a
    if letter is None:
        return Answer((REPLICATE,) * len(ask.given), (REPLICATE,))
    packed = any(isinstance(p, Shard) and p.packed and lt == letter for p, lt in ((a, letter_a), (b, letter_b)))
    result: Placement = Shard(out.index(letter), packed) if letter in out else PARTIAL
    first_scale = len(ask.given) - attrs.scales
    bias = _bias(result, len(out), ask.call.inputs[2]) if first_scale > 2 else ()
    operands = (_lay(left, letter, packed), _lay(right, letter, packed))
    scales = (_lay_scales(operands[1], ask.call.inputs[i]) for i in range(first_scale, len(ask.given)))
    return Answer((*operands, *bias, *scales), (result,))


def _lay_scales(operand: Placement, scales: TensorType) -> Placement:
    """Scales lie as their operand does, unless there is one for the whole dim."""
    whole = not isinstance(operand, Shard) or operand.dim >= scales.rank or scales.dims[operand.dim] == 1
    return REPLICATE if whole else operand


def _bias(result: Placement, rank: int, bias: TensorType) -> tuple[Placement]:
    """A bias is split with the last dims of the result, its own; of a partial sum it is a part on one rank only."""
    if not isinstance(result, Shard):
        return (result,)
    dim = result.dim - rank + bias.rank
    return (Shard(dim, result.packed) if dim >= 0 and bias.dims[dim] != 1 else REPLICATE,)


def _letter(placement: Placement, letters: str) -> str | None:
    return letters[placement.dim] if isinstance(placement, Shard) else None


def _lay(letters: str, letter: str, packed: bool) -> Placement:
    return Shard(letters.index(letter), packed) if letter in letters else REPLICATE


def grouped_matmul(ask: Ask) -> Answer:
    """[rows, k] x [groups, k, n]: rows by data, columns by weight, a split k is summed; or a gradient of the weight."""
    a, b = ask.whole(0), ask.whole(1)
    rest = (REPLICATE,) * (len(ask.given) - 2)
    if ask.call.attrs_as(GroupedAttrs).weight_grad:
        return _grouped_gradient(a, b, rest)
    if a == Shard(0):
        return Answer((Shard(0), REPLICATE, *rest), (Shard(0),))
    # Columns of the weights: each rank makes its columns of the result, as in the first half of a Megatron MLP.
    if b == Shard(2):
        return Answer((REPLICATE, Shard(2), *rest), (Shard(1),))
    # Rows of the weights: each rank has a part of the sum, which a collective completes where somebody reads it.
    if b == Shard(1):
        return Answer((Shard(1), Shard(1), *rest), (PARTIAL,))
    return Answer((REPLICATE, REPLICATE, *rest), (REPLICATE,))


def _grouped_gradient(a: Placement, b: Placement, rest: tuple[Placement, ...]) -> Answer:
    """[k, rows] x [rows, n] -> [groups, k, n]: over split rows a sum, by the columns of either operand."""
    if Shard(1) == a or Shard(0) == b:
        return Answer((Shard(1), Shard(0), *rest), (PARTIAL,))
    if a == Shard(0):
        return Answer((Shard(0), REPLICATE, *rest), (Shard(1),))
    if b == Shard(1):
        return Answer((REPLICATE, Shard(1), *rest), (Shard(2),))
    return Answer((REPLICATE, REPLICATE, *rest), (REPLICATE,))


RULES: Mapping[str, Rule] = {"matmul": matmul, "grouped_matmul": grouped_matmul}
