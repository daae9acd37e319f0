"""Which plan trains DeepSeek-V3 fastest on 2,048 H800? Every legal one is priced, beside the one that was published.

Steps of 15,360 sequences of 4,096 tokens in fp8 (blocks of 1 x 128 and 128 x 128), ZeRO 1, no context parallelism. The
published plan is that of the technical report (arXiv 2412.19437, section 3.2): 16 pipeline stages, experts over 64
ranks, no tensor parallelism, DualPipe; 180,000 GPU-hours a trillion tokens, 19.9 s a step of this size. What it
recomputes (norms and the up-projections of attention) is searched as `layernorm+mla_up_proj`. Rows go to four nodes at
most, and to their experts in fp8, in all plans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from drawing import stacked
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.explore import searching
from slipstick.explore.goals import Goal
from slipstick.explore.searching import Searched
from slipstick.report.search.plans import plan_label

CACHE = slipstick.GraphCache.default()
MODEL, SYSTEM, STACK = "deepseek-v3", "hgx-h800", "megatron-core"
GPUS, SEQUENCES, SEQ_LEN = 2048, 15360, 4096
# GPU-hours of a trillion tokens, of the report.
PUBLISHED_S = 180e3 * 3600.0 / GPUS / 1e12 * SEQUENCES * SEQ_LEN
MODULES = ("layernorm", "mla_up_proj")
TOP = 8
PARTS = "part "


def job(full: bool) -> slipstick.PlanJob:
    """Return the search: of a grid that tests can pay for, or of everything."""
    degrees = slipstick.Degrees(
        num_gpus=(GPUS,), global_batch=(SEQUENCES,), cp=(1,), tp=() if full else (1,),
        pp=() if full else (8, 16, 32), ep=() if full else (8, 16, 32, 64), micro_batch=() if full else (1, 2),
    )  # fmt: skip
    choices = slipstick.Choices(
        sp=(True,), zero=(1,), recompute=("selective", "full"), cp=("ring",), etp=(True, False) if full else (False,),
        schedule=("1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe") if full else ("1f1b", "zb-v", "dualpipe"),
    )  # fmt: skip
    system = slipstick.load_system(SYSTEM, stack=STACK)
    kernels = system.stack.decides.kernels
    plain = slipstick.Family(kernels=kernels, precision="fp8-block", dispatch_dtype="fp8", routing_nodes=4)
    graph = slipstick.load(MODEL, cache=CACHE)
    bases = (plain, replace(plain, recompute_modules=MODULES))
    return slipstick.PlanJob(
        graph=graph, space=slipstick.PlanSpace(degrees=degrees, choices=choices, seq_len=SEQ_LEN),
        machines=(slipstick.PlanMachine(name=SYSTEM, bases=bases, stack=STACK),), goals=(Goal("step_time_s", 1.0),),
    )  # fmt: skip


def published(one: slipstick.PlanJob) -> slipstick.Plan:
    """Return the plan of the report."""
    family = replace(one.bases[1], zero=1, recompute="selective", schedule="dualpipe", pp=True, ep=True)
    return slipstick.make_plan(
        num_gpus=GPUS, seq_len=SEQ_LEN, global_batch=SEQUENCES, family=family, pp=16, ep=64, micro_batch=1
    )


def rows(one: slipstick.PlanJob, found: Searched) -> Iterator[tuple[str, slipstick.Estimate]]:
    """Yield the best plans and the published one, each priced by itself."""
    system = one.machines[0].load()
    for at in range(min(TOP, len(found.best.top["part"]))):
        yield str(at + 1), estimate(one.graph, system, one.plan_of(found.best.top, at))
    yield "published", estimate(one.graph, system, published(one))


def make(full: bool) -> Table:
    """Return the best plans and the published one with what their steps are made of."""
    one = job(full)
    found = searching.search(one, top=TOP)
    answers = list(rows(one, found))
    parts = list(dict.fromkeys(part for _, answer in answers for part in answer.breakdown_s))
    columns = ["place", "plan", "recompute", "step (s)", "tokens/s/GPU", "MFU", "memory (GiB)", "fits",
               *(f"{PARTS}{part} (s)" for part in parts)]  # fmt: skip
    table: list[list[Cell]] = [
        [place, plan_label(answer.plan), "+".join(answer.plan.family.recompute_modules) or answer.plan.family.recompute,
         answer.metrics["step_time_s"], answer.metrics["tokens_per_s_per_gpu"], answer.metrics["mfu"],
         answer.metrics["peak_mem_bytes"] / 2**30, "yes" if answer.fits else "no",
         *(answer.breakdown_s.get(part, 0.0) for part in parts)]
        for place, answer in answers
    ]  # fmt: skip
    tally = found.tally
    return Table(columns, table, (
        f"{tally.num_candidates:,} candidates, {tally.num_legal:,} legal, {tally.num_kept:,} fit and were priced",
        f"the report's run: {PUBLISHED_S:.1f} s a step; its kernels overlap exchanges with computation by hand",
    ))  # fmt: skip


def draw(axes: Sequence[Axes], table: Table) -> None:
    """Draw what the steps are made of."""
    parts = {name.removeprefix(PARTS).removesuffix(" (s)"): table.numbers(name)
             for name in table.columns if name.startswith(PARTS) and any(table.numbers(name))}  # fmt: skip
    stacked(axes[0], [str(cell) for cell in table.column("place")], parts)
    axes[0].set_ylabel("step (s)")


if __name__ == "__main__":
    run(__doc__, make, draw)
