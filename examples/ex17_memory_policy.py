"""What layers keep, offload and recompute within a limit of memory: found policies beside those that frameworks have.

A step of Llama 3.1 under limits between what full recomputation needs and what keeping everything needs: the first
layers recomputed as Megatron-LM does (block), results chosen one by one, and results that may go to host memory as
well.
Then what recomputation adds to a layer of a GPT of 22B on A100, as Korthikanti et al. measured it (arXiv 2205.05198,
table 4: 19.6 ms without, 27.2 ms with full and 20.9 ms with selective recomputation).
"""

import sys
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.explore.recompute.search import FoundPolicy, find_policy, said
from slipstick.explore.recompute.spaces import PolicySpace
from slipstick.ir.graph import Phase
from slipstick.ir.plan.structure import Defaults

CACHE = slipstick.GraphCache.default()
GIB, PP = 2.0**30, 4
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
BLOCK, CHOSEN, OFFLOADED = "first layers", "results", "results and host"
# Milliseconds of a layer forward and backward.
NONE_MS, PUBLISHED_MS = 19.6, {"full": 27.2, "selective": 20.9}


def limits(graph: slipstick.Graph, system: slipstick.System, plan: slipstick.Plan) -> tuple[float, float]:
    """Return bytes of a GPU under full recomputation and with everything kept."""
    found = []
    for policy in ("full", "none"):
        family = slipstick.Family(sp=True, pp=plan.pp > 1, zero=1, kernels=plan.family.kernels, recompute=policy)
        found.append(estimate(graph, system, plan.under(family)).metrics["peak_mem_bytes"])
    return found[0], found[1]


def found_rows(full: bool) -> Iterator[list[Cell]]:
    """Yield the policies that are found under each limit."""
    name, gpus, tp, pp = ("llama-3.1-70b", 64, 8, PP) if full else ("llama-3.1-8b", 8, 2, 1)
    system, graph = slipstick.load_system("dgx-h100"), slipstick.load(name, cache=CACHE)
    plan = slipstick.make_plan(
        num_gpus=gpus, tp=tp, pp=pp, seq_len=8192, global_batch=128 if full else 16,
        family=Defaults(system.stack, slipstick.Family(zero=1)),
    )  # fmt: skip
    low, high = limits(graph, system, plan)
    for share in SHARES if full else SHARES[1:4:2]:
        limit = low + share * (high - low)
        chosen, moved = (
            find_policy(graph, system, plan, limit, PolicySpace(to_host=to_host)) for to_host in (False, True)
        )
        print(f"{share:.0%}: {chosen.search_s:.1f} s and {moved.search_s:.1f} s to find", file=sys.stderr)
        yield from _rows(name, limit, chosen, moved)


def _rows(name: str, limit: float, chosen: FoundPolicy, moved: FoundPolicy) -> Iterator[list[Cell]]:
    everything = next(p for p in chosen.known if p.label == "none")
    known = chosen.best_known
    assert known is not None
    for label, policy in ((BLOCK, known), (CHOSEN, chosen.best), (OFFLOADED, moved.best)):
        more = policy.step_time_s / everything.step_time_s - 1.0
        yield [name, label, limit / GIB, policy.peak_mem_bytes / GIB, policy.host_mem_bytes / GIB, policy.step_time_s,
               100 * more, "", said(policy)]  # fmt: skip


def layer_rows() -> Iterator[list[Cell]]:
    """Yield what recomputation adds to a layer, beside what was measured."""
    system = slipstick.load_system("dgx-a100-80gb", stack="megatron-2022")
    graph = slipstick.load("megatron-22b", cache=CACHE)
    seconds = {policy: _layer_s(graph, system, policy) for policy in ("none", *PUBLISHED_MS)}
    for policy, measured_ms in PUBLISHED_MS.items():
        more, published = (100 * (a / b - 1) for a, b in ((seconds[policy], seconds["none"]), (measured_ms, NONE_MS)))
        flags = f"--recompute {policy}"
        yield ["megatron-22b", f"a layer, {policy}", "", "", "", seconds[policy], more, published, flags]


def _layer_s(graph: slipstick.Graph, system: slipstick.System, policy: str) -> float:
    family = slipstick.Family(recompute=policy, kernels="fused", attention="unfused")
    plan = slipstick.make_plan(num_gpus=8, tp=8, seq_len=2048, micro_batch=4, global_batch=4, family=family)
    answer = estimate(graph, system, plan)
    phases = (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)
    rows = answer.table.timing.rows()
    return sum(s for entry, s in rows if entry.region.startswith("block") and entry.phase in phases)


def make(full: bool) -> Table:
    """Find policies under each limit; the reduced grid has a smaller model and two limits."""
    columns = ["model", "policy", "limit (GiB)", "memory (GiB)", "host (GiB)", "time (s)", "over keeping all (%)"]
    return Table([*columns, "published (%)", "flags"], [*found_rows(full), *layer_rows()], [
        "Times are of a step, or of a layer forward and backward; bf16, 8192 tokens a sequence, ZeRO 1, DGX H100.",
        f"'{BLOCK}' is the best of what frameworks have: none, selective, by operator, full, or the first layers.",
        "Layers of 22B: A100, tensor parallelism of 8, micro-batch 4; measured by Korthikanti et al.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the step over the limit, and what recomputation adds to a layer."""
    for label, rows in table.groups("policy").items():
        if not label.startswith("a layer"):
            panels[0].plot(rows.numbers("limit (GiB)"), rows.numbers("over keeping all (%)"), marker="o", label=label)
    panels[0].set(xlabel="memory a GPU may use (GiB)", ylabel="step over keeping everything (%)")
    panels[0].set_ylim(bottom=0)
    layers = [rows for label, rows in table.groups("policy").items() if label.startswith("a layer")]
    for shift, (name, column) in enumerate((("modelled", "over keeping all (%)"), ("published", "published (%)"))):
        values = [rows.numbers(column)[0] for rows in layers]
        panels[1].bar([k + 0.35 * shift for k in range(len(values))], values, width=0.3, label=name)
    panels[1].set_xticks([0.175, 1.175], list(PUBLISHED_MS))
    panels[1].set(ylabel="added to a layer (%)")
    for panel in panels:
        panel.legend()


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
