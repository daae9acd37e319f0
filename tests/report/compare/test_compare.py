"""Comparisons of reports that are written by hand: changes, reasons, inputs, gates, and files that are no reports."""

import gzip
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import ParseError, UnknownNameError, UsageError
from slipstick.measured.run import MeasuredRun
from slipstick.report.compare.compare_text import comparison_json, comparison_markdown, comparison_text
from slipstick.report.compare.comparison import Change, Comparison, compare
from slipstick.report.compare.gates import Gate, judged, read_gate
from slipstick.report.compare.measured import against
from slipstick.report.compare.saved import read_saved

GIB = 2.0**30
Tree = dict[str, object]


def report(
    breakdown: Mapping[str, float], plan: Mapping[str, object] | None = None, memory_gib: float = 40.0, **more: object
) -> Tree:
    """A report as `estimate` writes it, with a step of the parts' sum and 1000 tokens in it."""
    step_s = sum(breakdown.values())
    return {
        "schema": "slipstick/report/1", "tool_version": "0.1.0",
        "inputs": {"model": {"name": "toy", "graph_sha256": "aa"}, "phase": "train",
                   "system": {"name": "box", "overrides": [], "num_gpus": 8}, "plan": dict(plan or {"tp": 8})},
        "feasible": True,
        "metrics": {"step_time_s": step_s, "tokens_per_s_per_gpu": 125 / step_s, "mfu": 4.0 / step_s,
                    "hidden_comm_s": 0.5, "peak_mem_bytes": memory_gib * GIB},
        "breakdown": dict(breakdown), "hidden_comm": {"comm.dp": 0.5},
        "memory": {"weights": 10 * GIB, "activations": (memory_gib - 10) * GIB, "capacity": 80 * GIB},
        "warnings": [], **more,
    }  # fmt: skip


BEFORE = report({"compute.matmul": 6.0, "comm.tp": 4.0, "bubble": 0.0})
# Two seconds less: comm.tp -2.5 s, matmul +0.3 s, a bubble of 0.2 s.
AFTER = report({"compute.matmul": 6.3, "comm.tp": 1.5, "bubble": 0.2}, {"tp": 4}, 50.0)


def saved(tree: Tree, path: Path) -> str:
    path.write_text(json.dumps(tree), encoding="utf-8")
    return str(path)


@pytest.fixture
def between(tmp_path: Path) -> Comparison:
    return compared(BEFORE, AFTER, tmp_path)


def compared(a: Tree, b: Tree, folder: Path) -> Comparison:
    return compare(read_saved(saved(a, folder / "a.json")), read_saved(saved(b, folder / "b.json")))


def test_metrics_stand_side_by_side(between: Comparison) -> None:
    step = between.metrics["step_time_s"]
    assert (step.before, step.after, step.difference, step.relative) == (10.0, 8.0, -2.0, -0.2)


def test_parts_are_sorted_by_the_size_of_their_change_and_add_up(between: Comparison) -> None:
    breakdown, hidden, memory = between.sections
    assert [c.name for c in breakdown.parts] == ["comm.tp", "compute.matmul", "bubble"]
    assert sum(c.difference for c in breakdown.parts) == pytest.approx(breakdown.whole.difference, abs=1e-12)
    assert [c.difference for c in hidden.parts] == [0.0]
    assert [(c.name, c.difference / GIB) for c in memory.parts] == [("activations", 10.0), ("weights", 0.0)]


def test_only_inputs_that_differ_are_named(between: Comparison) -> None:
    assert [(d.name, d.before, d.after) for d in between.inputs] == [("plan.tp", "8", "4")]


def test_the_reason_stands_below_the_answer(between: Comparison) -> None:
    lines = comparison_text(between, (), 0.001).splitlines()
    assert lines[2] == "step time: 10 s to 8 s: -2 s, -20 %"
    assert lines[3] == "  comm.tp -2.5 s of the -2 s, compute.matmul +300 ms, bubble +200 ms"


def test_a_table_has_what_changed_and_its_share(between: Comparison) -> None:
    text = comparison_text(between, (), 0.001)
    rows = [line.split() for line in text.splitlines()]
    assert ["plan.tp", "8", "4"] in rows
    assert ["comm.tp", "4", "s", "1.5", "s", "-2.5", "s", "-62.5", "%", "+125", "%"] in rows
    assert ["bubble", "0", "s", "200", "ms", "+200", "ms", "new", "-10", "%"] in rows
    assert ["mfu", "40.00", "%", "50.00", "%", "+10.00", "pp", "+25", "%"] in rows
    assert "changed by 0.1 % at most: hidden_comm_s" in text
    assert "Hidden communication" not in text


