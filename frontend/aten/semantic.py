"""Semantic operators and torch's own fused attention to the IR."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from ...ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.ops.fused.index_keys import IndexAttrs
from ...ir.ops.tensors.normalize import NormAttrs
from ..semantic.semantic import NAMESPACE
from .fx_import import Handler, Importer


def _attention(im: Importer, node: fx.Node) -> None:
    backward = "bwd" in str(node.target)
    sinks, causal, window, dropout, *rest = node.args[6 if backward else 3 :]
    bias, ids, softcap = (rest[i] if i < len(rest) else None for i in range(3))
    attrs = AttentionAttrs(
        bool(causal), int(str(window)), sinks is not None, float(str(dropout)), bias=bias is not None,
        softcap=float(str(softcap or 0.0)), keys=ids.meta["val"].shape[-1] if isinstance(ids, fx.Node) else 0,
    )  # fmt: skip
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


def _rms_norm(im: Importer, node: fx.Node) -> None:
    backward = "bwd" in str(node.target)
    im.emit(node, "norm_bwd" if backward else "norm", im.inputs(node), NormAttrs("rms"))


def _same(op: str) -> Handler:
    def handler(im: Importer, node: fx.Node) -> None:
        im.emit(node, op, im.inputs(node))

    return handler


def _kv_append(im: Importer, node: fx.Node) -> None:
    inputs = im.inputs(node)
    storage = im.flat.values[inputs[0]].storage
    outs = im.flat.emit(
        "kv_append", inputs, [(im.type_of(node.meta["val"]), storage)], im.origin(node), KvAppendAttrs(2)
    )
    im.bind(node, outs, (node.meta["val"],))


HANDLERS: Mapping[str, Handler] = {
    f"{NAMESPACE}.attention": _attention,
    f"{NAMESPACE}.attention_bwd": _attention,
    f"{NAMESPACE}.index_keys": _index_keys,
    f"{NAMESPACE}.experts": _experts,
    f"{NAMESPACE}.experts_bwd": _experts_bwd,
    f"{NAMESPACE}.rms_norm": _rms_norm,
    f"{NAMESPACE}.rms_norm_bwd": _rms_norm,
    f"{NAMESPACE}.rope": _same("rope"),
    f"{NAMESPACE}.rope_bwd": _same("rope_bwd"),
    f"{NAMESPACE}.cross_entropy": _same("cross_entropy"),
    f"{NAMESPACE}.cross_entropy_bwd": _same("cross_entropy_bwd"),
    f"{NAMESPACE}.kv_append": _kv_append,
}
