"""Kernels and messages that lie outside the rows which fitted their constants, and what share of a step they have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...backends.kernels.limits import ANY, beyond_fit
from ...backends.kernels.operands import unit_of
from ...backends.machine.system import System
from ...backends.pricing.program import PricedEntry, group_factors
from ...backends.pricing.timing import PricedGroup
from ...driver.estimate import Estimate
from ...ir.records import dataclass
from ..bounds import node_seconds

# What people call the kernels of a model of kernels.
_CLASSES = {"gemm": "products", "attention": "attention", "experts": "experts", "rowwise": "element-wise"}


@dataclass(frozen=True, slots=True)
class BeyondFit:
    """Kernels of one kind of which an input lies outside the rows that fitted their constants.

    Attributes:
        kernels: `products`, `attention`, `experts`, `element-wise` or `messages`.
        kind: of their constants; `any` where all kinds have one range.
        name: of the input.
        value: its value, that which is farthest outside.
        low: the least of the rows.
        high: the most of them.
        share: of the step, of all such kernels; messages that nothing hides or not.
    """

    kernels: str
    kind: str
    name: str
    value: float
    low: float
    high: float
    share: float

    def __str__(self) -> str:
        of = "" if self.kind == ANY else f" of {self.kind}"
        fitted = f"(fitted: {self.low:g} to {self.high:g})"
        return f"{self.share:.1%} {self.kernels}{of} with {self.name} {self.value:.4g} {fitted}"


def beyond_fits(answer: Estimate) -> tuple[BeyondFit, ...]:
    """Return what lies outside the rows that fitted its constants, the largest share of the step first."""
    env = {name: float(column[0]) for name, column in answer.table.plans.columns.items()}
    degrees = {name: float(degree) for name, degree in answer.plan.mesh.items()}
    order, system, step = answer.plan.family.order, answer.table.system, answer.metrics["step_time_s"]
    found: dict[tuple[str, str, str, bool], tuple[float, float, float, float]] = {}
    for priced, row, entry, spent in node_seconds(answer):
        if entry.message is None:
            kernels, kind, inputs = _kernel(priced, entry, env, system)
        else:
            factors = group_factors(entry.axis, degrees, order)
            ranks = float(np.prod([float(size) for size, _ in factors]))
            size = float(priced.messages[row, int(priced.point[0])]) if priced.messages is not None else 0.0
            kernels, kind, inputs = "messages", ANY, [{"bytes": size, "ranks": ranks}] if size and ranks > 1 else []
        several = dict.fromkeys(one for given in inputs for one in beyond_fit(kernels, kind, given))
        for name, value, low, high in several:
            key = (kernels, kind, name, value > high)
            farther, _, _, before = found.get(key, (value, low, high, 0.0))
            found[key] = (
                max(value, farther) if value > high else min(value, farther),
                low,
                high,
                before + spent / step,
            )
    beyond = (BeyondFit(*key[:3], *numbers) for key, numbers in found.items())
    return tuple(sorted(beyond, key=lambda one: -one.share))


def _kernel(
    priced: PricedGroup, entry: PricedEntry, env: Mapping[str, float], system: System
) -> tuple[str, str, list[Mapping[str, float]]]:
    """Class and kind of a kernel, and the inputs that its time depends on; of several products in it each."""
    kernels = _CLASSES.get("" if priced.backend is None else priced.backend.name, "")
    if not kernels or priced.backend is None:
        return "", "", []
    chip, work = system.chip, entry.work
    if kernels == "element-wise":
        moved = float(work.num_bytes.evaluate(env))
        return kernels, ANY, [{"bytes": moved, "TB/s": float(chip.hbm_bytes_per_s) / 1e12}]
    kind = ANY if kernels == "attention" else priced.backend.numbers(entry, system)[-1].split(".")[2]
    peak = chip.peak_flop_per_s.by_dtype().get(unit_of(str(entry.dtype)), chip.peak_flop_per_s.fp32)
    rate = {"FLOP/B": float(peak) / float(chip.hbm_bytes_per_s)}
    if work.attention is not None:
        q, kv = (float(size.evaluate(env)) for size in (work.attention.q_len, work.attention.kv_len))
        return kernels, kind, [{"q": q, "kv": kv, "head": float(work.attention.qk_dim), **rate}]
    names = ("m" if kernels == "products" else "rows", "n", "k")
    sizes = ([float(size.evaluate(env)) for size in (product.m, product.n, product.k)] for product in work.gemms)
    return kernels, kind, [{**dict(zip(names, of, strict=True)), **rate} for of in sizes]
