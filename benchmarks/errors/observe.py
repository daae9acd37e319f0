"""Predictions beside measurements to which nothing was fitted, as they are and with evidence taken away.

Most rows are of chips and software that the package knows. What it would say without that knowledge is seen by taking
it away: steps under other software and under none, requests by engines as they are on no chip in particular and by
none, and both under constants of kernels that were fitted without the chip (`tests/validation/unseen`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cli import run
from slipstick.driver.uncertainty.evidence import IDEAL, ChipEvidence, SoftwareEvidence
from slipstick.driver.uncertainty.quantities import E2EL, LOADED_TTFT, MEMORY, STEP, THROUGHPUT, TPOT, TTFT
from slipstick.frontend import GraphCache
from slipstick.ir.errors import InfeasibleError, InternalError, SlipstickError, SystemFileError
from slipstick.validation.inference.bench import InferenceBench, alike
from slipstick.validation.inference.cases import ServedCase
from slipstick.validation.inference.engines import EngineRoom, chip_of
from slipstick.validation.inference.outcomes import outcome as served_outcome
from slipstick.validation.inference.outcomes import read_cases as read_served
from slipstick.validation.inference.predict import predicted
from slipstick.validation.judge import judge_files, read_tables
from slipstick.validation.kinds import JudgingSettings
from slipstick.validation.plans import stack_of
from slipstick.validation.results.outcomes import Outcome, Part
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import RowFault, Table
from slipstick.validation.rows.words import system_of
from slipstick.validation.runs import RunJudge, arguments_of
from slipstick.validation.training.cases import TrainingCase
from slipstick.validation.training.machine_shop import MachineShop
from slipstick.validation.training.outcomes import answers
from slipstick.validation.training.outcomes import read_cases as read_steps

TABLES = Path("tests/validation")
UNSEEN = TABLES / "unseen"
# SoftwareEvidence that stands for that of a run where nobody has measured that: of those it is not, the first.
STAND_INS = ("megatron-core", "nanotron", "composer-fsdp")
# Systems whose chips are no relative of those that kernels were measured on.
OF_OTHERS = ("mi300x-platform", "tpu-v6e-pod", "tpu-v5p-pod", "hls-gaudi-2", "hls-gaudi-3")
# Tables that are read by themselves, or tell nothing of times.
_NO_TIMES = frozenset(("pipeweave.csv", "runs.csv", "bills.csv", "power.csv", "residuals.csv"))
# Metrics of whole runs and the quantities that they are.
_OF_METRICS = {
    "duration_s": THROUGHPUT, "tokens_per_s": THROUGHPUT, "tpot_s": TPOT, "ttft_s": TTFT, "e2el_s": E2EL,
    "step_time_s": STEP, "tokens_per_s_per_gpu": STEP, "model_flop_per_s_per_gpu": STEP, "peak_mem_bytes": MEMORY,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One quantity of one row beside its prediction, and on what the prediction rested.

    Attributes:
        table: the kind of table.
        id: of the row.
        dataset: its publication.
        part: `judged` where nothing was fitted to it.
        quantity: one of the quantities that have bands; of kernels their kind.
        model: as published; empty of kernels.
        experts: whether it has experts.
        chip: as its maker calls it.
        software: of the prediction.
        precision: as published.
        predicted: in the unit of the row.
        measured: likewise; None where there is no prediction.
        reason: why there is none.
        silicon: how near measurements come to the chip in this prediction; None where that is as it is.
        level: likewise of the software.
    """

    table: str
    id: str
    dataset: str
    part: str
    quantity: str
    model: str = ""
    experts: bool = False
    chip: str = ""
    software: str = ""
    precision: str = ""
    predicted: float = 1.0
    measured: float | None = None
    reason: str = ""
    silicon: ChipEvidence | None = None
    level: SoftwareEvidence | None = None


def observed(folder: Path = TABLES) -> Iterator[Observed]:
    """Yield every row of the tables as it is, then those of whole runs with evidence taken away."""
    yield from _as_they_are(folder)
    yield from _runs(folder / "runs.csv")
    (steps, served), _ = read_tables([folder / "training_step.csv", folder / "inference_latency.csv"])
    yield from _steps(steps)
    yield from _served(served)


def _as_they_are(folder: Path) -> Iterator[Observed]:
    files = sorted(one for one in folder.glob("*.csv") if one.name not in _NO_TIMES)
    room = MachineRoom()
    for one in judge_files(files, (), JudgingSettings(room, GraphCache.default())):
        has = one.has_error or one.is_range
        yield Observed(
            table=one.table, id=one.row.id, dataset=one.row.dataset, part=one.part.value, quantity=_quantity(one),
            model=one.row.text("model"), experts=_has_experts(one.row), chip=_chip(one, room),
            software=_software(one), precision=one.row.text("precision") or one.row.text("dtype"),
            predicted=one.predicted if has else 1.0, measured=one.measured if has else None, reason=one.reason,
        )  # fmt: skip