def test_small_parts_are_summed_up_below_the_threshold(between: Comparison) -> None:
    # 5 % of the longer step, 10 s, is 0.5 s: comm.tp alone is above.
    text = comparison_text(between, (), 0.05)
    assert "compute.matmul   " not in text
    assert "2 more: +500 ms" in text
    everything = comparison_text(between, (), 0.0)
    assert "more:" not in everything
    assert "the same: hidden_comm_s" in everything


def test_nothing_changed(tmp_path: Path) -> None:
    text = comparison_text(compared(BEFORE, BEFORE, tmp_path), (), 0.001)
    assert "step time: 10 s, the same\n" in text
    assert "No input differs" in text


def test_a_change_below_the_threshold_is_called_the_same_within_it(tmp_path: Path) -> None:
    barely = report({"compute.matmul": 6.0, "comm.tp": 4.001, "bubble": 0.0})
    assert "step time: 10 s, the same within 0.1 %" in comparison_text(compared(BEFORE, barely, tmp_path), (), 0.001)


def test_steps_of_other_work_are_said_to_be(tmp_path: Path) -> None:
    longer = report({"compute.matmul": 12.0, "comm.tp": 8.0}, {"tp": 8, "gbs": 128})
    shorter = report({"compute.matmul": 6.0, "comm.tp": 4.0}, {"tp": 8, "gbs": 64})
    text = comparison_text(compared(shorter, longer, tmp_path), (), 0.001)
    assert "not the same work: plan.gbs differs; tokens/s/GPU -50 %" in text


def test_what_does_not_fit_and_new_notes_are_said(tmp_path: Path) -> None:
    full = report({"compute.matmul": 6.0, "comm.tp": 4.0}, warnings=["tp=8 spans nodes"], feasible=False)
    lines = comparison_text(compared(BEFORE, full, tmp_path), (), 0.001).splitlines()
    assert "  B does not fit the memory of its machine" in lines
    assert "  only B notes: tp=8 spans nodes" in lines


def test_overrides_are_inputs_and_digests_speak_only_for_themselves(tmp_path: Path) -> None:
    def on(sha: str, *overrides: str) -> Tree:
        system = {"name": "box", "numbers_sha256": sha, "overrides": list(overrides)}
        return report({"compute.matmul": 1.0}) | {"inputs": {"system": system}}

    override = comparison_text(compared(on("aa"), on("bb", "chip.power=650W"), tmp_path), (), 0.001)
    assert ["--set", "chip.power", "-", "650W"] in [line.split() for line in override.splitlines()]
    assert "sha256" not in override
    alone = comparison_text(compared(on("aa" * 32), on("bb" * 32), tmp_path), (), 0.001)
    assert ["system.numbers_sha256", "a" * 12, "b" * 12] in [line.split() for line in alone.splitlines()]


def test_what_an_older_version_did_not_say_is_no_difference(tmp_path: Path) -> None:
    newer = report({"compute.matmul": 6.0, "comm.tp": 4.0, "bubble": 0.0}, {"tp": 8, "novelty": False})
    text = comparison_text(compared(BEFORE, newer, tmp_path), (), 0.001)
    assert "No input differs" in text
    assert "only B says: plan.novelty no" in text


