"""Representative calls of every op that has a sharding rule; dims divide by 2 and 3 wherever one can be split."""

from __future__ import annotations

from slipstick.ir.graph import Attrs, Phase
from slipstick.ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from slipstick.ir.ops.fused.experts import ExpertsAttrs, GroupedAttrs
from slipstick.ir.ops.fused.index_keys import IndexAttrs
from slipstick.ir.ops.fused.routing import RoutedAttrs
from slipstick.ir.ops.fused.scan import ScanAttrs, ScanBwdAttrs
from slipstick.ir.ops.tensors.conv import ConvAttrs
from slipstick.ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from slipstick.ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from slipstick.ir.ops.tensors.lookup import LookupAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.ops.tensors.normalize import DimAttrs, NormAttrs, ReduceAttrs
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.placement import EP, REPLICATE, Placement, Shard

from .table import Case

_BACK, _ONWARD = (Phase.BACKWARD,), (Phase.FORWARD,)
R: Placement = REPLICATE
Made = tuple[int, str, tuple[int, ...], int, Attrs]
B, S, H = (6, 12, 12)  # batch, sequence, hidden
X = (B, S, H)


def _pointwise() -> list[Case]:
    one = [Case(f"{fn} of one", "elementwise", (X,), (X,), ElementwiseAttrs((fn,)))
           for fn in ("add", "sub", "mul", "div", "neg", "silu", "exp", "clamp", "sqrt",
                      "square", "reciprocal", "remainder", "floor_div", "softsign")]  # fmt: skip
    two = [Case(f"{fn} of two", "elementwise", (X, X), (X,), ElementwiseAttrs((fn,)))
           for fn in ("add", "sub", "mul", "div", "max", "silu_bwd", "dropout_bwd")]  # fmt: skip
    wide = [Case(f"{fn} along rows", "elementwise", (X, (H,)), (X,), ElementwiseAttrs((fn,)), params=(1,))
            for fn in ("add", "mul")]  # fmt: skip
    wide += [Case(f"{fn} of columns", "elementwise", (X, (B, S, 1)), (X,), ElementwiseAttrs((fn,)))
             for fn in ("add", "mul", "div")]  # fmt: skip
    more = [Case("three added", "elementwise", ((S, H),) * 3, ((S, H),), ElementwiseAttrs(("add", "add"))),
            Case("product added", "elementwise", ((S, H),) * 3, ((S, H),), ElementwiseAttrs(("addcmul",))),
            Case("packed halves", "elementwise", ((S, H),), ((S, H),), ElementwiseAttrs(("silu",)),
                 packed={(0, 1): (6, 6), (1, 1): (6, 6)})]  # fmt: skip
    same = [Case(op, op, (X,), (X,)) for op in ("cast", "copy", "identity", "accumulate")]
    turn = [Case(op, op, ((B, 6, S, 4), (B, 1, S, 4), (B, 1, S, 4)), ((B, 6, S, 4),), axes=("tp", "dp", "cp"),
                 phases=phase) for op, phase in (("rope", _ONWARD), ("rope_bwd", _BACK))]  # fmt: skip
    return [*one, *two, *wide, *more, *same, *turn]


def _products() -> list[Case]:
    def product(name: str, spec: str, a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...],
                bias: tuple[tuple[int, ...], ...] = (), params: tuple[int, ...] = (1,)) -> Case:  # fmt: skip
        return Case(name, "matmul", (a, b, *bias), (out,), MatmulAttrs(spec), params=params)

    return [
        product("linear", "abc,dc->abd", X, (18, H), (B, S, 18)),
        product("linear with bias", "abc,dc->abd", X, (18, H), (B, S, 18), ((18,),), (1, 2)),
        product("weight gradient", "abc,abd->cd", (B, S, 18), X, (18, H), params=()),
        product("input gradient", "abd,dc->abc", (B, S, 18), (18, H), X),
        product("scores", "abcd,abed->abce", (B, 6, S, 4), (B, 6, S, 4), (B, 6, S, S), params=()),
        Case("packed columns", "matmul", ((S, H), (H, H)), ((S, H),), MatmulAttrs("ac,dc->ad"), params=(1,),
             packed={(1, 0): (6, 6), (2, 1): (6, 6)}),
        Case("packed inner", "matmul", ((S, H), (6, H)), ((S, 6),), MatmulAttrs("ac,dc->ad"), params=(1,),
             packed={(0, 1): (6, 6), (1, 1): (6, 6)}),
        Case("rows of groups", "grouped_matmul", ((36, 6), (6, 6, 12)), ((36, 12),), GroupedAttrs(),
             rows=(0, 2), packed={(0, 0): (6,) * 6, (2, 0): (6,) * 6}),
        Case("gradient of groups", "grouped_matmul", ((6, 36), (36, 18)), ((6, 6, 18),), GroupedAttrs(True),
             phases=_BACK, rows=(1,), rows_last=(0,), packed={(0, 1): (6,) * 6, (1, 0): (6,) * 6}),
    ]  # fmt: skip


