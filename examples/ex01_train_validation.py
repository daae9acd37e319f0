"""Training validation: eleven steps of GPT models that Megatron-LM was measured with on A100.

References are the primary publications: table 5 of Korthikanti et al. (arXiv 2205.05198), and steps that follow from
the FLOP/s in table 1 of Narayanan et al. (SC'21, arXiv 2104.04473). One machine, one software stack and one set of
constants serve all rows; the stack was fitted to some rows of Narayanan et al. (`slipstick show stack megatron-2022`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drawing import dots, plain_ticks
from matplotlib.axes import Axes
from study import ERRORS, Cell, Table, error_facts, run, say

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.frontend import config_of, load_config

CACHE = slipstick.GraphCache.default()
SEQ_LEN, TP = 2048, 8
NAMES = {"22B": "megatron-22b", "175B": "megatron-175b", "530B": "megatron-530b", "1008B": "megatron-1t"}
# What the catalogue has not, from its dimensions: table 1 of Narayanan et al.
GPT_310B = {
    "model_type": "gpt2", "n_embd": 16384, "n_inner": 65536, "n_layer": 96, "n_head": 128, "n_positions": 2048,
    "vocab_size": 51200,
}  # fmt: skip


class Run(NamedTuple):
    """A published run; `vpp` is not printed by Narayanan et al., who interleave: the most chunks that fit."""

    model: str
    gpus: int
    batch: int
    dp: int
    pp: int
    vpp: int
    recompute: str
    step_s: float


RUNS = (
    Run("22B", 8, 4, 1, 1, 1, "full", 1.42),
    Run("22B", 8, 4, 1, 1, 1, "selective", 1.10),
    Run("175B", 64, 64, 1, 8, 3, "full", 18.13),
    Run("175B", 64, 64, 1, 8, 3, "selective", 13.75),
    Run("530B", 280, 280, 1, 35, 3, "full", 49.05),
    Run("530B", 280, 280, 1, 35, 3, "selective", 37.83),
    Run("1008B", 512, 512, 1, 64, 1, "full", 94.42),
    Run("1008B", 512, 512, 1, 64, 1, "selective", 71.49),
    Run("310B", 1920, 2160, 15, 16, 2, "full", 37.6),
    Run("530B", 2520, 2520, 9, 35, 3, "full", 54.1),
    Run("1008B", 3072, 3072, 6, 64, 2, "full", 102.5),
)


def model_of(name: str) -> slipstick.Graph:
    """Return a GPT, of the catalogue or from its dimensions."""
    if name in NAMES:
        return slipstick.load(NAMES[name], dtype="fp16", cache=CACHE)
    return load_config(config_of(f"gpt-{name}", GPT_310B), element=slipstick.DType.FP16, cache=CACHE)


def plan_of(one: Run) -> slipstick.Plan:
    """Return the plan of a run: sequence parallelism goes with selective recomputation."""
    family = slipstick.Family(
        sp=one.recompute == "selective", recompute=one.recompute, pp=one.pp > 1, scatter_p2p=True, kernels="fused",
        attention="unfused", grad_dtype=slipstick.DType.FP16,
    )  # fmt: skip
    return slipstick.make_plan(
        num_gpus=one.gpus, tp=TP, pp=one.pp, dp=one.dp, vpp=one.vpp, micro_batch=4 if one.model == "22B" else 1,
        global_batch=one.batch, seq_len=SEQ_LEN, family=family,
    )  # fmt: skip


def make(full: bool) -> Table:
    """Estimate every run; the reduced grid is of the two smaller models."""
    system = slipstick.load_system("dgx-a100-80gb", stack="megatron-2022")
    rows: list[list[Cell]] = []
    for one in RUNS if full else RUNS[:4]:
        found = estimate(model_of(one.model), system, plan_of(one))
        step_s = found.metrics["step_time_s"]
        error = 100 * (step_s / one.step_s - 1)
        rows.append([f"GPT-{one.model}", one.gpus, one.recompute, one.step_s, step_s, error, found.metrics["mfu"]])
    columns = ["model", "GPUs", "recompute", "published (s)", "ours (s)", "error (%)", "MFU"]
    return Table(columns, rows, _notes())


def conclude(table: Table) -> Iterator[str]:
    """Say how near the published times the estimates are."""
    facts = error_facts(table.numbers("error (%)"))
    yield say(ERRORS, facts["most"] < 15, what="steps of GPT on A100", **facts)


def _notes() -> list[str]:
    return [
        "22B to 1008B on 8 to 512 GPUs: table 5 of arXiv 2205.05198. On 1920 and more: 96 B s l h^2 (1 + s / 6h + "
        "V / 16 l h) over the FLOP/s of table 1 of arXiv 2104.04473.",
        "The stack's slowdown of gradient messages was fitted to rows of arXiv 2104.04473; no row of 2205.05198 was.",
    ]


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw published and estimated steps beside one another."""
    names = [f"{model} {gpus} {recompute}" for model, gpus, recompute, *_ in table.rows]
    dots(panels[0], names, {name: list(enumerate(table.numbers(name))) for name in ("published (s)", "ours (s)")})
    panels[0].set(xlabel="step (s)", xscale="log")
    plain_ticks(panels[0].xaxis)
    panels[0].legend()


if __name__ == "__main__":
    run(__doc__, make, draw, conclude=conclude, panel_in=3.6)
