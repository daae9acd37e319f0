"""Timelines obey the Trace Event Format, end when the step does, and hold what the account of memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.report.trace.chrome.emit import trace_of

from ...traces import Document, amounts, answer_of, document, faults, on, slices

PIPE = Family(pp=True)
ALL = Family(pp=True, sp=True, zero=3, recompute="selective")
ONE_DEVICE = ["alone", "tp", "zero 1", "recompute", "async tp", "zero 3", "ring", "experts", "decode"]


def _with_stack(name: str) -> Estimate:
    return answer_of(Family(pp=True, sp=True, zero=1), gpus=16, tp=2, pp=2, system=load_system("dgx-h100", stack=name))


CASES = {
    "alone": lambda: answer_of(Family()),
    "one batch": lambda: answer_of(Family(), batches=1),
    "tp": lambda: answer_of(Family(sp=True), tp=4),
    "async tp": lambda: answer_of(Family(sp=True, async_tp=True), tp=4, mbs=8),
    "zero 1": lambda: answer_of(Family(zero=1)),
    "zero 2": lambda: answer_of(Family(zero=2)),
    "zero 3": lambda: answer_of(Family(zero=3)),
    "zero 3, gathered once": lambda: answer_of(Family(zero=3, reshard="step")),
    "recompute": lambda: answer_of(Family(recompute="full")),
    "offload": lambda: answer_of(Family(zero=3, offload=("optimizer", "activations", "params"))),
    "ring": lambda: answer_of(Family(cp="ring"), cp=4),
    "experts": lambda: answer_of(Family(ep=True), model="tiny-mixtral.train", ep=2),
    "pp": lambda: answer_of(PIPE, pp=4),
    "pp, few batches": lambda: answer_of(PIPE, pp=4, batches=2),
    "pp, uneven": lambda: answer_of(PIPE, pp=4, layers=10),
    "pp, all": lambda: answer_of(ALL, gpus=32, tp=4, pp=4, batches=9),
    "pieces": lambda: answer_of(Family(pp=True, scatter_p2p=True), gpus=16, tp=2, pp=4),
    "gpipe": lambda: answer_of(Family(pp=True, schedule="gpipe"), pp=4),
    "zb-h1": lambda: answer_of(Family(pp=True, schedule="zb-h1", zero=1), gpus=16, pp=4, batches=8),
    "zb-h1, tp": lambda: answer_of(Family(pp=True, sp=True, schedule="zb-h1"), tp=2, pp=4, batches=8),
    "zb-h2": lambda: answer_of(Family(pp=True, schedule="zb-h2"), pp=4, batches=8),
    "zb-v": lambda: answer_of(Family(pp=True, schedule="zb-v"), pp=4, vpp=2, batches=8),
    "dualpipe": lambda: answer_of(Family(pp=True, schedule="dualpipe"), pp=4, batches=8),
    "interleaved": lambda: answer_of(PIPE, pp=2, vpp=2, batches=8),
    "interleaved deep": lambda: answer_of(PIPE, pp=4, vpp=2, batches=8),
    "tied": lambda: answer_of(PIPE, pp=2, model="tiny-gpt2.train"),
    "host floor": lambda: _with_stack("nanotron"),
    "overlap": lambda: _with_stack("megatron-core"),
    "decode": lambda: answer_of(Family(workload=Workload.DECODE), model="tiny-llama.decode", tp=4),
    "decode, pp": lambda: answer_of(Family(workload=Workload.DECODE, pp=True), model="tiny-llama.decode", tp=2, pp=4),
}  # fmt: skip


@dataclass
class Case:
    """An answer, and its timeline in each detail once."""

    answer: Estimate
    drawn: dict[str, Document] = field(default_factory=dict)

    def done(self, detail: str = "node") -> Document:
        """Every stage in this detail."""
        if detail not in self.drawn:
            self.drawn[detail] = document(trace_of(self.answer, detail, every_stage=True))
        return self.drawn[detail]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """One case after the other: the timelines of one are gone before the next is drawn."""
    return Case(CASES[request.param]())


@cache
def made(name: str) -> Case:
    """A case by name."""
    return Case(CASES[name]())


@pytest.mark.parametrize("detail", ["task", "layer", "node"])
def test_the_format_is_obeyed(case: Case, detail: str) -> None:
    assert list(faults(case.done(detail))) == []


@pytest.mark.parametrize("detail", ["task", "node"])
def test_the_last_slice_ends_with_the_step(case: Case, detail: str) -> None:
    done = case.done(detail)
    ends = {at: max(e["ts"] + e["dur"] for e in row) for at, row in slices(done).items()}
    skew_s = float(str(done["otherData"]["skew_s"]))
    assert (skew_s > 1e-9) is (case.answer.plan.family.schedule in ("zb-h2", "zb-v"))
    step_us = (case.answer.metrics["step_time_s"] + skew_s) * 1e6
    assert max(ends.values()) == pytest.approx(step_us, rel=1e-6, abs=1e-3)
    # Not only the overview: a stage is busy to the end.
    if detail == "node":
        assert max(end for (pid, _), end in ends.items() if pid) == pytest.approx(step_us, rel=1e-6, abs=2e-3)


@pytest.mark.parametrize("detail", ["task", "layer", "node"])
def test_counters_peak_where_the_account_of_memory_does(case: Case, detail: str) -> None:
    whole, parts = amounts(case.done(detail), "memory"), amounts(case.done(detail), "memory by part")
    assert max(whole) == pytest.approx(case.answer.metrics["peak_mem_bytes"], abs=1)
    # Each part is rounded to a byte of its own.
    assert parts == pytest.approx(whole, abs=7)


def test_every_task_is_there(case: Case) -> None:
    plan, tasks = case.answer.plan, on(case.done(), "tasks")
    letters = [e["name"][0] for e in tasks if e["cat"] == "task"]
    batches = plan.num_micro_batches if plan.family.workload is Workload.TRAIN else 1
    assert letters.count("F") == batches * plan.pp * plan.vpp
    blocks = [e["args"] for e in tasks if e["name"].startswith("block") and e["args"]["micro_batch"] == 0]
    num = sum(n for region, n in case.answer.table.lowered.graph.counts.items() if region.startswith("block"))
    for phase in {"forward"} if set(letters) == {"F"} else {"forward", "backward"}:
        whole = {phase, f"{phase}, activations"}
        assert sorted(str(a["layer"]) for a in blocks if a["phase"] in whole) == sorted(map(str, range(num)))


@pytest.mark.parametrize("name", ONE_DEVICE)
def test_slices_of_one_device_add_up_to_the_breakdown(name: str) -> None:
    answer, done = made(name).answer, made(name).done()
    assert float(str(done["otherData"]["stretch"])) == pytest.approx(1.0, rel=1e-9)
    computed = sum(e["dur"] for e in on(done, "compute")) * 1e-6
    computing = {k: v for k, v in answer.breakdown_s.items() if k.startswith("compute.") or k == "optimizer"}
    assert computed == pytest.approx(sum(computing.values()), rel=1e-3)
    for axis in ("tp", "cp", "ep", "dp"):
        sent = sum(e["dur"] for stream in (axis, f"{axis} (once a step)") for e in on(done, stream)) * 1e-6
        assert sent == pytest.approx(_both(answer, f"comm.{axis}"), rel=1e-3, abs=1e-8)


def _both(answer: Estimate, part: str) -> float:
    return answer.breakdown_s.get(part, 0.0) + answer.hidden_comm_s.get(part, 0.0)


@pytest.mark.parametrize("name", ["alone", "pp", "interleaved", "gpipe", "pp, uneven", "host floor"])
def test_idle_time_of_the_busiest_stage_is_the_bubble(name: str) -> None:
    answer, done = made(name).answer, made(name).done()
    busy: Mapping[int, float] = {
        pid: sum(e["dur"] for e in on(done, "tasks", pid) if e["cat"] == "task") * 1e-6
        for pid in range(1, answer.plan.pp + 1)
    }
    stretch = float(str(done["otherData"]["stretch"]))
    phases = {e["name"]: e["dur"] * 1e-6 for e in on(done, "phases")}
    pipeline = phases[f"{answer.plan.num_micro_batches} micro-batches"]
    idle = pipeline - max(busy.values())
    # What the closed form and the simulation differ by is spread over tasks and idle time alike.
    assert idle == pytest.approx(answer.breakdown_s["bubble"], abs=abs(1 - stretch) * pipeline * 1.5 + 1e-8)


def test_messages_that_hide_run_beside_compute_and_those_exposed_leave_a_gap() -> None:
    exposed, hidden = made("tp").done(), made("async tp").done()
    assert _beside(exposed) == pytest.approx(0.0, abs=1e-9)
    answer = made("async tp").answer
    assert answer.hidden_comm_s["comm.tp"] > 0.0
    assert _beside(hidden) == pytest.approx(answer.hidden_comm_s["comm.tp"], rel=0.02)


def _beside(done: Document) -> float:
    """Seconds in which messages over tp run beside computation."""
    computing = [(e["ts"], e["ts"] + e["dur"]) for e in on(done, "compute")]
    sent = [(e["ts"], e["ts"] + e["dur"]) for e in on(done, "tp")]
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b in computing for c, d in sent) * 1e-6


def test_what_a_stage_sends_another_receives() -> None:
    done = made("pp").done()
    sent = on(done, "pp send")
    received = [e for k in range(4) for e in on(done, f"pp from stage {k}")]
    # Four micro-batches cross three borders, there and back.
    assert len(sent) == len(received) == 4 * 3 * 2
    arrows = [e for e in done["traceEvents"] if e["ph"] == "s"]
    assert len(arrows) == len(sent)


def test_classes_of_stages_alike_are_one_process() -> None:
    done = document(trace_of(made("pp").answer, "task"))
    names = [e["args"]["name"] for e in done["traceEvents"] if e["name"] == "process_name"]
    assert names == ["step", "stage 0", "stages 1-2 (shown: 1)", "stage 3"]
    assert list(faults(done)) == []
    assert "of 4 stages 3 are shown, the others are like one of them" in str(done["otherData"]["left_out"])
    # Stage 2 is not shown: of its messages only what the others get is drawn.
    assert {e["args"]["to_stage"] for e in on(done, "pp send")} == {0, 1, 2}


def test_names_bear_the_layer_and_say_what_runs() -> None:
    (first, *_) = [e for e in on(made("pp").done(), "compute", 2) if e["name"] == "matmul self_attn.q_proj"]
    args = first["args"]
    assert (args["module"], args["layer"], args["micro_batch"]) == ("model.layers.2.self_attn.q_proj", 2, 0)
    assert str(args["node"]).startswith("block0/%")
    # 64 tokens of 64 numbers times a square matrix.
    assert args["flops"] == 2 * 64 * 64 * 64
    assert str(args["bound"]) in str(args["terms_us"])


def test_the_pace_is_that_of_the_account() -> None:
    trace = trace_of(made("pp, all").answer)
    for spent, time in zip(trace.timeline.spent, made("pp, all").answer.table.step.stages, strict=True):
        assert spent.once_s >= float(time.once.total_s[0])
        assert spent.forward.time_s >= float(time.forward_s[0])
        assert spent.backward.time_s >= float(time.backward_s[0])