def _layout() -> list[Case]:
    cut = SliceAttrs(2, 6)
    return [
        Case("split heads", "reshape", (X,), ((B, S, 6, 2),), packed={(0, 2): (2,) * 6}),
        Case("join heads", "reshape", ((B, S, 6, 2),), (X,), packed={(1, 2): (2,) * 6}),
        Case("flatten tokens", "reshape", (X,), ((B * S, H),), packed={(1, 0): (S,) * B},
             again=({(0, 0): (3, 3), (1, 0): (3 * S, 3 * S)},)),
        Case("unflatten tokens", "reshape", ((B * S, H),), (X,), packed={(0, 0): (S,) * B},
             again=({(1, 0): (3, 3), (0, 0): (3 * S, 3 * S)},)),
        Case("split three heads", "reshape", ((B, 18),), ((B, 9, 2),), stacked=True, axes=("tp",),
             packed={(0, 1): (6, 6, 6), (1, 1): (3, 3, 3)}, again=({(0, 1): (2,) * 9},)),
        Case("join three heads", "reshape", ((B, 9, 2),), ((B, 18),), stacked=True, axes=("tp",),
             packed={(0, 1): (3, 3, 3), (1, 1): (6, 6, 6)}, again=({(1, 1): (2,) * 9},)),
        Case("one more dim", "reshape", ((B, H),), ((B, 1, H),)),
        Case("permute", "permute", ((B, S, 6, 2),), ((B, 6, S, 2),), PermuteAttrs((0, 2, 1, 3))),
        Case("transpose", "permute", ((S, H),), ((H, S),), PermuteAttrs((1, 0)),
             packed={(0, 1): (6, 6), (1, 0): (6, 6)}),
        Case("repeat heads", "expand", ((B, 1, S, 4),), ((B, 6, S, 4),)),
        Case("expand in front", "expand", ((S, H),), ((B, S, H),)),
        Case("slice of halves", "slice", (X,), ((B, S, 6),), cut, packed={(0, 2): (6, 6)}, tail={(0, 2): 6},
             again=({(0, 2): (6, 3, 3), (1, 2): (3, 3)},)),
        Case("slice of rows", "slice", (X,), ((B, 6, H),), SliceAttrs(1, 0),
             again=({(0, 1): (3, 3, 6), (1, 1): (3, 3)},)),
        Case("one entry", "slice", (X,), ((B, H),), SliceAttrs(1, 3, drop=True)),
        Case("pad to halves", "pad", ((B, S, 6),), (X,), cut, packed={(1, 2): (6, 6)}, phases=_BACK, tail={(1, 2): 6},
             again=({(1, 2): (6, 3, 3), (0, 2): (3, 3)},)),
        Case("pad one entry", "pad", ((B, H),), (X,), SliceAttrs(1, 3, drop=True), phases=_BACK),
        Case("concat columns", "concat", ((B, S, 6), (B, S, 6)), (X,), ConcatAttrs(2), packed={(2, 2): (6, 6)}, again=(
            {(0, 2): (3, 3), (1, 2): (3, 3), (2, 2): (3, 3, 3, 3)}, {(0, 2): (3, 3), (2, 2): (3, 3, 6)},
            {(1, 2): (3, 3), (2, 2): (6, 3, 3)}), tail={(2, 2): 6}),
        Case("concat rows", "concat", ((6, H), (6, H)), ((12, H),), ConcatAttrs(0), packed={(2, 0): (6, 6)}, again=(
            {(0, 0): (3, 3), (1, 0): (3, 3), (2, 0): (3, 3, 3, 3)}, {(0, 0): (3, 3), (2, 0): (3, 3, 6)},
            {(1, 0): (3, 3), (2, 0): (6, 3, 3)}), tail={(2, 0): 6}),
        Case("embedding", "embedding", ((B, S), (18, H)), (X,), ids={0: 18}, params=(1,), phases=_ONWARD),
        Case("columns by index", "gather", (X, (6,)), ((B, S, 6),), LookupAttrs("abc,d->abd"), ids={1: H}),
        Case("a place in each row", "gather", (X, (B, S, 6)), ((B, S, 6),), LookupAttrs("abc,abd->abd"), ids={1: H}),
        Case("rows added", "scatter", ((12, H), (B,), (B, H)), ((12, H),), LookupAttrs("ab,c,cb->ab", adds=True),
             ids={1: 12}),
        Case("table", "embedding_bwd", (X, (B, S)), ((18, H),), ids={1: 18}, phases=_BACK,
             forward=((R, R), (Shard(0), R), (R, Shard(0)), (R, Shard(1)))),
    ]  # fmt: skip


