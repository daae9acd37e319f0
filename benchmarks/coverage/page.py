"""Results as the page of the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..markdown import by_reason, line, short, table
from .oracle import BATCH, KV, SEQ
from .plans import PLANS
from .plans import SEQ as PLANNED
from .result import RATIOS, WORKLOADS, Result

HEADING = ("type", "class", "layers", "parameters", *RATIOS, "plans", "remarks")
_INTRODUCTION = f"""# Coverage

<!-- Written by `make coverage`; a test measures some of its rows again. -->

Every model type for which transformers has a causal language model, in the library's own sizes with few layers and
each kind of layer kept (`benchmarks/small_configs.py`): traced, and counted a second time by
PyTorch. Three more pages say the same of [all model types](coverage_transformers.md), of
[foreign packages](coverage_foreign.md) and of [ONNX files](coverage_onnx.md).

- **Columns.** `forward` and `step` (forward and backward) are of a training step of {BATCH} x {SEQ} tokens,
  `prefill` of a prompt of as many, `decode` of one more token behind {KV} cached ones. A number is the FLOPs of our
  graph over those that PyTorch counted; `traced` stands where there is a graph and no count; `-` where there is
  none, and why is in the remarks.
- **The count** is `FlopCounterMode` over transformers' own eager implementation: attention as two products over all
  pairs and a softmax, experts as one product a token and expert (`batched_mm`), norms and rotary embeddings as
  written. No code of Slipstick takes part. Shapes are enough: tensors are fake ones, real ones where a model reads
  values.
- **What is compared** are products of matrices, masked pairs included on both sides. A fused backward of attention
  computes its scores a second time; that product is the kernel's and not the model's (`model_share` of an op's
  work), so that both sides have four products of attention in backward, exactly.
- **Holes** of `FlopCounterMode` have formulas: grouped products 2 m k n; the CPU's fused attention, which counts as
  nothing there, two products forward and four backward; gradients of a grouped convolution as many FLOPs as forward
  each, where torch counts as if it had one group. Convolutions of one channel each (in front of recurrences) are
  vector work and count on neither side. Products with a length of one are outer products, which torch counts and we
  do not: 1e-5 and less. A pooler that computes what no loss
  reads is left out. Where all tokens run through all experts and most results are thrown away (Llama 4), the part
  counts that a token is routed to.
- **Recurrences** (`scan`) are compared apart. The eager ones of transformers are loops over tokens or chunks that
  pad, repeat heads, and multiply and sum where a kernel would take a product; ours have the formulas of the
  published algorithms (`ir/ops/fused/scan.py`). The remarks say how many FLOPs ours have over those that torch counted
  inside; no ratio is expected there, and `tests/oracles/test_scan_flops.py` holds each formula against the same code
  on its own terms. What is around recurrences, projections and gates, is in the columns.
- **Plans.** Under how many of {len(PLANS)} plans a training step of {PLANNED} tokens is lowered and estimated:
  {", ".join(PLANS)}. Compute of a GPU must not grow with replicas, each of which has its own sequences; where 64 of
  them make it more than a tenth larger, the remarks say so.
- **Parameters** are those of the module, tied ones once. Ours must be all of them, or all that a training step
  gives a gradient; what is in no graph because no pass uses it (cross attention of a decoder alone, a tower that
  sees no picture) is in the remarks.
"""


def page(results: Sequence[Result]) -> str:
    """Return the whole page."""
    return f"{_INTRODUCTION}\n{summary(results)}\n\n{table(HEADING, map(cells, results))}\n"


def summary(results: Sequence[Result]) -> str:
    """Say in a few lines how many are traced and how many agree."""
    lines = (_of_workload(results, workload) for workload in WORKLOADS)
    num = sum(r.agrees for r in results)
    counted = sum("forward" in r.ratios for r in results)
    planned = sum(r.is_traced("train") and not r.plans.why_not for r in results)
    steady = sum(r.plans.is_steady for r in results)
    return (
        f"Of {len(results)} types {', '.join(lines)}. {num} agree with PyTorch: parameters exactly, FLOPs of all "
        f"that both sides counted within 1 %; {counted} could be counted for training. {planned} are estimated under "
        f"all {len(PLANS)} plans; of {steady} compute of a GPU is the same with 64 replicas."
    )


def _of_workload(results: Sequence[Result], workload: str) -> str:
    num = sum(r.is_traced(workload) for r in results)
    return f"{num} ({num / len(results):.1%}) are traced for {workload}"


def row_of(result: Result) -> str:
    """Return the line of the table."""
    return line(cells(result))


def cells(result: Result) -> tuple[str, ...]:
    """Return the cells of a row."""
    passes = (_cell(result, name, workload) for name, workload in RATIOS.items())
    parameters = f"{result.num_parameters:,}" if result.num_parameters else "-"
    name, remarks = f"`{result.class_name}`", "; ".join(_remarks(result))
    return (result.model_type, name, result.layers or "-", parameters, *passes, result.plans.cell, remarks)


def _cell(result: Result, name: str, workload: str) -> str:
    if not result.is_traced(workload):
        return "-"
    return f"{result.ratios[name]:.4f}" if name in result.ratios else "traced"


def _remarks(result: Result) -> Iterator[str]:
    yield from by_reason(result.why_not)
    yield from result.plans.remarks
    if result.parameters_agree is False:
        yield "parameters differ"
    if result.unused:
        yield f"{result.unused:,} parameters take no part"
    if result.recurrences:
        yield "in recurrences " + ", ".join(f"{name} {ratio:.3g}" for name, ratio in result.recurrences.items())
    if result.oracle:
        yield result.oracle if result.oracle == "real tensors" else f"not counted: {short(result.oracle)}"


__all__ = ["HEADING", "cells", "page", "row_of", "summary"]
