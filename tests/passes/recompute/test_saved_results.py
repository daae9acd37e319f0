"""Results kept and offloaded by name: bytes of a layer of Llama 3.1 8B, derived by hand as in test_recompute_policies.

A token keeps, in bf16: the layer's input 2h, attention 2h with a log-sum-exp of 4 bytes a head, gate 2f, up 2f.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.cost.memory.states import copied_bytes, kept_bytes
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError, UnknownNameError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import Expr
from slipstick.passes.manager import parse_pipeline
from slipstick.passes.recompute.modules import named_results, result_name

H, F, HEADS = 4096, 14336, 32
ATTENTION = 2 * H + 4 * HEADS
# Rotary tables are inputs of a layer: cosine and sine of 128 in bf16, which all layers share.
INPUT = 2 * H
Recomputed = Callable[[str], Graph]


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load("llama-3.1-8b")


@pytest.fixture(scope="module")
def recomputed(llama: Graph) -> Recomputed:
    return lambda options: parse_pipeline(f"shard,recompute{{{options}}}").run(llama)[0]


def per_token(size: Expr) -> float:
    return float(size.evaluate({"mbs": 1.0, "seq": 2048.0, "tp": 1.0, "dp": 1.0})) / 2048


def kept(graph: Graph, name: str = "block0") -> float:
    return per_token(kept_bytes(graph.region(name)))


@pytest.mark.parametrize(
    ("names", "num_bytes"),
    [
        ('"core_attn"', ATTENTION),
        ('"self_attn:attention"', ATTENTION),
        ('"mlp.gate_proj"', 2 * F),
        ('"mlp.gate_proj", "mlp.up_proj"', 4 * F),
        ('"mlp.*_proj", "self_attn:att*"', 4 * F + ATTENTION),
    ],
)
def test_named_results_are_kept_beside_the_input(recomputed: Recomputed, names: str, num_bytes: int) -> None:
    full = kept(recomputed('policy="full"'))
    assert kept(recomputed(f'policy="save", save=[{names}]')) - full == num_bytes


def test_nothing_named_is_full_recomputation(recomputed: Recomputed) -> None:
    assert recomputed('policy="save"') == recomputed('policy="full"')


def test_what_is_kept_does_not_run_again(recomputed: Recomputed) -> None:
    def again(options: str) -> set[str]:
        region = recomputed(options).region("block0")
        return {n.scope.split(".")[-1] for n in region.nodes if n.phase is Phase.RECOMPUTE}

    assert {"gate_proj", "up_proj"} <= again('policy="full"')
    assert "gate_proj" not in again('policy="save", save=["mlp.gate_proj"]')
    assert "up_proj" in again('policy="save", save=["mlp.gate_proj"]')


def test_other_layers_keep_the_rest_or_everything(recomputed: Recomputed) -> None:
    some = recomputed('policy="save", save=["core_attn"], layers=3')
    assert kept(some) == kept(recomputed('policy="none"'))
    rest = recomputed('policy="save", save=["core_attn"], rest=["mlp.gate_proj"], layers=3')
    assert kept(rest, "block0_recomputed") == kept(recomputed('policy="save", save=["core_attn"]'))
    assert kept(rest) == kept(recomputed('policy="save", save=["mlp.gate_proj"]'))
    assert rest.counts["block0_recomputed"] == 3
    assert rest.counts["block0"] == 29


def test_every_result_has_a_name_that_finds_it(recomputed: Recomputed) -> None:
    region = recomputed('policy="none"').region("block0")
    for node in region.nodes:
        if node.phase is Phase.FORWARD and node.op not in ("reshape", "permute"):
            assert node.key in named_results(region, [result_name(region, node)])


def test_only_named_results_go_to_the_host(llama: Graph) -> None:
    def offloaded(modules: tuple[str, ...]) -> float:
        family = Family(recompute="save", recompute_save=("core_attn", "mlp.gate_proj"), offload=("activations",),
                        offload_modules=modules)  # fmt: skip
        return per_token(copied_bytes(lower(llama, family).graph.region("block0")))

    assert offloaded(("mlp.gate_proj",)) == 2 * F
    assert offloaded(("core_attn",)) == ATTENTION
    # All that layers keep: the input too, which the layer before has made.
    assert offloaded(()) == 2 * F + ATTENTION + INPUT


def test_layers_by_chunk_are_those_of_each_stage(llama: Graph) -> None:
    from slipstick.backends.machine.load import load_system

    def step(**words: object) -> tuple[float, list[float]]:
        family = Family(pp=True, recompute="full", **words)  # type: ignore[arg-type]
        plan = make_plan(num_gpus=4, pp=4, seq_len=2048, global_batch=16, family=family)
        answer = estimate(llama, load_system("dgx-h100"), plan)
        counts = answer.table.staging
        place = counts.regions.index("block0_recomputed")
        classes = counts.rows[0]
        return answer.metrics["step_time_s"], [float(counts.counts[0, cls, place]) for cls in classes]

    alike, apart = step(recompute_layers=3), step(recompute_by_chunk="3,3,3,3")
    assert alike == apart
    fewer, layers = step(recompute_by_chunk="3,2,1,0")
    assert layers == [3, 2, 1, 0]
    assert fewer <= alike[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"recompute_save": ("mlp",)}, "goes with the policy 'save'"),
        ({"recompute": "save", "recompute_save_rest": ("mlp",)}, "of layers behind --recompute-layers"),
        ({"recompute": "full", "recompute_by_chunk": "1,x"}, "layers of each chunk, as 4,3,1,0"),
        ({"recompute": "full", "recompute_by_chunk": "0,0"}, "not all of them 0"),
        ({"recompute": "selective", "recompute_by_chunk": "1"}, "goes with the policies 'full' and 'save'"),
        ({"offload_modules": ("mlp",)}, "use --offload activations"),
    ],
)
def test_words_that_say_nothing_are_refused(words: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(num_gpus=1, seq_len=2048, family=Family(**words))  # type: ignore[arg-type]


def test_a_list_must_name_each_chunk(llama: Graph) -> None:
    from slipstick.backends.machine.load import load_system

    family = Family(pp=True, recompute="full", recompute_by_chunk="3,3")
    plan = make_plan(num_gpus=4, pp=4, seq_len=2048, global_batch=16, family=family)
    with pytest.raises(PlanError, match="the chunks have 8,8,8,8 layers"):
        estimate(llama, load_system("dgx-h100"), plan)


def test_a_name_of_nothing_is_refused_with_those_there_are(recomputed: Recomputed) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'mlp\.gate_proj'"):
        recomputed('policy="save", save=["mlp.gate_prj"]')
