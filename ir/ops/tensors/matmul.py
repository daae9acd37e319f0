"""Matrix products: one op whose spec says which dims meet, as in einsum."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...records import dataclass
from ...sizes.expr import Dim, product
from ..base import Attrs, GemmShape, OpCall, OpClass, OpDef, ShardChoice, Work, makes
from ..index_map import IndexMap, aligned, tensor
from ..traits import Trait

_SPEC = re.compile(r"[a-zA-Z]*,[a-zA-Z]*->[a-zA-Z]*")


@dataclass(frozen=True, slots=True)
class MatmulAttrs(Attrs):
    """`spec` in einsum letters, for example `abk,nk->abn` for a linear layer with weight [n, k].

    `scales` counts the last inputs, which hold scales and zero points of a right operand in low precision, with as
    many dims as it has: the kernel reads them and widens the operand itself.
    """

    spec: str
    scales: int = 0

    @property
    def letters(self) -> tuple[str, str, str]:
        """The letters of the left operand, the right operand and the result."""
        left, rest = self.spec.split(",")
        right, out = rest.split("->")
        return left, right, out


def letter_sizes(call: OpCall) -> Mapping[str, Dim]:
    """Return the size of each letter of the spec."""
    left, right, _ = call.attrs_as(MatmulAttrs).letters
    return {**dict(zip(right, call.inputs[1].dims, strict=True)), **dict(zip(left, call.inputs[0].dims, strict=True))}


def gemm_shape(call: OpCall) -> GemmShape:
    """Group the letters: in all three batch; left and out m; right and out n; left and right k."""
    left, right, out = call.attrs_as(MatmulAttrs).letters
    size = letter_sizes(call)
    return GemmShape(
        batch=product(size[c] for c in left if c in right and c in out),
        m=product(size[c] for c in left if c in out and c not in right),
        n=product(size[c] for c in right if c in out and c not in left),
        k=product(size[c] for c in left if c in right and c not in out),
    )


@makes(lambda call: tuple(letter_sizes(call)[c] for c in call.attrs_as(MatmulAttrs).letters[2]))
def _check(call: OpCall) -> Iterator[str]:
    spec = call.attrs_as(MatmulAttrs).spec
    if _SPEC.fullmatch(spec) is None:
        yield f"spec '{spec}' is not 'left,right->result' in letters"
        return
    left, right, out = call.attrs_as(MatmulAttrs).letters
    scales = call.attrs_as(MatmulAttrs).scales
    if not 0 <= len(call.inputs) - 2 - scales <= 1:
        yield f"takes a left operand, a right one, a bias or none and {scales} scales, has {len(call.inputs)} inputs"
        return
    ranks = (len(left), len(right), len(out))
    given = (call.inputs[0].rank, call.inputs[1].rank, call.outputs[0].rank)
    if ranks != given:
        yield f"spec {spec} wants ranks {ranks}, has {given}"
        return
    alone = sorted(c for c in {*left, *right} if (c in left) + (c in right) + (c in out) == 1)
    if alone:
        yield f"spec {spec}: letter {', '.join(alone)} is in one place only"
    size = letter_sizes(call)
    for letter, dim in zip(right, call.inputs[1].dims, strict=True):
        if size[letter] != dim:
            yield f"letter {letter} is {size[letter]} on the left and {dim} on the right"
    for letter, dim in zip(out, call.outputs[0].dims, strict=True):
        if size.get(letter) != dim:
            yield f"letter {letter} is {size.get(letter)} in the operands and {dim} in the result"


def _work(call: OpCall) -> Work:
    """2 m n k FLOPs a batch entry; each operand read once, a bias read and the result written once."""
    shape = gemm_shape(call)
    bias = [t.num_bytes for t in call.inputs[2:]]
    return Work(
        tensor_flops=shape.batch * shape.m * shape.n * shape.k * 2,
        read_bytes=sum(bias, call.inputs[0].num_bytes + call.inputs[1].num_bytes),
        write_bytes=call.outputs[0].num_bytes,
        gemms=(shape,),
    )


def _index_map(call: OpCall, _axis: str) -> IndexMap:
    """Einsum letters; one that the result lacks is summed over. Linear in each operand, affine in the bias."""
    attrs = call.attrs_as(MatmulAttrs)
    left, right, out = attrs.letters
    first_scale = len(call.inputs) - attrs.scales
    bias = tuple(range(2, first_scale))
    biases = [aligned(call.inputs[i], out) for i in bias]
    scales = [aligned(t, right) for t in call.inputs[first_scale:]]
    return IndexMap(
        (tensor(left), tensor(right), *biases, *scales),
        (tensor(out),),
        sums=tuple((f, 0) for f in dict.fromkeys(left + right) if f not in out),
        added=bias,
        linear=((0, *bias), (1, *bias)),
        exact=True,
    )


OPS = (
    OpDef(
        "matmul",
        OpClass.MATMUL,
        _work,
        "matrix product; inputs: left, right, a bias added in the epilogue, scales",
        _check,
        MatmulAttrs,
        min_inputs=2,
        max_inputs=6,
        traits=frozenset({Trait.PRODUCT}),
        index_map=_index_map,
        shard=ShardChoice(packs="any"),
    ),
)
