"""The result of a step of post-training: its parts, its rates, and what a run of steps comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...cost.money import Terms
from ...driver.rl.step import PostTrainingStep
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_time, format_usd
from ..columns import in_columns
from ..json_report import assumed_record
from ..labels import software_label
from .result import FILE_COLUMNS, Result
from .table import Line, Panel, Row

_SCHEMA = "slipstick/posttrain/1"
_LABELS: Mapping[str, str] = {
    "rollout": "rollouts",
    "environment": "environment",
    "weights": "weights to the engine",
    "states": "states to the host and back",
}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PostTrainResult(Result):
    """A step of post-training: `step.metrics` and `step.parts_s` are its numbers."""

    step: PostTrainingStep
    model: str
    steps: int | None = None
    tried: int = 0
    terms: Terms | None = None

    @property
    def run(self) -> Mapping[str, float]:
        """What the run comes to; empty without a number of steps."""
        return {} if self.steps is None else self.step.run(self.steps, self.terms)

    def json(self) -> str:
        """Return the document."""
        step = self.step
        server = (
            None
            if step.server is None
            else {
                "engine": step.server.engine.name,
                "degrees": step.server.plan.degrees,
                "num_gpus": step.server.plan.num_gpus,
                "replicas": step.server.num_replicas,
            }
        )
        return json_text(
            {
                "schema": _SCHEMA,
                "model": self.model,
                "algorithm": step.asked.algorithm.name,
                "system": step.trainer.table.system.name,
                "stack": step.trainer.table.system.stack.name,
                **assumed_record(step.trainer.table.system),
                "placement": step.asked.placement,
                "trainer": {
                    "degrees": step.trainer.plan.degrees,
                    "num_gpus": step.trainer.plan.num_gpus,
                    "micro_batch": step.trainer.plan.micro_batch,
                    "seq": step.trainer.plan.seq_len,
                    "num_micro_batches": step.trainer.plan.num_micro_batches,
                },
                "engine": server,
                "metrics": dict(step.metrics),
                "parts_s": dict(step.parts_s),
                "run": dict(self.run),
                "plans_tried": self.tried,
            },
            indent=2,
        )

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        (title, told), *lines = self.summary()
        parts = [
            (label, format_time(seconds), f"{share:6.1%}  {'#' * round(20 * share)}".rstrip())
            for label, seconds, share in self._shares()
        ]
        body = in_columns(lines, columns or FILE_COLUMNS)
        return f"{title}  {told}\n{body}\n{in_columns(parts)}\n"

    def summary(self) -> Sequence[Line]:
        """Return what was estimated, and its first numbers."""
        step, m = self.step, self.step.metrics
        system = step.trainer.table.system
        lines = [
            (
                self.model,
                f"{step.asked.algorithm.name} on {step.num_gpus} x {system.chip.name}, "
                f"{software_label(system)}, {step.asked.placement}",
            ),
            ("trainer", f"{step.trainer.plan.num_gpus} GPUs, {step.trainer.plan.degrees}, {self._memory()}"),
        ]
        if step.server is not None and step.rollout is not None:
            plan = step.server.plan
            told = (
                f"{plan.num_gpus} GPUs, {step.server.engine.name}, {step.server.num_replicas} replicas of tp{plan.tp}"
            )
            waits = f"{step.rollout.straggler_share:.0%} of the time behind the last tenth of answers"
            lines += [("engine", told), ("rollouts", f"{format_time(step.rollout.all_s)}, {waits}")]
        rate = f"{m['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU"
        lines.append(("step", f"{format_time(step.step_time_s)}, {step.samples.num:,} sequences, {rate}"))
        for side, share in step.idle.items():
            lines.append((f"{side} idle", f"{share:.0%}"))
        if run := self.run:
            money = f", {format_usd(run['usd_run'])}" if "usd_run" in run else ""
            lines.append(
                (
                    "run",
                    f"{self.steps:,} steps, {run['run_time_s'] / 86400:.3g} days, "
                    f"{run['gpu_hours']:,.0f} GPU-hours{money}",
                )
            )
        return lines

    def rows(self) -> Sequence[Row]:
        """Return every metric, and every part as `part.NAME_s`."""
        own = {**self.step.metrics, **{f"part.{name}_s": s for name, s in self.step.parts_s.items()}, **self.run}
        return [{"name": name, "value": float(value)} for name, value in own.items()]

    def panels(self) -> Sequence[Panel]:
        """Return the parts of the step."""
        found = list(self._shares())
        rows = [(label, format_time(seconds), f"{share:.1%}") for label, seconds, share in found]
        return [Panel("Parts of the step", ("part", "time", "share"), rows, [share for _, _, share in found])]

    def _memory(self) -> str:
        m, system = self.step.metrics, self.step.trainer.table.system
        return f"{format_bytes(m['trainer_peak_mem_bytes'])} of {format_bytes(float(system.chip.hbm_bytes))} a GPU"

    def _shares(self) -> Sequence[tuple[str, float, float]]:
        """Parts with their share of the sum, which is the step where nothing runs beside them."""
        total = sum(self.step.parts_s.values())
        return [(_label(name), seconds, seconds / total) for name, seconds in self.step.parts_s.items()]


def _label(name: str) -> str:
    """Return what people call a part.

    >>> _label("pass.reference"), _label("train.policy"), _label("rollout")
    ('reference pass', 'training of the policy', 'rollouts')
    """
    kind, _, model = name.partition(".")
    if not model:
        return _LABELS.get(name, name)
    return f"{model} pass" if kind == "pass" else f"training of the {model}"