@pytest.mark.parametrize(
    ("gate", "fails"),
    [
        ("step_time_s>+3%", False), ("step_time_s<-10%", True), ("step_time_s<-20%", False),
        ("step_time_s<=-20%", True), ("step_time_s>9s", False), ("step_time_s > 7 s", True),
        ("step_time_s>-3s", True), ("step_time_s>+500ms", False), ("step_time_s.comm.tp>+0%", False),
        ("breakdown.compute.matmul>+100ms", True), ("step_time_s.bubble>+10%", True), ("mfu<60%", True),
        ("mfu<0.4", False), ("mfu>+20%", True), ("peak_mem_bytes>45GiB", True), ("memory.activations>+11GiB", False),
        ("tokens_per_s_per_gpu<-5%", False), ("tokens_per_s_per_gpu>=15", True), ("hidden_comm_s>+0%", False),
        ("memory.weights>+0%", False), ("hidden_comm_s.comm.dp>=500ms", True),
    ],
)  # fmt: skip
def test_gates(between: Comparison, gate: str, fails: bool) -> None:
    assert read_gate(gate, between).failed is fails


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_the_way_back_undoes_a_change(before: float, after: float) -> None:
    there, back = Change("step_time_s", "s", before, after), Change("step_time_s", "s", after, before)
    assert there.difference == -back.difference
    assert math.isclose((1 + there.relative) * (1 + back.relative), 1.0, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("step_time_s", "is not a gate: a gate is METRIC"),
        ("step_time_s=3%", "is not a gate"),
        ("step_time_s>", "is not a gate"),
        ("step_time_s>3%", "3% of what? +3% is a change against A"),
        ("step_time_s>+3GiB", "wrong unit 'GiB'"),
        ("step_time_s>fast", "'fast' is not a quantity"),
        ("tokens_per_s_per_gpu>5GiB", "this number has no unit"),
    ],
)
def test_bad_gates_show_the_grammar(between: Comparison, gate: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_gate(gate, between)
    assert said in str(caught.value)
    assert "METRIC[.PART]" in str(caught.value)


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("step_tim_s>+3%", "unknown metric 'step_tim_s'; did you mean 'step_time_s'?"),
        ("step_time_s.comm.td>+3%", "unknown part of step_time_s 'comm.td'; did you mean 'comm.tp'?"),
        ("brekdown.comm.tp>+3%", "unknown metric with parts 'brekdown'; did you mean 'breakdown'?"),
    ],
)
def test_unknown_names_get_the_nearest(between: Comparison, gate: str, said: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        read_gate(gate, between)
    assert str(caught.value).startswith(said)


def test_a_metric_that_one_report_has_alone_cannot_be_held_against_anything(tmp_path: Path) -> None:
    later = json.loads(json.dumps(AFTER))
    later["metrics"]["gpu_hours"] = 12.0
    found = compared(BEFORE, later, tmp_path)
    assert "only in B: gpu_hours" in comparison_text(found, (), 0.001)
    with pytest.raises(UsageError, match="only report B has 'gpu_hours'"):
        read_gate("gpu_hours>+3%", found)


def test_a_gate_lets_nothing_through_that_is_no_number_and_no_time_below_zero(tmp_path: Path) -> None:
    change = Change("step_time_s", "s", 10.0, float("nan"))
    for symbol in (">", ">=", "<", "<="):
        for kind in ("value", "change", "relative"):
            assert Gate("", change, symbol, 0.03, kind).failed
    before = json.loads(json.dumps(BEFORE))
    before["metrics"]["step_time_s"] = -1.0
    with pytest.raises(ParseError, match="less than nothing"):
        compared(before, AFTER, tmp_path)
    predicted = read_saved(saved(BEFORE, tmp_path / "a.json"))
    for value in (float("nan"), -1.0, 1e10):
        with pytest.raises(ParseError, match="seconds of a run are 0 to ten years"):
            against(predicted, MeasuredRun(path="t.json", kind="trace", metrics={"step_time_s": value}))


def test_json_has_everything(between: Comparison) -> None:
    gates = judged(["step_time_s>+3%", "step_time_s.bubble>+1%"], between)
    record = json.loads(comparison_json(between, gates))
    assert record["schema"] == "slipstick/comparison/1"
    assert record["metrics"]["step_time_s"] == {"a": 10.0, "b": 8.0, "difference": -2.0, "relative": -0.2}
    assert record["parts"]["breakdown"]["changes"]["bubble"]["relative"] is None
    assert record["inputs"] == [{"name": "plan.tp", "a": "8", "b": "4"}]
    assert [g["failed"] for g in record["gates"]] == [False, True]


def with_intervals(tree: Tree, chip: str, stack: str) -> Tree:
    """The report with a step of -10 to +20 % in 90 % of cases, and ratios on the machine of -5 to +5 %."""
    found = json.loads(json.dumps(tree))
    found["inputs"]["system"] |= {"chip": chip, "stack": stack}
    step_s = found["metrics"]["step_time_s"]
    ends = {"least": 0.9, "low": 1.0, "high": 1.1, "most": 1.2}
    ratio = {"least": 0.95, "low": 0.98, "high": 1.02, "most": 1.05}
    own = {name: end * step_s for name, end in ends.items()}
    return {**found, "intervals": {"metrics": {"step_time_s": {**own, "ratio": ratio}}}}


def test_a_change_on_one_machine_has_the_band_of_paired_errors(tmp_path: Path) -> None:
    found = compared(with_intervals(BEFORE, "box", "s"), with_intervals(AFTER, "box", "s"), tmp_path)
    record = json.loads(comparison_json(found, ()))
    assert record["paired"]
    # 8 s over 10 s are 0.8, of which -5 to +5 % are 0.76 to 0.84.
    assert record["metrics"]["step_time_s"]["relative_interval"] == pytest.approx(
        {"least": -0.24, "low": -0.216, "high": -0.184, "most": -0.16}
    )
    assert "-2 s, -20 % (90 %: -24 to -16 %)" in comparison_text(found, (), 0.001)


@pytest.mark.parametrize(("chip", "stack"), [("other", "s"), ("box", "t")])
def test_a_change_of_machine_or_software_has_the_band_of_both(tmp_path: Path, chip: str, stack: str) -> None:
    found = compared(with_intervals(BEFORE, "box", "s"), with_intervals(AFTER, chip, stack), tmp_path)
    record = json.loads(comparison_json(found, ()))
    assert not record["paired"]
    # B may be 20 % longer where A is 10 % shorter, in quadrature.
    most = 0.8 * math.exp(math.hypot(math.log(1.2), math.log(0.9))) - 1
    assert record["metrics"]["step_time_s"]["relative_interval"]["most"] == pytest.approx(most)


@pytest.mark.parametrize("ends", [None, 3, {}, {"least": 1, "low": "x", "high": 2, "most": 3}, {"least": -1.0}])
def test_reports_without_sound_intervals_are_compared_without_bands(tmp_path: Path, ends: object) -> None:
    odd = {**BEFORE, "intervals": {"metrics": {"step_time_s": ends}}}
    record = json.loads(comparison_json(compared(odd, odd, tmp_path), ()))
    assert "relative_interval" not in record["metrics"]["step_time_s"]


def test_markdown_is_tables_with_nothing_that_breaks_them(tmp_path: Path) -> None:
    found = compared(BEFORE, report({"comm.tp": 9.0}, {"tp": "a|b_c"}), tmp_path)
    text = comparison_markdown(found, judged(["step_time_s>+3%"], found), 0.001)
    assert text.startswith("**step time: 10 s to 9 s: -1 s, -10 %**\n\n- ")
    assert "- ✅ `step_time_s>+3%`: 10 s to 9 s (-1 s, -10 %)" in text
    assert "| plan.tp | 8 | a\\|b\\_c |" in text
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert tables
    assert all(row.replace("\\|", "").count("|") == t[0].count("|") for t in tables for row in t)


def test_a_compressed_report_and_stdin_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(BEFORE).encode()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(AFTER).encode())))
    assert read_saved(str(packed)).metrics["step_time_s"] == 10.0
    assert read_saved("-").metrics["step_time_s"] == 8.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("[1]", "it holds a list"),
        ('{"a": 1}', "it has no 'schema'"),
        ('{"schema": "slipstick/report/9"}', "what can be compared: slipstick/report/1"),
        ('{"schema": "slipstick/report/1"}', "has no metrics"),
        ('{"schema": "slipstick/report/1", "metrics": 3}', "metrics is a int"),
        ('{"schema": "slipstick/report/1", "metrics": {"mfu": "much"}}', 'metrics.mfu is "much", not a finite number'),
        ('{"schema": "slipstick/report/1", "metrics": {"mfu": NaN}}', "metrics.mfu is NaN, not a finite number"),
    ],
)
def test_what_is_no_report_is_refused_with_how_to_write_one(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParseError) as caught:
        read_saved(str(path))
    assert said in str(caught.value)
    assert "slipstick estimate ... --format json" in str(caught.value)


