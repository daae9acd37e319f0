"""What models become: the same work and parameters as recorded ones, fused operators as one node, bodies, folding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from slipstick.frontend import GraphCache, load
from slipstick.frontend.onnx import load_onnx
from slipstick.ir.errors import NotUnderstoodError, TraceError
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.ops import work_of
from slipstick.ir.sizes.expr import Expr, symbol, total

from .conftest import Writer

Save = Callable[[onnx.ModelProto], Path]
HALF = TensorProto.FLOAT16
batch, seq, kv = symbol("batch"), symbol("seq"), symbol("kv")


def flops(graph: Graph) -> Expr:
    return total(work_of(r, n).tensor_flops * graph.counts[r.name] for r in graph.regions for n in r.nodes)


def ops(graph: Graph) -> list[str]:
    return [n.op for r in graph.regions for n in r.nodes]


def one(graph: Graph, op: str) -> list[str]:
    """The types of the inputs of the only node of an op."""
    ((region, node),) = [(r, n) for r in graph.regions for n in r.nodes if n.op == op]
    return [str(t) for t in region.types(node.inputs)]


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-llama-optimised"])
def test_an_exported_llama_does_the_work_of_the_recorded_one(name: str, exported: Path) -> None:
    """Of one layer 2 x (64 x 64 x 2 + 64 x 32 x 2 + 3 x 64 x 96) FLOPs a token, scores and values 4 x 64 a pair."""
    graph = load_onnx(exported / f"{name}.onnx")
    tokens = batch * seq
    layers = tokens * (2 * 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96)) + tokens * seq * (2 * 4 * 64)
    assert flops(graph) == layers + tokens * (2 * 64 * 160)
    assert [(run.regions, run.count) for run in graph.schedule][1:-1] == [(("block0",), 2)]


def test_an_exported_llama_has_the_parameters_of_the_recorded_one(exported: Path, configs: Path) -> None:
    pytest.importorskip("transformers", reason="builds the model; install slipstick[hf]")
    graph = load_onnx(exported / "tiny-llama.onnx")
    recorded = load(str(configs / "tiny-llama.json"), "prefill", "fp32")
    assert graph.num_parameters == recorded.num_parameters

    def named(g: Graph) -> dict[str, str]:
        return {v.name: str(v.type) for r in g.regions for v in r.of_role(Role.PARAM)}

    assert named(graph) == named(recorded)


def test_a_training_step_does_the_work_of_the_recorded_one(exported: Path, configs: Path) -> None:
    """The file attends in single steps where its mask is no plain one: of backward attention 4 products, not 5."""
    pytest.importorskip("transformers", reason="builds the model; install slipstick[hf]")
    graph = load_onnx(exported / "tiny-llama.onnx", "train")
    recorded = load(str(configs / "tiny-llama.json"), "train", "fp32")

    def products(g: Graph, phase: Phase) -> Expr:
        """Of weights alone: matmuls one of whose operands, or whose result, is one."""
        weights = ("[64, 64]", "[32, 64]", "[96, 64]", "[64, 96]", "[160, 64]")
        return total(
            work_of(r, n).tensor_flops * g.counts[r.name]
            for r in g.regions
            for n in r.nodes
            if n.op == "matmul" and n.phase is phase
            if any(str(t).endswith(weights) for t in (*r.types(n.inputs), *r.types(n.outputs)))
        )

    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert products(graph, phase) == products(recorded, phase)
    assert sum(len(r.grads) * graph.counts[r.name] for r in graph.regions) == 2 * 9 + 3
    assert graph.schedule[1:-1] == recorded.schedule[1:-1]


def attention_layer(w: Writer, layer: int, x: str) -> str:
    """Packed 4-bit projections around GroupQueryAttention with a cache, as the builder of onnxruntime-genai writes."""
    at, path = f"/model/layers.{layer}/attn", f"model.layers.{layer}.attn"
    wide = _bits(w, x, f"{at}/qkv_proj/MatMul_Q4", f"{path}.qkv_proj.MatMul", 128, 64)
    past = [w.input(f"past_key_values.{layer}.{what}", ("batch_size", 2, "past_sequence_length", 16), HALF)
            for what in ("key", "value")]  # fmt: skip
    made = [f"a{layer}", f"present.{layer}.key", f"present.{layer}.value"]
    node = "GroupQueryAttention"
    w.node(node, [wide, "", "", *past, "lengths", "total", "cos_cache", "sin_cache"], made, "com.microsoft",
           f"{at}/{node}", num_heads=4, kv_num_heads=2, do_rotary=1, local_window_size=32)  # fmt: skip
    return _bits(w, made[0], f"{at}/o_proj/MatMul_Q4", f"{path}.o_proj.MatMul", 64, 64)


def _bits(w: Writer, x: str, name: str, weight: str, n: int, k: int) -> str:
    packed = w.weight(f"{weight}.weight_Q4", (n, k // 32, 16), TensorProto.UINT8)
    scales = w.weight(f"{weight}.weight_scales", (n * k // 32,), HALF)
    return w.node("MatMulNBits", [x, packed, scales], "", "com.microsoft", name, N=n, K=k, bits=4, block_size=32)


def genai(w: Writer, num_layers: int = 3) -> onnx.ModelProto:
    ids = w.input("input_ids", ("batch_size", "sequence_length"), TensorProto.INT64)
    w.input("lengths", ("batch_size",), TensorProto.INT32)
    w.input("total", (), TensorProto.INT32)
    w.weight("cos_cache", (4096, 8), HALF)
    w.weight("sin_cache", (4096, 8), HALF)
    x = w.node(
        "Gather", [w.weight("model.embed_tokens.weight", (160, 64), HALF), ids], name="/model/embed_tokens/Gather"
    )
    for layer in range(num_layers):
        gain = w.weight(f"model.layers.{layer}.input_layernorm.weight", (64,), HALF)
        name = f"/model/layers.{layer}/input_layernorm/LayerNorm"
        y = w.node("SimplifiedLayerNormalization", [x, gain], name=name, epsilon=1e-5)
        x = w.node("Add", [x, attention_layer(w, layer, y)], name=f"/model/layers.{layer}/Add")
    return w.model(x, *(f"present.{n}.{what}" for n in range(num_layers) for what in ("key", "value")))


def test_a_decode_step_of_fused_operators(writer: Writer, saved: Save) -> None:
    graph = load_onnx(saved(genai(writer)), "decode")
    assert [(run.regions, run.count) for run in graph.schedule][1:-1] == [(("block0",), 3)]
    assert one(graph, "attention") == ["fp16[batch, 4, 1, 16]", *["fp16[batch, 2, kv + 1, 16]"] * 2]
    names = {v.name: str(v.type) for v in graph.region("block0").of_role(Role.PARAM, Role.CACHE)}
    assert names["cache.*.keys"] == names["cache.*.values"] == "fp16[batch, 2, kv, 16]"
    assert names["model.layers.*.attn.qkv_proj.weight"] == "int4[128, 64]"
    assert names["model.layers.*.attn.qkv_proj.weight.scales"] == "fp16[128, 2]"
    assert flops(graph) == batch * (3 * 2 * (128 * 64 + 64 * 64)) + batch * (kv + 1) * (3 * 4 * 4 * 16)
    weights = [work_of(r, n).read_bytes for r in graph.regions for n in r.nodes if n.op == "matmul"]
    # Half a byte an element, two for 32 of them, rows of 64 halves in.
    assert weights[0] == 128 * 64 // 2 + 128 * 2 * 2 + batch * 64 * 2


def test_a_prefill_of_the_same_file_has_nothing_cached(writer: Writer, saved: Save) -> None:
    graph = load_onnx(saved(genai(writer)), "prefill")
    assert one(graph, "attention") == ["fp16[batch, 4, seq, 16]", *["fp16[batch, 2, seq, 16]"] * 2]
    (attrs,) = [n.attrs for r in graph.regions for n in r.nodes if n.op == "attention"]
    assert str(attrs).startswith("AttentionAttrs(causal=True, window=32,")
    assert not [v for r in graph.regions for v in r.of_role(Role.CACHE)]


def test_a_cache_of_fixed_length_is_a_buffer_that_fills(writer: Writer, saved: Save) -> None:
    q, kinds = writer.input("q", ("batch", "seq", 64)), ("batch", 4, 512, 16)
    past = [writer.input(f"past_{what}_0", kinds) for what in ("key", "value")]
    writer.contrib("GroupQueryAttention", [q, q, q, *past, "", ""], ["y", "k", "v"], num_heads=4, kv_num_heads=4)
    graph = load_onnx(saved(writer.model("y", "k", "v")), "decode")
    assert one(graph, "attention")[1] == "fp32[batch, 4, kv + 1, 16]"
    assert graph.max_positions == 512


def _split_attention(w: Writer) -> str:
    x = w.input("x", ("batch", "seq", 64))
    return w.contrib("Attention", [x, w.weight("w", (64, 192)), w.weight("b", (192,))], num_heads=4, unidirectional=1)


def _multi_head(w: Writer) -> str:
    x = w.input("x", ("batch", "seq", 64))
    qkv = [w.node("MatMul", [x, w.weight(name, (64, 64))]) for name in "qkv"]
    return w.contrib("MultiHeadAttention", [*qkv, w.weight("bias", (192,))], num_heads=4, unidirectional=1)


def _standard(w: Writer) -> str:
    x = w.input("x", ("batch", "seq", 64))
    qkv = [w.node("MatMul", [x, w.weight(name, (64, 64))]) for name in "qkv"]
    return w.node("Attention", qkv, q_num_heads=4, kv_num_heads=4, is_causal=1)


@pytest.mark.parametrize("build", [_split_attention, _multi_head, _standard])
def test_operators_of_attention_do_the_same_work(build: Callable[[Writer], str], writer: Writer, saved: Save) -> None:
    """Three projections of 64 to 64, then four heads of 16: 2 x 2 x 64 FLOPs a pair of positions."""
    graph = load_onnx(saved(writer.model(build(writer), opset=24)))
    assert flops(graph) == batch * seq * (2 * 3 * 64 * 64) + batch * seq * seq * (4 * 64)
    assert one(graph, "attention")[:3] == ["fp32[batch, 4, seq, 16]"] * 3


def test_paged_attention_reads_what_each_sequence_cached(writer: Writer, saved: Save) -> None:
    w = writer
    qkv = [w.input(name, ("num_tokens", width), HALF) for name, width in (("q", 64), ("k", 32), ("v", 32))]
    pools = [w.input(f"{what}_cache.0", ("num_blocks", 256, 2, 16), HALF) for what in ("key", "value")]
    ends, pasts = w.input("ends", (4,), TensorProto.INT32), w.input("pasts", ("batch",), TensorProto.INT32)
    blocks = w.input("table", ("batch", 7), TensorProto.INT32)
    y = w.contrib("PagedAttention", [*qkv, *pools, ends, pasts, blocks], ["y", "", ""], num_heads=4, kv_num_heads=2)
    graph = load_onnx(saved(w.model(y)), "decode")
    assert one(graph, "attention") == ["fp16[batch, 4, 1, 16]", *["fp16[batch, 2, kv + 1, 16]"] * 2]


@pytest.mark.parametrize(("third", "activation"), [(False, "swiglu"), (True, "silu")])
def test_a_bank_of_experts_is_one_node(third: bool, activation: str, writer: Writer, saved: Save) -> None:
    """Two of eight experts a token: 2 x (64 x 96 x 2 + 96 x 64) FLOPs each."""
    w = writer
    x = w.input("x", ("batch", "seq", 64))
    rows = w.node("Reshape", [x, w.ints("rows", [-1, 64])])
    router = w.node("MatMul", [rows, w.weight("router", (64, 8))])
    up, down = w.weight("up", (8, 96 if third else 192, 64)), w.weight("down", (8, 64, 96))
    more = [w.weight("gate", (8, 96, 64))] if third else []
    w.contrib("MoE", [rows, router, up, "", down, "", *more], "y", k=2, activation_type=activation)
    graph = load_onnx(saved(w.model("y")))
    assert one(graph, "experts")[3:] == ["fp32[8, 192, 64]", "fp32[8, 64, 96]"]
    assert flops(graph) == batch * seq * (2 * 64 * 8) + batch * seq * (2 * 2 * (64 * 192 + 96 * 64))


def test_quantised_experts_rest_in_four_bits(writer: Writer, saved: Save) -> None:
    w = writer
    rows, router = w.input("x", ("num_tokens", 64), HALF), w.input("router", ("num_tokens", 8), HALF)
    banks = [w.weight("up", (8, 96, 32), TensorProto.UINT8), w.weight("us", (8, 96), HALF), "",
             w.weight("down", (8, 64, 48), TensorProto.UINT8), w.weight("ds", (8, 64), HALF), ""]  # fmt: skip
    graph = load_onnx(saved(w.model(w.contrib("QMoE", [rows, router, *banks], k=1, expert_weight_bits=4))))
    assert one(graph, "experts")[3:] == ["int4_group[8, 96, 64]", "int4_group[8, 64, 96]"]


def test_a_weight_that_is_widened_for_a_product_stays_narrow(writer: Writer, saved: Save) -> None:
    w = writer
    x, scale = w.input("x", ("batch", "seq", 64)), w.weight("s", (32,))
    wide = w.node("DequantizeLinear", [w.weight("w", (32, 64), TensorProto.INT8), scale], axis=0)
    graph = load_onnx(saved(w.model(w.node("MatMul", [x, w.node("Transpose", [wide], perm=[1, 0])]))))
    assert ops(graph) == ["matmul"]
    assert one(graph, "matmul")[:2] == ["fp32[batch, seq, 64]", "int8[32, 64]"]


def test_a_convolution_is_one_node(writer: Writer, saved: Save) -> None:
    """A patch of 14 x 14 of three channels to 64: 2 x 3 x 14 x 14 x 64 FLOPs each, 16 x 16 of them."""
    image = writer.input("image", ("batch", 3, 224, 224))
    y = writer.node("Conv", [image, writer.weight("w", (64, 3, 14, 14))], strides=[14, 14])
    assert flops(load_onnx(saved(writer.model(y)))) == batch * (16 * 16 * 2 * 3 * 14 * 14 * 64)


def test_an_unknown_operator_is_kept_on_request_where_its_results_are_declared(writer: Writer, saved: Save) -> None:
    x = writer.input("x", ("batch", "seq", 8))
    y = writer.contrib("Celtic", [x], "y")
    model = writer.model(writer.node("Relu", [y]))
    with pytest.raises(NotUnderstoodError, match=r"'com.microsoft.Celtic'.*its results are not declared in the file"):
        load_onnx(saved(model), allow_unpriced=True)
    model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "seq", 4]))
    graph = load_onnx(saved(model), allow_unpriced=True)
    assert ops(graph) == ["unpriced", "elementwise"]
    assert "com.microsoft.Celtic (1 call)" in graph.notes[-1]
    with pytest.raises(NotUnderstoodError, match="1 operator"):
        load_onnx(saved(model))


def test_a_known_condition_takes_its_branch_and_another_the_costlier(writer: Writer, saved: Save) -> None:
    w = writer
    x = w.input("x", ("batch", "seq", 64))
    cheap = helper.make_graph([helper.make_node("Relu", ["x"], ["a"])], "c", [], [onnx.ValueInfoProto(name="a")])
    dear = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["b"])], "d", [], [onnx.ValueInfoProto(name="b")])
    w.weight("w", (64, 64))
    short = w.node("Less", [w.node("Gather", [w.node("Shape", [x]), w.ints("at", [1])]), w.ints("limit", [4096])])
    y = w.node("If", [short], then_branch=dear, else_branch=cheap)
    z = w.node("If", [w.input("flag", (1,), TensorProto.BOOL)], name="maybe", then_branch=cheap, else_branch=dear)
    graph = load_onnx(saved(w.model(y, z)))
    assert ops(graph) == ["matmul", "matmul"]
    assert "If 'maybe' depends on data: its else branch, the costlier, counts" in graph.notes
    assert any("seq < 4096 is taken for granted" in note for note in graph.notes)


def _loop(w: Writer, trips: str) -> str:
    x = w.input("x", ("batch", "seq", 64))
    value = helper.make_tensor_value_info
    inside = [helper.make_node("MatMul", ["state", "w"], ["next"]), helper.make_node("Identity", ["going"], ["on"])]
    body = helper.make_graph(
        inside, "body",
        [value("i", TensorProto.INT64, []), value("going", TensorProto.BOOL, []), value("state", 1, None)],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="next")],
    )  # fmt: skip
    w.weight("w", (64, 64))
    return w.node("Loop", [trips, "", x], body=body)


def test_a_loop_is_written_out(writer: Writer, saved: Save) -> None:
    graph = load_onnx(saved(writer.model(_loop(writer, writer.ints("trips", [5])))))
    assert flops(graph) == batch * seq * (5 * 2 * 64 * 64)


def test_a_loop_without_an_end_says_so(writer: Writer, saved: Save) -> None:
    trips = writer.input("trips", (1,), TensorProto.INT64)
    with pytest.raises(TraceError, match="Loop node 'Loop_0': how often the Loop runs depends on data"):
        load_onnx(saved(writer.model(_loop(writer, trips))))


def test_a_scan_runs_its_body_once_an_entry(writer: Writer, saved: Save) -> None:
    w = writer
    value = helper.make_tensor_value_info
    inside = [helper.make_node("MatMul", ["entry", "w"], ["up"]), helper.make_node("Add", ["state", "up"], ["next"])]
    body = helper.make_graph(inside, "body", [value("state", 1, None), value("entry", 1, None)],
                             [onnx.ValueInfoProto(name="next"), onnx.ValueInfoProto(name="up")])  # fmt: skip
    w.weight("w", (16, 16))
    first, rows = w.input("first", ("batch", 16)), w.input("rows", (7, "batch", 16))
    w.node("Scan", [first, rows], ["last", "all"], body=body, num_scan_inputs=1)
    graph = load_onnx(saved(w.model("last", "all")))
    assert flops(graph) == batch * (7 * 2 * 16 * 16)


def test_local_functions_are_written_out(writer: Writer, saved: Save) -> None:
    inside = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Softmax", ["c"], ["d"])]
    inside[1].attribute.add(name="axis", ref_attr_name="along", type=onnx.AttributeProto.INT)
    function = helper.make_function(
        "own", "Scored", ["a", "b"], ["d"], inside, [helper.make_opsetid("", 21)], ["along"]
    )
    writer.functions.append(function)
    x, weight = writer.input("x", ("batch", "seq", 64)), writer.weight("w", (64, 8))
    graph = load_onnx(saved(writer.model(writer.node("Scored", [x, weight], domain="own", along=1))))
    assert ops(graph) == ["matmul", "softmax"]
    assert str(graph.regions[0].nodes[1].attrs) == "DimAttrs(dim=1, across=False)"


def test_layers_without_names_fold_by_what_their_weights_are_called(writer: Writer, saved: Save) -> None:
    w = writer
    ids = w.input("input_ids", ("batch", "seq"), TensorProto.INT64)
    x = w.node("Gather", [w.weight("wte.weight", (160, 64)), ids])
    for layer in range(4):
        y = w.node("MatMul", [x, w.weight(f"h.{layer}.mlp.c_fc.weight", (64, 64))])
        x = w.node("Add", [x, w.node("Relu", [y])])
    graph = load_onnx(saved(w.model(w.node("MatMul", [x, w.weight("lm_head.weight", (64, 160))]))))
    assert [(run.regions, run.count) for run in graph.schedule][1:-1] == [(("block0",), 4)]
    assert len(graph.region("epilogue").nodes) == 1


def test_a_graph_is_kept_by_the_bytes_of_its_file_and_its_sizes(writer: Writer, saved: Save, tmp_path: Path) -> None:
    path = saved(writer.model(writer.node("Relu", [writer.input("x", ("rows", 8))])))
    cache = GraphCache(tmp_path / "cache")
    sizes: tuple[Mapping[str, str], ...] = ({"rows": "5"}, {"rows": "6"}, {"rows": "5"})
    found = [str(load(str(path), "prefill", cache=cache, dims=dims).regions[0].values[0].type) for dims in sizes]
    assert found == ["fp32[5, 8]", "fp32[6, 8]", "fp32[5, 8]"]
    assert len(list((tmp_path / "cache" / "graphs").iterdir())) == 2
