"""Where a plan, an engine or the samples of replicas ask for more than the index map says, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.graph import Phase
from ...ir.ops import Trait, has
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs, blocks
from ...ir.ops.tensors.lookup import LookupAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.placement import TP
from ...ir.sizes.expr import Expr
from .ask import (
    PARTIAL,
    REPLICATE,
    SAMPLE_AXES,
    Answer,
    Ask,
    Partial,
    Rule,
    Shard,
    per_replica,
    replicate_all,
    samples_dim,
    shares_samples,
)
from .choose import choose, map_of, widens


def elementwise(ask: Ask) -> Answer:
    """Partial sums stay so through what is linear, where that saves a message.

    In the forward phase a partial sum added to something whole is reduced first, as row-parallel layers do; in the
    backward phase the whole operand joins the sum on one rank, so that gradients are reduced once.
    """
    partial = {i for i, p in enumerate(ask.given) if isinstance(p, Partial)}
    if partial and not any(isinstance(p, Shard) for p in ask.given):
        groups = (*map_of(ask).linear, *(((0,),) if _scales(ask) else ()))
        group = next((g for g in groups if partial.issubset(g) and _stays(ask, partial, g)), None)
        if group is not None:
            inputs = tuple(PARTIAL if i in group else REPLICATE for i in range(len(ask.given)))
            return Answer(inputs, (PARTIAL,) * ask.num_outputs)
    return choose(ask)


def _stays(ask: Ask, partial: set[int], group: tuple[int, ...]) -> bool:
    dims = ask.call.outputs[0].dims
    backward, count = ask.phase is Phase.BACKWARD, len(ask.given)
    if backward and (ask.axis in SAMPLE_AXES or all(isinstance(d, int) for d in dims)):
        return len(group) > 1 or len(partial) == 1  # the gradient of something made of parameters alone
    if widens(ask, partial):
        return False
    if len(group) == count:
        return backward or len(partial) == count
    return _scales(ask) and partial == {0} == set(group)


def _scales(ask: Ask) -> bool:
    """Whether a chain of functions does nothing but scale its first operand; of three, one is added to a product."""
    scalings = {"mul", "div", "dropout_bwd", "cast"}
    return len(ask.given) < 3 and scalings.issuperset(ask.call.attrs_as(ElementwiseAttrs).fns)


def reshape(ask: Ask) -> Answer:
    """Where a shard would be no set of whole entries, the tensor is gathered; so is, over `tp`, what is flattened.

    That is a matrix which its layer wants whole anyway, but for a batch of them, one a head, and for heads of a
    projection of several tensors, whose columns are packed.
    """
    lies = ask.given[0]
    if not isinstance(lies, Shard):
        return choose(ask)
    source, result = ask.call.inputs[0].dims, ask.call.outputs[0].dims
    if lies.packed and ask.stacked:  # tensors side by side in one dim are so in the other, as columns and as heads
        heads = choose(replace(ask, given=(Shard(lies.dim),))).outputs[0]
        if isinstance(heads, Shard):
            return Answer((lies,), (Shard(heads.dim, packed=True),))
    answer = choose(ask)
    passes = answer.inputs == (lies,) and all(
        e.inputs != (lies,) or e.outputs != answer.outputs for e in map_of(ask).also
    )
    made = answer.outputs[0] if passes else REPLICATE
    samples = samples_dim(result, ask.axis) if ask.axis in SAMPLE_AXES else None
    repeated = samples is not None and samples_dim(source, ask.axis) == lies.dim
    if repeated and not (isinstance(made, Shard) and made.dim == samples):
        made = Shard(samples or 0)  # a replica's samples, repeated side by side
    if not isinstance(made, Shard):
        return replicate_all(ask)
    own = ask.own_tokens and isinstance(source[lies.dim], Expr)  # tokens in turn; heads among them would be lost
    flattened = ask.axis == TP and made.packed and not lies.packed and not own
    heads_of_batch = made.dim == 0 and len(result) > 2
    if flattened and not heads_of_batch and not _stacks(ask, lies):
        return replicate_all(ask)
    return Answer((lies,), (made,))


def _stacks(ask: Ask, lies: Shard) -> bool:
    """Whether heads of [parts, heads, dim] are flattened: the packed columns of a projection of several tensors."""
    source = ask.call.inputs[0].dims
    pairs = blocks(source, ask.call.outputs[0].dims)
    given, made = next(((ins, outs) for ins, outs in pairs if lies.dim in ins), ([], []))
    return all(isinstance(source[i], int) for i in given) and len(made) == 1 and len(given) > 2 and given[1] == lies.dim


def expand(ask: Ask) -> Answer:
    """Over `tp` a tensor about to grow is gathered first, while it is small; so is a partial sum.

    The batch dim stays sharded: what grows along other dims is never wanted whole over the batch.
    """
    lies, (source, result) = ask.given[0], (ask.call.inputs[0].dims, ask.call.outputs[0].dims)
    grows = any(a == 1 and b != 1 for a, b in zip(source, result[len(result) - len(source) :], strict=True))
    inner = isinstance(lies, Shard) and lies.dim > 0 and ask.phase is Phase.FORWARD
    return replicate_all(ask) if ask.axis == TP and grows and (inner or lies == PARTIAL) else choose(ask)


def take(ask: Ask) -> Answer:
    """Of several tensors side by side: one that all ranks hold, or several again; the graph knows which is taken."""
    lies, dim = ask.given[0], ask.call.attrs_as(SliceAttrs).dim
    if isinstance(lies, Shard) and lies.packed and lies.dim == dim and any(ask.on_all):
        return Answer((lies,), (REPLICATE,))
    if isinstance(lies, Shard) and lies.packed and lies.dim == dim and ask.cut_again:
        return Answer((lies,), (lies,))
    return choose(ask)


def pad(ask: Ask) -> Answer:
    """The gradient of a copy that all ranks hold: each rank has a part of it."""
    dim = ask.call.attrs_as(SliceAttrs).dim
    cut = all(isinstance(f, Shard) and f.dim == dim for f in ask.forward[:1])
    if any(ask.on_all) and cut and not isinstance(ask.given[0], Shard):
        return Answer((PARTIAL,), (Shard(dim, packed=True),))
    return choose(ask)


def concat(ask: Ask) -> Answer:
    """Beside shards, copies that all ranks hold are a part of the sum on each."""
    answer, dim = choose(ask), ask.call.attrs_as(ConcatAttrs).dim
    if not any(ask.on_all) or answer.outputs != (Shard(dim, packed=True),):
        return answer
    lies = [p if isinstance(p, Shard) else Shard(dim) for p in map(ask.whole, range(len(ask.given)))]
    inputs = tuple(PARTIAL if copy else p for p, copy in zip(lies, ask.on_all, strict=True))
    return Answer(inputs, answer.outputs)


def lookup(ask: Ask) -> Answer:
    """Samples that look up, or are written, among themselves stay with their replica."""
    answer = choose(ask)
    if not shares_samples(ask):
        return answer
    if has(ask.call, Trait.LOOKS_UP):
        pairs = zip(ask.given, answer.inputs, strict=True)
        gathers = any(isinstance(p, Shard) and want == REPLICATE for p, want in pairs)
        return per_replica(ask) if gathers else answer
    into = samples_dim(ask.call.outputs[0].dims, ask.axis) is not None
    return per_replica(ask) if into and not _hands_on(ask) else answer


def _hands_on(ask: Ask) -> bool:
    """Whether the last cut operand is cut along a letter of the result."""
    letters = ask.call.attrs_as(LookupAttrs).letters
    for i in reversed(range(len(ask.given)) if letters else ()):
        lies = ask.whole(i)
        if isinstance(lies, Shard):
            return letters[i][lies.dim] in letters[-1]
    return not letters


def routed(ask: Ask) -> Answer:
    """Where serving engines let the ranks of an axis have all tokens, each makes its own part of the sum.

    Tensor-parallel ranks have all tokens anyway, those with data-parallel attention gather them. Each computes its own
    experts' rows, or its part of every expert.
    """
    index_map = map_of(ask)
    if not ask.all_tokens or index_map.only:
        return choose(ask)
    if has(ask.call, Trait.DISPATCHES, backward=False):
        return replicate_all(ask)
    entry = index_map.sum_entry(int(has(ask.call, Trait.COMBINES, backward=True)))
    return Answer(entry.inputs, entry.outputs)


def start_cache(ask: Ask) -> Answer:
    """An empty cache begins as the new tokens lie, with whole heads."""
    starts = len(ask.given) == 1 and ask.whole(0) == Shard(ask.rank(0) - 1)
    return replicate_all(ask) if starts else choose(ask)


def accumulate(ask: Ask) -> Answer:
    """A running sum lies as the gradients do, partial ones included: it is reduced once a step."""
    return Answer(ask.given, ask.given)


EXCEPTIONS: Mapping[str, Rule] = {
    "elementwise": elementwise, "reshape": reshape, "expand": expand, "slice": take, "pad": pad, "concat": concat,
    "gather": lookup, "scatter": lookup, "accumulate": accumulate, "kv_append": start_cache,
    **dict.fromkeys(("dispatch", "dispatch_bwd", "combine", "combine_bwd"), routed),
}  # fmt: skip