def _rows() -> list[Case]:
    reduced: list[Case] = []
    for fn in ("sum", "mean", "amax"):
        reduced += [Case(f"{fn} of columns", "reduce", (X,), ((B, S),), ReduceAttrs(fn, (2,))),
                    Case(f"{fn} of rows, kept", "reduce", (X,), ((B, 1, H),), ReduceAttrs(fn, (1,), True)),
                    Case(f"{fn} of two", "reduce", (X,), ((B,),), ReduceAttrs(fn, (1, 2)))]  # fmt: skip
    logits, stats = (B, S, 18), (B, S, 3)
    loss = (3, "cross_entropy", (1, 2), 1, DimAttrs(0))
    return [
        *reduced,
        Case("softmax", "softmax", (X,), (X,), DimAttrs(2)), Case("over rows", "softmax", (X,), (X,), DimAttrs(1)),
        Case("softmax back", "softmax_bwd", (X, X), (X,), DimAttrs(2), phases=_BACK),
        Case("cumsum", "cumsum", (X,), (X,), DimAttrs(1)), Case("sort", "sort", (X,), (X, X), DimAttrs(2)),
        Case("topk", "topk", (X,), ((B, S, 6), (B, S, 6)), DimAttrs(2)),
        Case("rms", "norm", (X, (H,)), (X, (B, S, 1)), NormAttrs("rms"), params=(1,)),
        Case("layer", "norm", (X, (H,), (H,)), (X, (B, S, 1), (B, S, 1)), NormAttrs("layer"), params=(1, 2)),
        Case("rms back", "norm_bwd", (X, X, (B, S, 1), (H,)), (X, (H,)), NormAttrs("rms"), params=(3,), phases=_BACK),
        Case("layer back", "norm_bwd", (X, X, (B, S, 1), (B, S, 1), (H,)), (X, (H,), (H,)), NormAttrs("layer"),
             params=(4,), phases=_BACK),
        Case("loss", "cross_entropy", (logits, (B, S)), ((), stats), ids={1: 18}, phases=_ONWARD),
        Case("loss back", "cross_entropy_bwd", ((), logits, (B, S), stats), (logits,), ids={2: 18}, made=(loss,),
             phases=_BACK),
    ]  # fmt: skip


def _attention() -> list[Case]:
    q, o, lse = (6, 12, 12, 4), (6, 12, 12, 4), (6, 12, 12)
    found: list[Case] = []
    for name, heads, attrs in (
        ("causal", 12, AttentionAttrs()), ("grouped heads", 6, AttentionAttrs(window=3)),
        ("one head", 1, AttentionAttrs()), ("both ways", 12, AttentionAttrs(causal=False)),
        ("sinks and cap", 12, AttentionAttrs(sinks=True, softcap=2.0)),
        ("bias", 12, AttentionAttrs(causal=False, bias=True)),
    ):  # fmt: skip
        k = (6, heads, 12, 4)
        extras: tuple[tuple[int, ...], ...] = ((12,),) * attrs.sinks + ((6, 12, 12, 12),) * attrs.bias
        axes = ("tp", "dp", "cp") if name != "bias" else ("tp", "dp")
        dims = (2, 2, 2, *(-1,) * len(extras))
        found.append(Case(name, "attention", (q, k, k, *extras), (o, lse), attrs, phases=_ONWARD, axes=axes,
                          sequence=(*dims, 1, 2)))  # fmt: skip
        given = (1, 2, 3, *range(6, 6 + len(extras)))
        made = ((4, "attention", given, 0, attrs), (5, "attention", given, 1, attrs))
        found.append(Case(f"{name} back", "attention_bwd", (o, q, k, k, o, lse, *extras), (q, k, k, *extras), attrs,
                          made=made, phases=_BACK, axes=axes, forward=((), (Shard(2), R, R)),
                          sequence=(1, *dims[:3], 1, 2, *dims[3:], *dims)))  # fmt: skip
    found += [
        Case("indexer", "index_keys", ((6, 6, 12, 4), (6, 1, 12, 4), (6, 12, 6)), ((6, 12, 3),), IndexAttrs(3)),
        Case("append", "kv_append", ((6, 6, 12, 4), (6, 6, 6, 4)), ((6, 6, 18, 4),), KvAppendAttrs(2), phases=_ONWARD),
        Case("first", "kv_append", ((6, 6, 12, 4),), ((6, 6, 12, 4),), KvAppendAttrs(2), phases=_ONWARD),
    ]  # fmt: skip
    return found


