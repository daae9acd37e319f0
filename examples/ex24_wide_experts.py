"""Experts on many ranks: popular experts, copies of them, and batches in halves, beside published servers of DeepSeek.

Published: DeepSeek's own service on H800 (open-infra-index, "DeepSeek-V3/R1 Inference System Overview", 2025-02: 73.7k
tokens/s a node of prompts, of which 56.3 % are cached, 14.8k of answers, 4,989 tokens of context, 20 to 22 tokens/s a
user), and SGLang's on 96 H100 (lmsys.org/blog/2025-05-05-large-scale-ep: 52.3k and 22.3k tokens/s a node for prompts of
2,000 tokens, EPLB 1.49 times as fast in prompts and 2.54 times in answers).
"""

from collections.abc import Iterator, Sequence
from functools import cache

from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.passes.experts.popularity import busiest_of

MODEL, LAW = "deepseek-v3", "power:1.01"
# FP8 to the experts, bf16 back, a token on four nodes at most: arXiv 2412.19437, sections 3.2 and 3.3.
WORDS: dict[str, object] = {
    "precision": "as-published",
    "dispatch_dtype": "fp8",
    "routing_nodes": 4,
    "engine": "sglang",
}
IN_ORDER: dict[str, object] = {"expert_popularity": LAW}
PLACED: dict[str, object] = {**IN_ORDER, "eplb": True, "redundant_experts": 32}
# Tokens that a rank computes at once in both; sequences a rank of SGLang's decode; acceptance of the second token
# (arXiv 2412.19437, section 5.4.3: 85 to 90 %).
CHUNK, SEQUENCES, ACCEPTANCE = 16384, 256, 0.85
CACHED, CONTEXT, USER = 0.563, 4989, 21.0
RANKS = (8, 16, 32, 64, 72, 128, 144)


@cache
def prompts(system: str, isl: int, placed: bool, dual: bool) -> float:
    """Return tokens/s a node of 32 GPUs that compute prompts."""
    words = WORDS | (PLACED if placed else IN_ORDER)
    found = slipstick.serve(
        MODEL, system, gpus=32, ep=32, isl=str(isl), osl="1", chunked_prefill=CHUNK, dual_batch=dual,
        **words,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    return found.metrics["requests_per_s"] * isl / 4


@cache
def answers(system: str, ranks: int, batch: int, lengths: tuple[int, int], placed: bool, heads: int = 0) -> float:
    """Return tokens/s a node of answers at so many sequences a rank, halves in turn where that is quicker."""
    drafts: dict[str, object] = {"mtp": heads, "acceptance": ACCEPTANCE} if heads else {}
    words = WORDS | drafts | (PLACED if placed else IN_ORDER)
    found = slipstick.serve(
        MODEL, system, gpus=ranks, ep=ranks, isl=str(lengths[0]), osl=str(lengths[1]), batch=str(batch),
        dual_batch=True,
        **words,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    return 8 * batch / found.metrics["tpot_s"]


def loads() -> Iterator[list[Cell]]:
    """Yield rows of the busiest rank over the mean."""
    ways = {"in order": (0, False), "EPLB": (0, True), "EPLB, 32 copies": (32, True)}
    for name, (copies, placed) in ways.items():
        found = busiest_of(LAW, 256, 8, copies, placed, ("ep",))
        for num in RANKS:
            # 256 experts are dealt out to 64 and 128 ranks, 288 with copies to 72 and 144.
            if (256 + copies) % num == 0:
                yield ["busiest rank", name, f"EP{num}", float(found.evaluate({"ep": float(num)})), "", ""]


def published(full: bool) -> Iterator[list[Cell]]:
    """Yield throughput of both services, and the gains of EPLB."""
    h100, h800 = "dgx-h100", "hgx-h800"
    first, then = prompts(h100, 2000, True, True), answers(h100, 72, SEQUENCES, (2000, 100), True)
    yield _beside("SGLang, H100", "prompts, tokens/s a node", "EP32", first, 52_300)
    yield _beside("SGLang, H100", "answers, tokens/s a node", "EP72, 256 a GPU", then, 22_300)
    yield _beside("SGLang, H100", "gain of EPLB, prompts", "EP32", first / prompts(h100, 2000, False, True), 1.49)
    if not full:
        return
    before = answers(h100, 64, SEQUENCES, (2000, 100), False)
    yield _beside("SGLang, H100", "gain of EPLB, answers", "EP72 over EP64", then / before, 2.54)
    computed = 73_700 * (1 - CACHED)
    yield _beside(
        "DeepSeek, H800", "prompts computed, tokens/s a node", "EP32", prompts(h800, 4096, True, True), computed
    )
    batch, lengths = round(14_800 / 8 / USER), (CONTEXT - 500, 1000)
    for heads in (0, 1):
        found = answers(h800, 144, batch, lengths, True, heads)
        told = f"EP144, {batch} a GPU" + (", MTP" if heads else "")
        yield _beside("DeepSeek, H800", "answers, tokens/s a node", told, found, 14_800)


def _beside(who: str, what: str, how: str, found: float, there: float) -> list[Cell]:
    return [who, what, how, found, there, 100 * (found / there - 1)]


def make(full: bool) -> Table:
    """Work out loads of ranks, then the published servers."""
    columns = ["of", "what", "how", "predicted", "published", "error (%)"]
    return Table(columns, [*loads(), *published(full)], [
        "Popularity of experts: a power law of exponent 1.01, with which aiconfigurator picks kernels of this model.",
        "Halves of a step run in turn, exchanges of one behind computation of the other, with no wait for either.",
        "DeepSeek's figures are means of a day, over hours of full and of little load.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw loads over ranks, and predictions over what was published."""
    for name in dict.fromkeys(str(row[1]) for row in table.rows if row[0] == "busiest rank"):
        rows = [row for row in table.rows if row[1] == name]
        panels[0].plot([int(str(row[2])[2:]) for row in rows], [float(row[3]) for row in rows], "o-", label=name)
    panels[0].set(xscale="log", xlabel="ranks", ylabel="rows of the busiest rank over the mean")
    panels[0].legend()
    rows = [row for row in table.rows if row[0] != "busiest rank"]
    names = [f"{row[0]}: {row[1]}, {row[2]}" for row in rows]
    panels[1].barh(names, [float(row[3]) / float(row[4]) for row in rows], height=0.6)
    panels[1].axvline(1.0, color="black", linewidth=0.8)
    panels[1].tick_params(axis="y", labelsize="xx-small")
    panels[1].set(xlabel="predicted over published")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
