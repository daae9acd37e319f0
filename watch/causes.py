"""Likely causes where a run is not as predicted: what the run itself shows, the surest first."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ..ir.records import dataclass
from ..ir.units import format_bytes, format_time
from .observed import ObservedRun
from .predicted import StepPrediction

# A wait for data, and a share of the step that launches or communication take, from which on they are worth a word.
_WAIT, _SHARE = 0.1, 0.3


@dataclass(frozen=True, slots=True)
class CauseEvidence:
    """What there is to find a cause in: the module, the run, its prediction, and times since the last look."""

    model: nn.Module
    run: ObservedRun
    prediction: StepPrediction
    step_s: float
    wait_s: float
    sizes_vary: bool
    allocator_retries: int


def causes_of_time(at: CauseEvidence) -> Iterator[str]:
    """Yield why a step may take another time than predicted."""
    yield from _of_machine(at)
    if at.wait_s > _WAIT * at.step_s:
        yield (
            f"{format_time(at.wait_s)} of each step pass between its end and the next forward pass: data, logging, "
            "evaluation"
        )
    if at.sizes_vary:
        yield "batches vary in size, and the prediction is for the first: pad or pack them, or say seq_len"
    if at.allocator_retries:
        yield f"the allocator had to free and try again {at.allocator_retries} times: memory is nearly full"
    if at.step_s > at.prediction.step_s:
        yield from _of_kernels(at)
    else:
        yield "less is computed than the graph has: frozen or skipped layers, shorter samples, or another precision"


def causes_of_memory(at: CauseEvidence, measured_bytes: float) -> Iterator[str]:
    """Yield why more or less may be allocated than predicted."""
    parts = {name: size for name, size in at.prediction.answer.memory_bytes.items() if name != "reserved"}
    largest = max(parts, key=lambda name: parts[name])
    if measured_bytes > at.prediction.allocated_bytes and (kept := _eager_attention(at.model)):
        yield kept
    yield f"the largest part predicted is {largest}, {format_bytes(parts[largest])}: see what of it the run keeps"


def _of_machine(at: CauseEvidence) -> Iterator[str]:
    system = at.prediction.answer.table.system
    is_cpu_chip = "xeon" in system.chip.name.lower() or "epyc" in system.chip.name.lower()
    if at.run.device == "cpu" and not is_cpu_chip:
        yield f"the run is on a CPU and the prediction for {system.chip.name}"
    elif at.run.device != "cpu" and not same_chip(at.run.device_name, system.chip.name):
        yield f"the run is on {at.run.device_name} and the prediction for {system.chip.name}"
    elif at.run.device == "cpu":
        threads = torch.get_num_threads()
        yield f"the run has {threads} threads of this CPU, the prediction all cores of a {system.chip.name}"


def same_chip(device: str, chip: str) -> bool:
    """Whether a name of the driver is of a chip of the catalogue.

    >>> same_chip("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"), same_chip("NVIDIA A100-SXM4-40GB", "H100-SXM5-80GB")
    (True, False)
    """
    return chip.split("-")[0].lower() in device.lower()


def _of_kernels(at: CauseEvidence) -> Iterator[str]:
    if kept := _eager_attention(at.model):
        yield kept
    dtype = at.prediction.answer.table.lowered.source.dtype
    if dtype == "fp32" and at.run.device == "cuda":
        precision = torch.get_float32_matmul_precision()
        yield f"the model computes in fp32 (float32_matmul_precision={precision}): use autocast or bf16"
    breakdown = at.prediction.answer.breakdown_s
    host = sum(breakdown.get(name, 0.0) for name in ("host", "launch"))
    if at.run.device == "cuda" and (host > _SHARE * at.prediction.step_s or at.prediction.step_s < 0.05):
        yield "the step is short: launches of eager code bound it; use torch.compile or CUDA graphs"
    comm = sum(seconds for name, seconds in breakdown.items() if name.startswith("comm."))
    if comm > _SHARE * at.prediction.step_s:
        yield f"{format_time(comm)} of the predicted step are exposed communication: see that links and NCCL do as well"


def _eager_attention(model: nn.Module) -> str:
    configs = [getattr(part, "config", None) for part in model.modules()]
    if any(getattr(config, "_attn_implementation", None) == "eager" for config in configs):
        return "attention runs as separate products (attn_implementation='eager'): use sdpa or flash_attention_2"
    return ""
