"""Steps of GRPO on H100 as NeMo RL measured them: rollouts, passes and training, on shared and on separate GPUs.

Rows, plans and batches are those of its performance summary (docs/about/performance-summary.md, releases 0.4 and 0.6,
and the recipes that it names): 64 prompts of OpenMathInstruct-2 with 32 answers each, of DeepSeek-V3 32 with 16,
updates of 512 sequences, packed. Each rank of an engine gets the whole model anew, as its refit broadcasts it. Of
lengths it says the mean of prompt and answer and where answers are cut; prompts are taken as 150 tokens, and lengths of
answers as log-normal with half of their mean as deviation. Nothing here was fitted to these rows.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick

PROMPT, UPDATE = 150, 512
PARTS = ("rollout", "pass.policy", "pass.reference", "train.policy", "weights", "states")


class Measured(NamedTuple):
    """A row of the summary; `words` are of the trainer, `engine_gpus` beside it where both have their own."""

    model: str
    placement: Literal["colocated", "split", "async"]
    tokens: int
    gpus: int
    engine_gpus: int | None
    engine_tp: int
    words: dict[str, int | str]
    step_s: float
    tokens_per_s_per_gpu: float
    prompts: int = 64
    group: int = 32
    longest: int = 4096
    engine: str = "vllm-0.8"


DEEPSEEK: dict[str, int | str] = {"ep": 16, "pp": 16, "recompute": "full"}
# The last five are of release 0.6.
ROWS = (
    Measured("llama-3.1-8b", "colocated", 1060, 16, None, 1, {"pp": 2, "recompute": "full"}, 97.7, 1562),
    Measured("llama-3.1-8b", "async", 1129, 8, 8, 1, {"pp": 2, "recompute": "full"}, 74.6, 2161),
    Measured("qwen3-32b", "colocated", 3206, 32, None, 4, {"tp": 4, "pp": 4}, 393, 540),
    Measured("qwen3-32b", "async", 3207, 32, 32, 4, {"tp": 4, "pp": 4}, 215, 494),
    Measured("qwen3-30b-a3b", "colocated", 3154, 32, None, 4, {"tp": 2, "ep": 8, "etp": 1}, 225, 925),
    Measured("qwen3-30b-a3b", "async", 3158, 16, 16, 2, {"pp": 2, "ep": 8}, 244, 864),
    Measured("qwen3-30b-a3b", "colocated", 3203, 32, None, 2, {"ep": 8}, 192, 1102, engine="vllm"),
    Measured("qwen3-30b-a3b", "async", 3201, 16, 16, 2, {"pp": 2, "ep": 8}, 152, 1414, engine="vllm"),
    Measured("deepseek-v3", "colocated", 701, 256, None, 32, DEEPSEEK, 134, 12.1, 32, 16, 1536, "vllm"),
    Measured("deepseek-v3", "colocated", 697, 512, None, 32, {**DEEPSEEK, "ep": 32}, 111, 7.24, 32, 16, 1536, "vllm"),
    Measured("deepseek-v3", "async", 710, 256, 256, 32, DEEPSEEK, 64.1, 12.8, 32, 16, 1536, "vllm"),
)


def row_of(measured: Measured) -> list[Cell]:
    """Return a step beside what was measured."""
    found = slipstick.posttrain(
        measured.model, "dgx-h100", stack="megatron-core", gpus=measured.gpus, zero=1, prompts=measured.prompts,
        group=measured.group, isl=str(PROMPT), osl=f"lognormal:{measured.tokens - PROMPT},0.5",
        max_tokens=measured.longest, update_batch=UPDATE, placement=measured.placement, engine=measured.engine,
        engine_tp=measured.engine_tp, refit="whole",
        engine_gpus=measured.engine_gpus,  # pyright: ignore[reportArgumentType]
        **measured.words,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    step = found.step
    parts = [step.parts_s.get(part, 0.0) for part in PARTS]
    error = 100 * (step.step_time_s / measured.step_s - 1)
    idle = [100 * step.idle.get(side, 0.0) for side in ("engine", "trainer")]
    rates = [step.metrics["tokens_per_s_per_gpu"], measured.tokens_per_s_per_gpu]
    return [measured.model, measured.placement, step.num_gpus, *parts, *idle, step.step_time_s, measured.step_s, error,
            *rates]  # fmt: skip


def rows_of(full: bool) -> Iterator[list[Cell]]:
    """Yield all rows; the reduced grid has the smallest model."""
    yield from map(row_of, ROWS if full else ROWS[:2])


def make(full: bool) -> Table:
    """Estimate every row."""
    columns = ["model", "placement", "GPUs", *(f"{part} (s)" for part in PARTS), "engine idle (%)", "trainer idle (%)"]
    rates = ["tokens/s/GPU", "published tokens/s/GPU"]
    return Table([*columns, "step (s)", "published step (s)", "error (%)", *rates], list(rows_of(full)), [
        "bf16, Megatron-Core and vLLM of 2025; weights of the reference model come up from the host for their pass.",
        "Not modelled: Ray, data between workers, rewards, padding of packs, what an engine waits for its Python side.",
        "Of 'async' parts run beside each other: a step is the longer side and the transfer of weights.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the parts of each step beside what was measured, and the published over the modelled step."""
    names = [f"{m}\n{p}" for m, p in zip(table.column("model"), table.column("placement"), strict=True)]
    places, bottom = range(len(names)), [0.0] * len(names)
    for part in PARTS:
        heights = table.numbers(f"{part} (s)")
        panels[0].bar(places, heights, bottom=bottom, width=0.6, label=part)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    panels[0].plot(places, table.numbers("published step (s)"), "kx", label="published step")
    panels[0].set_xticks(list(places), names)
    panels[0].set(ylabel="seconds of its parts")
    modelled, published = table.numbers("step (s)"), table.numbers("published step (s)")
    panels[1].loglog(published, modelled, "o")
    ends = [min(modelled) / 1.2, max(published) * 1.2]
    panels[1].plot(ends, ends, "k:", label="equal")
    panels[1].set(xlabel="published step (s)", ylabel="modelled step (s)")
    for panel in panels:
        panel.legend()


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
