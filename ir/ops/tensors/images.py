"""Kernels over pictures and volumes: windows (pools, resampling, patches) and norms over channels.

Which dims meet is said by letters, one a dim of each tensor: a letter that the result has is handed on, entry i to
entry i; one of the operands alone is summed or looked at over its whole length.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import as_expr, total
from ..base import Attrs, OpCall, OpClass, OpDef, ShardChoice, Work, same_dims, traffic
from ..index_map import SAMPLE_AXES, IndexMap, lacking, tensor
from ..traits import Trait
from .lookup import letters_of, spec_complaints


@dataclass(frozen=True, slots=True)
class WindowAttrs(Attrs):
    """`fn` is what is done in a window: max, avg, bilinear, ..; `spec` the letters; `flops` those of one window.

    A Fourier transform's window is a whole one of its dims, of which an entry has its share: no whole number of FLOPs.
    There is a window for each entry of the result, and in the backward phase for each entry of the gradient. The last
    `held` inputs are kept for their sizes alone, as PyTorch keeps the input of a pool: nothing of them is read.
    """

    fn: str
    spec: str
    flops: float = 0
    held: int = 0

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of each input and of each result."""
        return letters_of(self.spec)


@dataclass(frozen=True, slots=True)
class ChannelNormAttrs(Attrs):
    """`kind` is batch or group; `spec` the letters, where statistics have those that they are not taken over.

    `given` says that the statistics are running ones, which the kernel reads, and not those of x.
    """

    kind: str
    spec: str
    given: bool = False

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of each input and of each result."""
        return letters_of(self.spec)


# Mean 1, variance 2, subtract, scale, multiply and add a weight and a bias 4; with statistics that are given all of
# that is one multiply and one add of a channel.
_FLOPS, _GIVEN_FLOPS = 7, 2
_KINDS = ("batch", "group")


def _check_window(call: OpCall) -> Iterator[str]:
    attrs = call.attrs_as(WindowAttrs)
    if not 0 <= attrs.held < len(call.inputs) or attrs.flops < 0:
        yield f"{attrs.held} of {len(call.inputs)} inputs are held, {attrs.flops} FLOPs a window"
    yield from spec_complaints(attrs.spec, call)


def _work_window(call: OpCall) -> Work:
    """Every entry is read once and every result written once: windows that overlap meet in the cache."""
    attrs = call.attrs_as(WindowAttrs)
    read = call.inputs[: len(call.inputs) - attrs.held]
    windows = (call.outputs if call.op == "window" else call.inputs)[0].numel
    return Work(
        vector_flops=windows * attrs.flops,
        read_bytes=total(t.num_bytes for t in read),
        write_bytes=total(t.num_bytes for t in call.outputs),
    )


def _check_norm(call: OpCall) -> Iterator[str]:
    attrs = call.attrs_as(ChannelNormAttrs)
    if attrs.kind not in _KINDS:
        yield f"kind '{attrs.kind}' is none of {', '.join(_KINDS)}"
    if call.op == "channel_norm":
        yield from same_dims(call.outputs[0].dims, call.inputs[0].dims, "result")
    else:
        yield from same_dims(call.inputs[0].dims, call.inputs[1].dims, "gradient of the result")
    yield from spec_complaints(attrs.spec, call)


def _work_norm(call: OpCall) -> Work:
    """X is read for its statistics and read again to be normalised: they are taken over more than a block holds."""
    attrs, x = call.attrs_as(ChannelNormAttrs), call.inputs[0]
    if attrs.given:
        return traffic(call, x.numel * _GIVEN_FLOPS)
    moved = traffic(call, x.numel * _FLOPS)
    return Work(
        vector_flops=moved.vector_flops, read_bytes=moved.read_bytes + x.num_bytes, write_bytes=moved.write_bytes
    )


def _work_norm_bwd(call: OpCall) -> Work:
    """Dy and x are read for the two sums of a statistic, which are the gradients of weight and bias, and again for dx.

    Statistics that are given have no gradient: one pass makes all.
    """
    attrs, dy, x = call.attrs_as(ChannelNormAttrs), *call.inputs[:2]
    if attrs.given:
        return traffic(call, dy.numel * 2 * _GIVEN_FLOPS)
    makes_dx = any(t.dims == x.dims for t in call.outputs)
    moved = traffic(call, dy.numel * (2 * _FLOPS if makes_dx else _FLOPS))
    again = dy.num_bytes + x.num_bytes if makes_dx else as_expr(0)
    return Work(vector_flops=moved.vector_flops, read_bytes=moved.read_bytes + again, write_bytes=moved.write_bytes)


def _index_map(call: OpCall, axis: str) -> IndexMap:
    """Letters: one of what is worked on and of the results is handed on; the way back is linear in the gradient.

    There a result without the letter is a sum, unless a statistic is taken over it. Samples of a data axis are a
    replica's own: statistics of them, too.
    """
    attrs, replicas = call.attrs, axis in SAMPLE_AXES
    assert isinstance(attrs, WindowAttrs | ChannelNormAttrs)
    known, first = set(attrs.letters[0]), attrs.letters[0][0]
    every = [tensor(f if f in known else None for f in word) for word in attrs.letters]
    inputs, outputs = tuple(every[: len(call.inputs)]), tuple(every[len(call.inputs) :])
    if isinstance(attrs, WindowAttrs) or attrs.given:
        summed = known
    else:
        summed = {first} if attrs.kind == "group" or replicas else set()
    lacks = lacking(outputs, sorted(f for f in summed if f in attrs.letters[len(inputs)]))
    if call.op.endswith("_bwd"):
        return IndexMap(inputs, outputs, lacks, linear=((0,),))
    return IndexMap(inputs, outputs, same=tuple((f, i) for f, i in lacks if replicas and f == first))


OPS = (
    OpDef(
        "window", OpClass.MEMORY, _work_window,
        "a result for each window of x: pools, resampling, patches, padding; inputs: x, places; outputs: y, indices",
        _check_window, WindowAttrs, min_inputs=1, num_outputs=None,
        index_map=_index_map, by_axis=True, shard=ShardChoice(packs="any"),
    ),
    OpDef(
        "window_bwd", OpClass.MEMORY, _work_window,
        "backward of windows; inputs: dy, then what says where it goes, then what is held; outputs: dx, dplaces",
        _check_window, WindowAttrs, min_inputs=1, num_outputs=None, traits=frozenset({Trait.BACKWARD}),
        index_map=_index_map, by_axis=True,
        shard=ShardChoice(packs="any", sums="backward"),
    ),
    OpDef(
        "channel_norm", OpClass.NORM, _work_norm,
        "batch, group or instance norm; inputs: x [batch, channels, ..], weight, bias, statistics that are given; "
        "outputs: y, statistics of x",
        _check_norm, ChannelNormAttrs, min_inputs=1, num_outputs=None,
        index_map=_index_map, by_axis=True, shard=ShardChoice(packs="any"),
    ),
    OpDef(
        "channel_norm_bwd", OpClass.NORM, _work_norm_bwd,
        "backward of a norm over channels; inputs: dy, x, weight, statistics; outputs: what is asked of dx, dweight, "
        "dbias",
        _check_norm, ChannelNormAttrs, min_inputs=3, num_outputs=None, traits=frozenset({Trait.BACKWARD}),
        index_map=_index_map, by_axis=True,
        shard=ShardChoice(packs="any", sums="backward"),
    ),
)  # fmt: skip