def _experts() -> list[Case]:
    x, idx, w, up, down = (36, 6), (36, 2), (36, 2), (6, 12, 6), (6, 6, 6)
    rows, wide = (72, 6), (72, 12)
    gated = ExpertsAttrs()
    saved: tuple[Made, ...] = tuple((6 + k, "experts", (1, 2, 3, 4, 5), 1 + k, gated) for k in range(4))
    kept: tuple[Made, ...] = tuple((4 + k, "expert_bank", (1, 2, 3), 1 + k, gated) for k in range(2))
    experts = (12,) * 6  # rows of each expert, where they lie one expert behind the other
    by_expert = {(0, 0): experts, (3, 0): experts, (4, 0): experts, (5, 0): experts}
    return [
        Case("bank", "experts", (x, idx, w, up, down), (x, rows, wide, rows, rows), gated,
             packed={(3, 1): (6, 6), (7, 1): (6, 6)}, ids={1: 6}, even=1, params=(3, 4), phases=_ONWARD),
        Case("bank, one half", "experts", (x, idx, w, (6, 12, 6), (6, 6, 12)), (x, rows, wide, wide, rows),
             ExpertsAttrs(gated=False), ids={1: 6}, even=1, params=(3, 4), phases=_ONWARD,
             packed={(3, 1): (6, 6), (7, 1): (6, 6)}),
        Case("bank back", "experts_bwd", (x, x, idx, w, up, down, rows, wide, rows, rows), (x, w, up, down), gated,
             packed={(4, 1): (6, 6), (7, 1): (6, 6), (12, 1): (6, 6)}, ids={2: 6}, even=2, params=(4, 5), made=saved,
             phases=_BACK),
        Case("dispatch", "dispatch", (x, idx), (rows,), RoutedAttrs(), ids={1: 6}, even=1, phases=_ONWARD,
             rows=(2,), packed={(2, 0): experts}),
        Case("own rows", "dispatch", (x, idx), (rows,), RoutedAttrs(own=EP.group), ids={1: 6}, even=1, phases=_ONWARD,
             rows=(2,), packed={(2, 0): experts}, own=True, axes=("ep",)),
        Case("dispatch back", "dispatch_bwd", (rows, idx), (x,), RoutedAttrs(), ids={1: 6}, even=1, phases=_BACK,
             rows=(0,), packed={(0, 0): experts}),
        Case("own rows back", "dispatch_bwd", (rows, idx), (x,), RoutedAttrs(own=EP.group), ids={1: 6}, even=1,
             phases=_BACK, rows=(0,), packed={(0, 0): experts}, own=True, axes=("ep",)),
        Case("combine", "combine", (rows, w, idx), (x,), RoutedAttrs(), ids={2: 6}, even=2, phases=_ONWARD, rows=(0,),
             packed={(0, 0): experts}),
        Case("combine own", "combine", (rows, w, idx), (x,), RoutedAttrs(own=EP.group), ids={2: 6}, even=2,
             phases=_ONWARD, rows=(0,), packed={(0, 0): experts}, own=True, axes=("ep",)),
        Case("combine back", "combine_bwd", (x, rows, w, idx), (rows, w), RoutedAttrs(), ids={3: 6}, even=3,
             phases=_BACK, rows=(1, 4), packed={(1, 0): experts, (4, 0): experts}),
        Case("combine own back", "combine_bwd", (x, rows, w, idx), (rows, w), RoutedAttrs(own=EP.group), ids={3: 6},
             even=3, phases=_BACK, rows=(1, 4), packed={(1, 0): experts, (4, 0): experts}, own=True, axes=("ep",)),
        Case("rows", "expert_bank", (rows, up, down), (rows, wide, rows), gated, params=(1, 2), phases=_ONWARD,
             packed={**by_expert, (1, 1): (6, 6), (4, 1): (6, 6)}, rows=(0, 3, 4, 5), axes=("tp", "dp", "ep")),
        Case("rows back", "expert_bank_bwd", (rows, rows, up, down, wide, rows), (rows, up, down), gated, made=kept,
             packed={**by_expert, (1, 0): experts, (6, 0): experts, (2, 1): (6, 6), (4, 1): (6, 6), (7, 1): (6, 6)},
             rows=(0, 1, 4, 5, 6), params=(2, 3), phases=_BACK, axes=("tp", "dp", "ep")),
    ]  # fmt: skip