def _software(one: Outcome) -> str:
    if one.table in ("training", "memory"):
        return one.library or stack_of(one.row)
    return one.engine or one.library


def _quantity(one: Outcome) -> str:
    """The quantity of an outcome; a first token under load is another than one of a single prompt or batch."""
    if one.table == "inference":
        name = one.kind.partition(" ")[0]
        return LOADED_TTFT if name == TTFT and one.is_range else name
    return {"training": STEP, "memory": MEMORY}.get(one.table, one.kind)


def _chip(one: Outcome, room: MachineRoom) -> str:
    try:
        return room.system(one.system or system_of(one.row)).chip.name
    except NotJudged:
        return ""


def _has_experts(row: Row) -> bool:
    if row.text("n_experts"):
        return float(row.text("n_experts")) > 1
    return _named_experts(row.text("model"))


def _named_experts(model: str) -> bool:
    """Whether a model has experts, by its name: they say so, or are known for it."""
    name = model.lower()
    return any(word in name for word in ("mixtral", "moe", "deepseek-v3", "deepseek-r1", "gpt-oss", "a3b", "a22b",
                                         "deepseek-ai", "deepseekv3", "kimi", "glm-4.5", "minimax"))  # fmt: skip


# Whole runs as command lines: their answers say what they rest on.


def _runs(path: Path) -> Iterator[Observed]:
    (table,), _ = read_tables([path])
    faults: list[RowFault] = []
    known: dict[tuple[str, ...], Mapping[str, object]] = {}

    def estimate(arguments: Sequence[str]) -> Mapping[str, float]:
        document = answered(arguments)
        inputs, metrics = document["inputs"], document["metrics"]
        assert isinstance(inputs, dict)
        assert isinstance(metrics, dict)
        known[tuple(arguments)] = inputs
        return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}

    for one in RunJudge(estimate).outcomes(table, faults):
        arguments = arguments_of(one.row, path.parent)
        yield _run(one, arguments, known.get(arguments, {}))
    for row in table.rows:
        yield from _run_unseen(row, path, estimate, known)
    assert not faults, faults


def _run(one: Outcome, arguments: Sequence[str], inputs: Mapping[str, object]) -> Observed:
    system, engine = _record(inputs, "system"), _record(inputs, "engine")
    quantity = _OF_METRICS[one.row.text("metric")]
    if quantity == STEP:
        quantity = {"prefill": TTFT, "decode": TPOT}.get(str(inputs.get("phase")), STEP)
    inverse = one.unit == "/s" and quantity in (STEP, TTFT, TPOT)  # a rate of steps stands for their time
    has = one.part is not Part.SKIPPED
    values = (one.predicted, one.measured) if has else (1.0, 1.0)
    predicted_, measured = (1.0 / v for v in values) if inverse else values
    return Observed(
        table="runs", id=one.row.id, dataset=one.row.dataset, part=one.part.value, quantity=quantity,
        model=arguments[0], experts=_named_experts(arguments[0]), chip=str(system.get("chip", "")),
        software=str(engine.get("name") or system.get("stack", "")),
        precision=str(_record(inputs, "plan").get("precision", "")) or "bf16",
        predicted=predicted_, measured=measured if has else None, reason=one.reason if not has else "",
    )  # fmt: skip


def _run_unseen(row: Row, path: Path, estimate: object, known: Mapping[tuple[str, ...], object]) -> Iterator[Observed]:
    """A run on a chip that is no relative of any that was measured, as if only what carries over were known."""
    arguments = arguments_of(row, path.parent)
    if any(
        name in arguments for name in ("mi300x-platform", "tpu-v6e-pod", "tpu-v5p-pod", "hls-gaudi-2", "hls-gaudi-3")
    ):
        plain = [*_without(arguments, "--stack"), "--calibration", "joint"]
        if "--engine" in plain:
            plain[plain.index("--engine") + 1] = "ideal"
        else:
            plain += ["--stack", "none"]
        try:
            document = answered(plain)
        except SlipstickError:
            return
        metrics = _record(document, "metrics")
        metric = row.text("metric")
        if metric in metrics:
            one = Outcome(row=row, table="runs", part=Part.JUDGED, predicted=float(str(metrics[metric])),
                          measured=float(row.text("measured")), unit="/s" if "per_s" in metric else "s")  # fmt: skip
            yield replace(
                _run(one, arguments, _record(document, "inputs")),
                silicon=ChipEvidence.NONE,
                level=SoftwareEvidence.IDEAL,
            )


def _without(arguments: Sequence[str], flag: str) -> list[str]:
    found = list(arguments)
    if flag in found:
        place = found.index(flag)
        del found[place : place + 2]
    return found


