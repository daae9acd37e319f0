"""Mixtures of experts against dense models: expert parallelism, capacity and imbalance, and what exchanges cost.

DeepSpeed-MoE has experts in every other layer, one of 128 for a token (1.3B+MoE-128, arXiv 2201.05596, here with gated
experts of as many parameters); Mixtral two of 8 in every layer; DeepSeek-V3 eight of 256 and a shared one, sent to four
nodes at most and in fp8. Beside each stands a dense model of about as many active parameters.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drawing import beside, stacked
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.frontend import config_of, load_config

CACHE = slipstick.GraphCache.default()
SEQ_LEN = 2048
DENSE = {
    "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 24, "head_dim": 128,
    "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 51200, "max_position_embeddings": SEQ_LEN,
    "tie_word_embeddings": False,
}  # fmt: skip
SPARSE = {
    **DENSE, "model_type": "qwen3_moe", "decoder_sparse_step": 2, "num_experts": 128, "num_experts_per_tok": 1,
    "moe_intermediate_size": 5504, "mlp_only_layers": [], "norm_topk_prob": False,
}  # fmt: skip
OWN = {"dense-1.3b": DENSE, "deepspeed-moe-1.3b-128": SPARSE}


class Setup(NamedTuple):
    """A model on so many GPUs, and how it is split; `nodes` limits the nodes that a token is sent to."""

    model: str
    gpus: int
    tp: int = 1
    pp: int = 1
    recompute: str = "none"
    nodes: int = 0
    dispatch: str = "same"


class Experts(NamedTuple):
    """Expert-parallel degree, rows an expert has room for (None: all that come), rows of the busiest rank."""

    ep: int = 1
    capacity: float | None = None
    imbalance: float = 1.0


GROUPS = (
    (Setup("dense-1.3b", 128), (Experts(),)),
    (
        Setup("deepspeed-moe-1.3b-128", 128),
        (*(Experts(ep) for ep in (8, 16, 32, 64, 128)), Experts(128, 1.25), Experts(128, 2.0), Experts(128, None, 1.5)),
    ),
    (Setup("llama-2-13b", 128, tp=2), (Experts(),)),
    (
        Setup("mixtral-8x7b", 128, pp=4),
        (*(Experts(ep) for ep in (1, 2, 4, 8)), Experts(8, 1.25), Experts(8, None, 1.5)),
    ),
    (Setup("llama-3.1-70b", 1024, tp=4, pp=8), (Experts(),)),
    (
        Setup("deepseek-v3", 1024, pp=16, recompute="full", nodes=4, dispatch="fp8"),
        (*(Experts(ep) for ep in (8, 16, 32, 64)), Experts(64, None, 1.5)),
    ),
)  # fmt: skip


def model_of(name: str) -> slipstick.Graph:
    """Return a model of the catalogue, or one of ours from its dimensions."""
    return load_config(config_of(name, OWN[name]), cache=CACHE) if name in OWN else slipstick.load(name, cache=CACHE)


def plan_of(setup: Setup, experts: Experts) -> slipstick.Plan:
    """Return a plan of four sequences a GPU."""
    spread = experts.ep > 1
    family = slipstick.Family(
        sp=setup.tp > 1, zero=1, kernels="fused", pp=setup.pp > 1, recompute=setup.recompute, ep=spread,
        capacity=experts.capacity is not None, imbalance=experts.imbalance != 1,
        dispatch_dtype=setup.dispatch if spread else "same", routing_nodes=setup.nodes if spread else 0,
    )  # fmt: skip
    return slipstick.make_plan(
        num_gpus=setup.gpus, tp=setup.tp, pp=setup.pp, ep=experts.ep, micro_batch=1, global_batch=4 * setup.gpus,
        seq_len=SEQ_LEN, capacity_factor=experts.capacity, expert_imbalance=experts.imbalance, family=family,
    )  # fmt: skip


def make(full: bool) -> Table:
    """Estimate every setup; the reduced grid leaves out the largest models and two degrees."""
    system = slipstick.load_system("dgx-h100", stack="megatron-core")
    rows: list[list[Cell]] = []
    for setup, choices in GROUPS if full else GROUPS[:4]:
        graph = model_of(setup.model)
        for experts in choices:
            found = estimate(graph, system, plan_of(setup, experts))
            step_s, capacity = found.metrics["step_time_s"], experts.capacity or "all"
            exchange = found.breakdown_s.get("comm.ep", 0.0) / step_s
            rows.append([
                setup.model, setup.gpus, experts.ep, capacity, experts.imbalance, step_s,
                found.metrics["tokens_per_s_per_gpu"], found.metrics["model_flop_per_s_per_gpu"] / 1e12, exchange,
                found.metrics["peak_mem_bytes"] / 1e9, "yes" if found.fits else "no",
            ])  # fmt: skip
    columns = ["model", "GPUs", "ep", "capacity", "imbalance", "step (s)", "tokens/s/GPU", "model TFLOP/s/GPU"]
    return Table([*columns, "share of exchanges", "memory (GB)", "fits"], rows, [
        f"H100, bf16, Megatron Core, 4 sequences of {SEQ_LEN} tokens a GPU; what is left of the GPUs is data parallel.",
        "Share of exchanges: time of all-to-alls that nothing hides, over the step. Experts that few ranks hold cost "
        "gradients and memory, experts that many hold cost exchanges between nodes.",
    ])  # fmt: skip


def conclude(table: Table) -> Iterator[str]:
    """Say what exchanges take as experts spread over more ranks, and what capacity and imbalance cost."""
    plain = table.only({"capacity": "all", "imbalance": 1.0})
    for model, rows in plain.groups("model").items():
        degrees, share = rows.numbers("ep"), rows.numbers("share of exchanges")
        if len(degrees) > 1:
            yield say(
                "Exchanges take {low:.0%} of a step of {model} on {few:g} ranks of experts and {high:.0%} on {many:g}",
                share[-1] > share[0] and degrees[-1] > degrees[0], model=model, low=share[0], few=degrees[0],
                high=share[-1], many=degrees[-1],
            )  # fmt: skip
    slow = [
        step / plain.number("step (s)", {"model": model, "ep": ep}) - 1
        for model, ep, imbalance, step in zip(
            table.column("model"),
            table.numbers("ep"),
            table.numbers("imbalance"),
            table.numbers("step (s)"),
            strict=True,
        )
        if imbalance > 1
    ]
    yield say(
        "Loads of which the busiest rank has {load:g} times the mean lengthen a step by {least:.0%} to {most:.0%}",
        min(slow) > 0, load=max(table.numbers("imbalance")), least=min(slow), most=max(slow),
    )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw throughput and the share of exchanges."""
    names = [f"{model} ep{ep} c={cap} i={load}" for model, _, ep, cap, load, *_ in table.rows]
    beside(panels[0], names, {"tokens/s/GPU": table.numbers("tokens/s/GPU")})
    panels[0].set(yscale="log", ylabel="tokens/s/GPU")
    share = table.numbers("share of exchanges")
    stacked(panels[1], names, {"exchanges": share})
    panels[1].set_ylabel("share of the step")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude, panel_in=4.4)
