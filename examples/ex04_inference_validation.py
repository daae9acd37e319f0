"""Inference validation: Llama 2 on A100 and H100, one request of 200 tokens in and 200 out.

References are latencies that NVIDIA published for TensorRT-LLM in NeMo on a page that is gone by now, as other tools
keep them; that they are measurements is likely and not certain. No constant of ours was fitted to them: kernels are
those of the catalogue's calibrations, the stack is the default one.
"""

from collections.abc import Iterator, Sequence

from drawing import dots, plain_ticks
from matplotlib.axes import Axes
from study import ERRORS, Cell, Table, error_facts, run, say

import slipstick

CACHE = slipstick.GraphCache.default()
TOKENS_IN, TOKENS_OUT = 200, 200
PREFILL, DECODE = (slipstick.Family(workload=w) for w in (slipstick.Workload.PREFILL, slipstick.Workload.DECODE))
# Seconds by model, machine and tensor-parallel degree.
PUBLISHED = {
    "llama-2-7b": {
        "dgx-a100-80gb": {1: 2.19, 2: 1.544, 4: 1.28, 8: 1.187},
        "dgx-h100": {1: 1.44, 2: 1.143, 4: 0.924, 8: 0.828},
    },
    "llama-2-13b": {
        "dgx-a100-80gb": {1: 3.884, 2: 2.499, 4: 1.894, 8: 1.693},
        "dgx-h100": {1: 2.396, 2: 1.717, 4: 1.431, 8: 1.201},
    },
    "llama-2-70b": {
        "dgx-a100-80gb": {2: 10.5, 4: 6.403, 8: 4.735},
        "dgx-h100": {2: 6.267, 4: 4.1226, 8: 3.202},
    },
}


def lowered(model: str) -> tuple[slipstick.Lowered, slipstick.Lowered]:
    """Return a model's prefill and decode step, ready to be priced."""
    prefill, decode = (slipstick.load(model, family.workload, cache=CACHE) for family in (PREFILL, DECODE))
    return slipstick.lower(prefill, PREFILL), slipstick.lower(decode, DECODE)


def request_s(
    prefill: slipstick.Lowered, decode: slipstick.Lowered, system: slipstick.System, tp: int
) -> tuple[float, float]:
    """Return the seconds to the first token, and those of all others: a step each over what is cached by then."""
    first = slipstick.make_plan(num_gpus=tp, tp=tp, seq_len=TOKENS_IN, family=PREFILL)
    cached = range(TOKENS_IN, TOKENS_IN + TOKENS_OUT)
    others = [slipstick.make_plan(num_gpus=tp, tp=tp, seq_len=n, kv_len=n, family=DECODE) for n in cached]
    steps = (slipstick.estimate_many(prefill, system, [first]), slipstick.estimate_many(decode, system, others))
    in_s, out_s = (float(found.metrics["step_time_s"].sum()) for found in steps)
    return in_s, out_s


def make(full: bool) -> Table:
    """Estimate every request; the reduced grid is of one model."""
    rows: list[list[Cell]] = []
    for model in PUBLISHED if full else ["llama-2-13b"]:
        prefill, decode = lowered(model)
        for name, published in PUBLISHED[model].items():
            system = slipstick.load_system(name)
            for tp, real_s in published.items():
                in_s, out_s = request_s(prefill, decode, system, tp)
                error = 100 * ((in_s + out_s) / real_s - 1)
                rows.append([model, name, tp, real_s, in_s + out_s, error, 1e3 * in_s, 1e3 * out_s / TOKENS_OUT])
    columns = ["model", "system", "tp", "published (s)", "ours (s)", "error (%)", "prefill (ms)", "token (ms)"]
    return Table(columns, rows, _notes())


def conclude(table: Table) -> Iterator[str]:
    """Say how near the published times the estimates are."""
    facts = error_facts(table.numbers("error (%)"))
    yield say(ERRORS, facts["most"] < 15, what="latencies of Llama 2", **facts)


def _notes() -> list[str]:
    return [
        "Batch 1; each of the 200 tokens behind the prompt takes a step of its own over 200 to 399 cached ones.",
    ]


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw published and estimated latencies beside one another."""
    names = [f"{model} {system} tp{float(tp):g}" for model, system, tp, *_ in table.rows]
    dots(panels[0], names, {name: list(enumerate(table.numbers(name))) for name in ("published (s)", "ours (s)")})
    panels[0].set(xlabel="latency (s)", xscale="log")
    plain_ticks(panels[0].xaxis)
    panels[0].legend()


if __name__ == "__main__":
    run(__doc__, make, draw, conclude=conclude, panel_in=3.6)