def answered(arguments: Sequence[str]) -> Mapping[str, object]:
    """Answer arguments of `slipstick estimate` as a document; SlipstickError where there is none."""
    out, errors = io.StringIO(), io.StringIO()
    whatever = () if "serve" in arguments else ("--allow-infeasible",)
    with redirect_stdout(out), redirect_stderr(errors):
        code = run(["estimate", *arguments, "--format", "json", "--quiet", *whatever])
    if code not in (0, InfeasibleError.exit_code):
        raise SlipstickError(errors.getvalue().strip().rpartition("error: ")[2])
    document: dict[str, object] = json.loads(out.getvalue())
    return document


def _record(tree: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


# Training steps under software that is not theirs, under none, and on chips that no fit has seen.


def _steps(table: Table) -> Iterator[Observed]:
    faults: list[RowFault] = []
    cases, _ = read_steps(table, MachineShop(), faults)
    fair = {place: case for place, case in cases.items() if not case.outlier}
    yield from _restacked(fair, {p: replace(c, stack="default") for p, c in fair.items()}, None, SoftwareEvidence.IDEAL)
    yield from _restacked(fair, {p: replace(c, stack=_stand_in(c.stack)) for p, c in fair.items()}, None,
                          SoftwareEvidence.BORROWED)  # fmt: skip
    for name, constants in _unseen():
        there = {p: c for p, c in fair.items() if c.system == name}
        if there:
            yield from _restacked(there, there, constants, None)
            yield from _restacked(
                there,
                {p: replace(c, stack=_stand_in(c.stack)) for p, c in there.items()},
                constants,
                SoftwareEvidence.BORROWED,
            )
            bare = {p: replace(c, stack="default") for p, c in there.items()}
            yield from _restacked(there, bare, constants, SoftwareEvidence.IDEAL)


def _stand_in(stack: str) -> str:
    """Name software that stands for another, of another family."""
    return next(name for name in STAND_INS if name.partition("-")[0] != stack.partition("-")[0])


def _restacked(
    cases: Mapping[int, TrainingCase], changed: Mapping[int, TrainingCase], constants: Path | None,
    level: SoftwareEvidence | None,
) -> Iterator[Observed]:  # fmt: skip
    found = answers(changed, GraphCache.default(), None if constants is None else str(constants), 1)
    for place, one in found.items():
        case = cases[place]
        if not one.reason:
            yield Observed(
                table="training", id=case.row.id, dataset=case.row.dataset, part="judged", quantity=STEP,
                model=case.row.text("model"), experts=_has_experts(case.row), chip=load_system(case.system).chip.name,
                software=changed[place].stack, predicted=one.step_s, measured=case.measured_s,
                silicon=None if constants is None else ChipEvidence.MAKER, level=level,
            )  # fmt: skip


def _unseen() -> Iterator[tuple[str, Path]]:
    """Systems, and constants of kernels that were fitted without them."""
    yield from ((one.stem, one) for one in sorted(UNSEEN.glob("*.yaml")))


# Served requests by engines as they are on no chip, by none, and on chips that no fit has seen.


class _Elsewhere(EngineRoom):
    """Engines as they are on no chip in particular."""

    def engine(self, name: str, system: str) -> object:  # type: ignore[override]
        key = (name, chip_of(system))
        if key not in self._engines:
            self._engines[key] = load_engine(name, None)
        return self._engines[key]


def _served(table: Table) -> Iterator[Observed]:
    faults: list[RowFault] = []
    cases, _ = read_served(table, faults)
    fair = [case for case in cases.values() if not case.excluded]
    yield from _by(fair, fair, _Elsewhere(), None, SoftwareEvidence.ELSEWHERE)
    yield from _by(fair, [replace(c, engine="ideal") for c in fair], EngineRoom(), None, SoftwareEvidence.IDEAL)
    for name, constants in _unseen():
        there = [case for case in fair if case.system == name]
        yield from _by(there, there, _Elsewhere(str(constants)), ChipEvidence.MAKER, SoftwareEvidence.ELSEWHERE)


def _by(
    cases: Sequence[ServedCase], changed: Sequence[ServedCase], room: EngineRoom, silicon: ChipEvidence | None,
    level: SoftwareEvidence,
) -> Iterator[Observed]:  # fmt: skip
    bench = InferenceBench(room, GraphCache.default())
    own = {id(new): old for old, new in zip(cases, changed, strict=True)}
    for model in alike(changed):
        for case in model:
            try:
                found = predicted(case, bench)
            except (InternalError, SystemFileError):
                raise
            except SlipstickError:
                continue
            for measured in case.measured:
                one = served_outcome(case, measured, found, Part.JUDGED)
                yield Observed(
                    table="inference", id=case.row.id, dataset=case.row.dataset, part="judged",
                    quantity=_quantity(one), model=case.row.text("model"), experts=not case.dense,
                    chip=load_system(case.system).chip.name,
                    software=own[id(case)].engine if level is not SoftwareEvidence.IDEAL else next(iter(sorted(IDEAL))),
                    predicted=one.predicted, measured=one.measured, silicon=silicon, level=level,
                )  # fmt: skip