def _scans() -> list[Case]:
    v, q, g, state = (6, 4, 6, 2), (6, 4, 6, 3), (6, 4, 6), (6, 6, 3, 2)
    one = (6, 4, 1, 3)
    depthwise = ConvAttrs((1,), (0,), (1,), causal=True, activation="silu")
    dense = ConvAttrs((1,), (1,), (1,))
    return [
        Case("delta", "scan", (v, q, q, g, g), (v, state), ScanAttrs("delta"), phases=_ONWARD),
        Case("state space", "scan", (v, one, one, g, (6,), (6,)), (v, state), ScanAttrs("ssd"), phases=_ONWARD),
        Case("from a state", "scan", (v, q, q, g, g, state), (v, state), ScanAttrs("delta", 0, True), phases=_ONWARD),
        Case("delta back", "scan_bwd", (v, v, q, q, g, g), (v, q, q, g, g), ScanBwdAttrs("delta", 0, False, 3),
             phases=_BACK),
        Case("state space back", "scan_bwd", (v, v, one, one, g, (6,), (6,)), (v, one, one, g, (6,), (6,)),
             ScanBwdAttrs("ssd", 0, False, 3), phases=_BACK),
        Case("short", "conv", ((6, 6, 12), (6, 1, 3), (6,)), ((6, 6, 12),), depthwise, params=(1, 2), phases=_ONWARD),
        Case("short back", "conv_bwd", ((6, 6, 12), (6, 6, 12), (6, 1, 3), (6,)), ((6, 6, 12), (6, 1, 3), (6,)),
             depthwise, params=(2, 3), phases=_BACK),
        Case("dense", "conv", ((6, 6, 12), (12, 6, 3), (12,)), ((6, 12, 12),), dense, params=(1, 2), phases=_ONWARD),
        Case("dense back", "conv_bwd", ((6, 12, 12), (6, 6, 12), (12, 6, 3)), ((6, 6, 12), (12, 6, 3), (12,)), dense,
             params=(2,), phases=_BACK),
        Case("kept", "keep_state", (state,), (state,), phases=_ONWARD),
    ]  # fmt: skip


def _images() -> list[Case]:
    """Pools of two positions, and norms: of a channel over all samples, of a sample's three groups of channels."""
    x, y, group = (6, 6, 12), (6, 6, 6), (6, 3)
    pool, back = WindowAttrs("avg", "abc->abd", 2), WindowAttrs("avg", "abc,abd->abe", 2, 1)
    batch = ChannelNormAttrs("batch", "abc,b,b->abc,b,b")
    batch_back = ChannelNormAttrs("batch", "abc,abc,b,b,b->abc,b,b")
    groups = ChannelNormAttrs("group", "abc,e,e->abc,ad,ad")
    groups_back = ChannelNormAttrs("group", "abc,abc,e,ad,ad->abc,e,e")
    of_batch = tuple((3 + k, "channel_norm", (1, 2, 2), 1 + k, batch) for k in range(2))
    of_groups = tuple((3 + k, "channel_norm", (1, 2, 2), 1 + k, groups) for k in range(2))
    c = (6,)
    return [
        Case("pairs", "window", (x,), (y,), pool, phases=_ONWARD),
        Case("pairs back", "window_bwd", (y, x), (x,), back, phases=_BACK),
        Case("over samples", "channel_norm", (x, c, c), (x, c, c), batch, params=(1, 2), phases=_ONWARD, axes=("tp",)),
        Case("over samples back", "channel_norm_bwd", (x, x, c, c, c), (x, c, c), batch_back, params=(2,),
             made=of_batch, phases=_BACK, axes=("tp",)),
        Case("groups", "channel_norm", (x, c, c), (x, group, group), groups, params=(1, 2), phases=_ONWARD),
        Case("groups back", "channel_norm_bwd", (x, x, c, group, group), (x, c, c), groups_back, params=(2,),
             made=of_groups, phases=_BACK),
    ]  # fmt: skip


CASES = (*_pointwise(), *_products(), *_layout(), *_rows(), *_attention(), *_experts(), *_scans(), *_images())
