"""Semantic operators and torch's own fused attention to the IR; scans and convolutions, ours and those of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, fx

from ...ir.errors import TraceError
from ...ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.ops.fused.index_keys import IndexAttrs
from ...ir.ops.fused.scan import ScanAttrs, ScanBwdAttrs
from ...ir.ops.tensors.conv import ConvAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import NormAttrs
from ..record.dtypes import meaning_of
from ..semantic.semantic import NAMESPACE
from .fx_import import Handler, Importer, plain


def _attention(im: Importer, node: fx.Node) -> None:
    backward = "bwd" in str(node.target)
    sinks, causal, window, dropout, *rest = node.args[6 if backward else 3 :]
    bias, ids, softcap = (rest[i] if i < len(rest) else None for i in range(3))
    attrs = AttentionAttrs(
        bool(causal),
        int(str(window)),
        sinks is not None,
        float(str(dropout)),
        bias=bias is not None,
        softcap=float(str(softcap or 0.0)),
        keys=ids.meta["val"].shape[-1] if isinstance(ids, fx.Node) else 0,
    )
    im.emit(node, "attention_bwd" if backward else "attention", im.inputs(node), attrs)


def _index_keys(im: Importer, node: fx.Node) -> None:
    keys, causal = node.args[3:]
    im.emit(node, "index_keys", im.inputs(node), IndexAttrs(int(str(keys)), bool(causal)))


def _experts(im: Importer, node: fx.Node) -> None:
    gated, transposed = node.args[7:9]
    inputs = im.inputs(node)
    im.emit(node, "experts", inputs, ExpertsAttrs(bool(gated), bool(transposed), len(inputs) == 7))


def _experts_bwd(im: Importer, node: fx.Node) -> None:
    gated, transposed, bias = node.args[10:13]
    im.emit(node, "experts_bwd", im.inputs(node), ExpertsAttrs(bool(gated), bool(transposed), bool(bias)))


def _kv_append(im: Importer, node: fx.Node) -> None:
    inputs = im.inputs(node)
    storage = im.flat.values[inputs[0]].storage
    outs = im.flat.emit(
        "kv_append", inputs, [(im.type_of(node.meta["val"]), storage)], im.origin(node), KvAppendAttrs(2)
    )
    im.bind(node, outs, (node.meta["val"],))


def _scan(im: Importer, node: fx.Node) -> None:
    kind, chunk = node.args[3:5]
    im.emit(node, "scan", im.inputs(node), ScanAttrs(str(kind), int(str(chunk)), node.args[2] is not None))


def _scan_bwd(im: Importer, node: fx.Node) -> None:
    kind, chunk, state_dim = node.args[4:7]
    has_state = node.args[3] is not None
    attrs = ScanBwdAttrs(str(kind), int(str(chunk)), has_state, im.dim(state_dim))
    im.emit(node, "scan_bwd", im.inputs(node), attrs)


def _causal_conv(im: Importer, node: fx.Node) -> None:
    backward = "bwd" in str(node.target)
    has_state = not backward and node.args[3] is not None
    attrs = ConvAttrs((1,), (0,), (1,), causal=True, activation=str(node.args[4]), has_state=has_state)
    keep = None if backward or has_state else 1
    im.emit(node, "conv_bwd" if backward else "conv", im.inputs(node), attrs, keep)


def _keep_state(im: Importer, node: fx.Node) -> None:
    """The state lies where the cache did: what wrote it wrote it there."""
    state, *cache = im.inputs(node)
    if cache:
        home = im.flat.values[cache[0]].storage
        im.flat.values[state] = replace(im.flat.values[state], storage=home)
    storage = im.flat.values[state].storage
    outs = im.flat.emit("keep_state", (state,), [(im.type_of(node.meta["val"]), storage)], im.origin(node))
    im.bind(node, outs, (node.meta["val"],))


def _step_product(im: Importer, node: fx.Node) -> None:
    """A product a step, whose weight is read anew in each."""
    x, weight = im.inputs(node)
    kind, steps = im.flat.values[weight].type, im.flat.values[x].type.dims[0]
    storage, origin = im.flat.values[weight].storage, im.origin(node)
    (lone,) = im.flat.emit("reshape", (weight,), [(kind.with_dims((1, *kind.dims)), storage)], origin)
    (each,) = im.flat.emit("expand", (lone,), [(kind.with_dims((steps, *kind.dims)), storage)], origin)
    im.emit(node, "matmul", (x, each), MatmulAttrs("sbk,snk->sbn"))


def _numbers(given: object, rank: int) -> tuple[int, ...]:
    """One number a spatial dim, as torch takes a single one for all."""
    if not isinstance(given, list | tuple):
        raise TraceError(f"'{given}' is no list of numbers")
    found = tuple(int(str(g)) for g in given)
    return found * rank if len(found) == 1 else found


def _attrs(given: tuple[object, ...], rank: int) -> ConvAttrs:
    """`stride, padding, dilation, transposed, output_padding, groups` of aten's convolution."""
    stride, padding, dilation, transposed = given[:4]
    return ConvAttrs(_numbers(stride, rank), _numbers(padding, rank), _numbers(dilation, rank), bool(transposed))


def _convolution(im: Importer, node: fx.Node) -> None:
    inputs = im.inputs(node)
    im.emit(node, "conv", inputs, _attrs(tuple(node.args[3:9]), im.rank(node) - 2))


def _convolution_bwd(im: Importer, node: fx.Node) -> None:
    """`convolution_backward(dy, x, weight, bias_sizes, stride, .., groups, mask)`: what is not asked is absent."""
    val = node.meta["val"]
    made = [v for v in val if isinstance(v, Tensor)]
    if not made:
        raise TraceError("a backward of a convolution of which no gradient is asked")
    attrs = _attrs(tuple(node.args[4:10]), im.rank(node) - 2)
    inputs = im.inputs(node)
    meaning = meaning_of(node, im.ids, inputs, len(made))
    outs = im.flat.emit("conv_bwd", inputs, [(im.type_of(t), None) for t in made], im.origin(node), attrs, meaning)
    im.keys.setdefault(node, outs[0])
    found = iter(outs)
    im.parts[node] = tuple(next(found) if isinstance(v, Tensor) else None for v in val)


# Rows over their length are an RMS norm without a weight: the same work up to one factor a row.
HANDLERS: Mapping[str, Handler] = {
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_bwd,
    **{f"{NAMESPACE}.{name}": handler for name, handler in {
        "attention": _attention, "attention_bwd": _attention, "index_keys": _index_keys, "experts": _experts,
        "experts_bwd": _experts_bwd, "kv_append": _kv_append, "scan": _scan, "scan_bwd": _scan_bwd,
        "causal_conv": _causal_conv, "causal_conv_bwd": _causal_conv, "keep_state": _keep_state,
        "step_product": _step_product,
        **dict.fromkeys(("rms_norm", "l2_norm"), plain("norm", NormAttrs("rms"))),
        **dict.fromkeys(("rms_norm_bwd", "l2_norm_bwd"), plain("norm_bwd", NormAttrs("rms"))),
        **{op: plain(op) for op in ("rope", "rope_bwd", "cross_entropy", "cross_entropy_bwd")},
    }.items()},
}  # fmt: skip
