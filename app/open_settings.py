"""Settings that a publication rarely prints, tried one by one: by how much an answer hangs on each.

A setting that was said is left alone. Of the others each alternative that the plan allows is estimated in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ..driver.metrics import METRICS, format_metric
from ..driver.uncertainty.bands import Band
from ..ir.errors import InternalError, SlipstickError
from ..ir.records import dataclass
from ..ir.schedules.registry import SCHEDULES
from ..report.columns import in_columns
from ..report.explain.intervals import shares_between

# Settings of flags, and what else they may be; a value that is the present one changes nothing and is not shown.
OF_TRAINING: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "stack": ("none", "megatron-core", "torchtitan", "nanotron"),
        "grad_dtype": ("fp32", "bf16"),
        "reduce_dtype": ("fp32", "bf16"),
        "recompute": ("none", "selective", "full"),
        "zero": (0, 1),
        "sp": (True, False),
        "attention": ("flash", "unfused"),
        "mbs": (1, 2, 4),
        "schedule": tuple(name for name, kind in SCHEDULES.items() if not kind.interleaves),
        "async_tp": (True,),
    }
)
OF_INFERENCE: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "stack": ("none", "vllm", "sglang", "tensorrt-llm"),
        "kv_dtype": ("same", "fp8"),
        "precision": ("none", "fp8"),
        "cuda_graph": (True, False),
    }
)
OF_SERVERS: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "engine": ("ideal", "vllm", "sglang", "tensorrt-llm"),
        "prefix_hit": (0.5,),
        "kv_dtype": ("same", "fp8"),
        "precision": ("none", "fp8"),
        "chunked_prefill": (0, 2048, 16384),
        "max_num_seqs": (128, 1024),
    }
)
# Settings that change the software.
SOFTWARE = frozenset({"stack", "engine"})
# Settings that are shown, and the least change that counts.
MOST, LEAST = 4, 5e-3


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting at another value.

    Attributes:
        name: of its parameter.
        value: the other value.
        metric: the value of the metric then.
        share: by how much that is more, as a fraction.
    """

    name: str
    value: object
    metric: float
    share: float


def changes(
    now: float, settings: Mapping[str, Sequence[object]], again: Callable[[str, object], float]
) -> list[list[SettingChange]]:
    """Return what the settings on which a metric hangs most do to it, a list each, the greatest change first.

    Args:
        now: the metric as it is.
        settings: those that were left open, with their alternatives.
        again: the metric with one setting at another value; SlipstickError where the plan or the machine forbids it.
    """
    found: list[list[SettingChange]] = []
    for name, values in settings.items():
        of: list[SettingChange] = []
        for value in values:
            try:
                metric = again(name, value)
            except InternalError:
                raise
            except SlipstickError:
                continue
            share = metric / now - 1.0
            if abs(share) >= LEAST:
                of.append(SettingChange(name, value, metric, share))
        if of:
            found.append(sorted(of, key=lambda one: -abs(one.share)))
    return sorted(found, key=lambda of: -abs(of[0].share))[:MOST]


def changes_text(metric: str, now: float, found: Sequence[Sequence[SettingChange]], ratio: Band | None = None) -> str:
    """Return the changes as a table; `ratio` is the band of the metric between plans by one software on one machine.

    Another stack or engine has errors of its own, and no band here.
    """
    title = f"{METRICS[metric].label} {format_metric(metric, now)}: settings left open on which it hangs most"
    if not found:
        return f"{title}: none changes it by {LEAST:.1%} or more"
    lines = [["setting", "at", METRICS[metric].label, "change", "when measured, 90 %"]]
    for of in found:
        for one in of:
            flag = f"--{one.name.replace('_', '-')}"
            span = "-" if ratio is None or one.name in SOFTWARE else shares_between(1.0 + one.share, ratio)
            lines.append([flag, str(one.value), format_metric(metric, one.metric), f"{one.share:+.1%}", span])
    return f"{title}\n\n{in_columns(lines)}"
