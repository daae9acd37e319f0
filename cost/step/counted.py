"""The metrics of a step: times of the roll-up, what a model counts, and the peaks of the machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...ir.graph import Graph, Workload
from ...ir.plan import IMBALANCE
from ...ir.plan.layout.stages import RECOMPUTED
from ...ir.plan.precision import counted_dtype
from ...ir.records import dataclass
from ...ir.sizes.fixed_sizes import counts_tokens
from ..flops import Convention, ModelFlops
from ..must_move import MustMove
from .prepared import PreparedPlans
from .rollup import StepSeconds

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Counted:
    """What a lowered model counts whatever the machine: the traced and the lowered graph, FLOPs, and least traffic.

    `recomputed` are the FLOPs that a rank repeats; `must_move` is there in inference alone.
    """

    source: Graph
    graph: Graph
    flops: ModelFlops
    recomputed: ModelFlops
    must_move: MustMove | None

    def metrics(
        self, system: System, ready: PreparedPlans, step: StepSeconds, convention: Convention
    ) -> Mapping[str, Array]:
        """Return the metrics of the field by their usual names, plan by plan, in SI units.

        MFU is model FLOPs over (dense peak x GPUs x step time), the peak that of the dtype of the plan's products; HFU
        counts what is recomputed too; MBU is the least traffic of a step over what the memory could move in its time. A
        sample without tokens (an image) counts as one.
        """
        plans, time_s, workload = ready.plans, step.time_s, self.source.workload
        env = {"batch": plans.global_batch, "seq": plans.seq_len, "kv": plans.kv_len}
        flops = self.flops.total(env, convention)
        written = str(self.source.dtype)
        used = counted_dtype(plans.family, written)
        peak = system.chip.matmul_flop_per_s(used) * plans.num_gpus
        tokens = plans.global_batch * (plans.seq_len if self._has_lengths() else 1.0)
        found = {
            "step_time_s": time_s,
            "tokens_per_s": tokens / time_s,
            "tokens_per_s_per_gpu": tokens / time_s / plans.num_gpus,
            "mfu": flops / (peak * time_s),
            "hfu": (flops + self._repeated(ready, convention)) / (peak * time_s),
            "model_flops": flops,
            "model_flop_per_s_per_gpu": flops / time_s / plans.num_gpus,
            "peak_mem_bytes": ready.peak_mem_bytes,
            "exposed_comm_s": step.exposed_comm_s,
            "hidden_comm_s": step.total_hidden_comm_s,
        }
        if used != written:
            found["mfu_bf16"] = flops / (system.chip.matmul_flop_per_s(written) * plans.num_gpus * time_s)
        if not counts_tokens(self.source):
            rate = plans.global_batch / time_s
            found |= {"samples_per_s": rate, "samples_per_s_per_gpu": rate / plans.num_gpus}
        if workload is Workload.TRAIN:
            found["bubble_fraction"] = step.breakdown["bubble"] / time_s
        found |= _latencies(workload, time_s)
        if self.must_move is not None:
            found["mbu"] = self.must_move.evaluate(plans) / (system.chip.hbm_bytes_per_s * time_s)
        # Where no size is open, what a model counts is the same number for all plans.
        return {name: np.broadcast_to(value, time_s.shape) for name, value in found.items()}

    def _has_lengths(self) -> bool:
        """Whether a sample is as many tokens as the plan says: it is one in a decode step, and where there is none."""
        return self.source.workload is not Workload.DECODE and counts_tokens(self.source)

    def _repeated(self, ready: PreparedPlans, convention: Convention) -> Array:
        """FLOPs of a step that all ranks spend on recomputation: a rank has the layers of its stage."""
        plans = ready.plans
        if not self.recomputed.dense and not self.recomputed.attention:
            return np.zeros(len(plans))
        share = plans.num_gpus / plans.stages[0]
        counts = self.graph.counts
        again = [name for name in counts if name.endswith(RECOMPUTED)]
        if again:
            share = share * ready.staging.runs_in_all(again) / sum(counts[name] for name in again)
        mean = {**plans.columns, IMBALANCE: np.ones(len(plans))}
        return np.asarray(self.recomputed.total(mean, convention) * plans.num_micro_batches * share)


def _latencies(workload: Workload, time_s: Array) -> Mapping[str, Array]:
    """Time to the first token is a prefill, time per output token a decode step."""
    if workload is Workload.PREFILL:
        return {"ttft_s": time_s}
    return {"tpot_s": time_s, "tokens_per_s_per_user": 1.0 / time_s} if workload is Workload.DECODE else {}


__all__ = ["Counted"]