@pytest.mark.parametrize("name", ["step_time_s", "mfu", "usd_per_step"])
def test_a_metric_below_zero_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema": "slipstick/report/1", "metrics": {"hfu": 0.0, name: -1.0}}), encoding="utf-8")
    with pytest.raises(ParseError, match=f"metrics.{name} is -1"):
        read_saved(str(path))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(UsageError, match="cannot read"):
            read_saved(str(path))
    for name, data, told in (
        ("bytes.json", b"\xff\xfe", "it is not UTF-8 text"),
        ("not.json.gz", b"plain", "Not a gzipped file"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ParseError, match=f"{name}.*{told}"):
            read_saved(str(tmp_path / name))


def validation(median: float, by_set: Mapping[str, float]) -> Tree:
    return {
        "schema": "slipstick/validation/2",
        "overall": {"n": 10, "skipped": 0, "excluded": 0, "median_ape": median, "p90_ape": 0.2, "judged": {"n": 5}},
        "datasets": {name: {"n": 5, "median_ape": value} for name, value in by_set.items()},
    }


def test_summaries_of_validate_are_compared_by_data_set(tmp_path: Path) -> None:
    a, b = validation(0.05, {"vtrain": 0.04, "mpt": 0.06}), validation(0.06, {"vtrain": 0.07, "mpt": 0.06, "new": 0.1})
    found = compared(a, b, tmp_path)
    text = comparison_text(found, (), 0.001)
    assert "median_ape: 5.00 % to 6.00 %: +1.00 pp, +20 %" in text
    assert ["vtrain", "4.00", "%", "7.00", "%", "+3.00", "pp", "+75", "%"] in [
        line.split() for line in text.splitlines()
    ]
    assert read_gate("median_ape.vtrain>5%", found).failed
    assert not read_gate("median_ape.mpt>+0.1%", found).failed


def test_reports_of_two_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give two reports of one kind"):
        compared(BEFORE, validation(0.05, {}), tmp_path)


def test_reports_without_a_common_metric_are_refused(tmp_path: Path) -> None:
    other = BEFORE | {"metrics": {"something_s": 1.0}}
    with pytest.raises(UsageError, match="no metric in common"):
        compared(BEFORE, other, tmp_path)
