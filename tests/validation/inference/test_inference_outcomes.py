"""Served requests from a table to outcomes: forms by hand, ranges, what is left out; fits of engines."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.backends.machine.software.engine_limits import engine_moved
from slipstick.cost.serving.batching.static import static_batch
from slipstick.frontend import GraphCache
from slipstick.ir.errors import SystemFileError, UsageError
from slipstick.validation.fit.engines.fit import fit_engine
from slipstick.validation.fit.engines.fit_file import check, refuse_other, tree_of
from slipstick.validation.fit.profiles import ProfileFit
from slipstick.validation.inference.bench import InferenceBench
from slipstick.validation.inference.cases import ServedCase, served_case
from slipstick.validation.inference.engines import EngineRoom
from slipstick.validation.inference.forms import CaseQuantity
from slipstick.validation.inference.outcomes import served_outcomes
from slipstick.validation.inference.predict import predicted
from slipstick.validation.results.figures import by_kernel, by_range
from slipstick.validation.results.outcomes import Outcome, Part
from slipstick.validation.results.report import IntervalShares, rows_csv, summary_json, summary_text
from slipstick.validation.rows.rows import Row
from slipstick.validation.rows.split import HALF, in_first_half
from slipstick.validation.rows.tables import RowFault, Table, read_table

HERE = Path(__file__).parents[1]
HEADER: tuple[str, ...] = (
    "id", "dataset", "measurement", "accelerator", "engine", "model", "precision", "batch_or_concurrency", "tp",
    "input_tokens", "output_tokens", "ttft_ms", "tpot_ms", "total_latency_ms", "output_tokens_per_s_total",
)  # fmt: skip
STATIC, CLOSED = "static batch, end to end", "online, fixed concurrency"


@pytest.fixture(scope="module")
def cache(graph_folder: Path) -> GraphCache:
    return GraphCache(graph_folder)


@pytest.fixture(scope="module")
def bench(cache: GraphCache) -> InferenceBench:
    return InferenceBench(EngineRoom(), cache)


def row(**cells: str | float) -> Row:
    given: dict[str, str | float] = {
        "id": "one", "dataset": "mine", "measurement": STATIC, "accelerator": "H100-SXM-80GB", "engine": "vllm 0.18.0",
        "model": "Llama-3.1-8B", "precision": "bf16", "batch_or_concurrency": 4, "tp": 1, "input_tokens": 200,
        "output_tokens": 50, "ttft_ms": 20, "tpot_ms": 8,
    }  # fmt: skip
    return Row({name: str({**given, **cells}.get(name, "")) for name in HEADER})


def table(rows: Sequence[Row]) -> Table:
    return Table(Path("mine.csv"), HEADER, tuple(rows))


def judged(rows: Sequence[Row], cache: GraphCache) -> list[Outcome]:
    faults: list[RowFault] = []
    found = served_outcomes(table(rows), cache, None, None, faults)
    assert faults == []
    return found


def test_a_static_batch_is_priced_by_its_closed_form(bench: InferenceBench) -> None:
    case = served_case(row())
    times, engine = bench.times(case, case.layout.replica.replica), bench.engine(case)
    expected = static_batch(times, engine, 4.0, case.lengths)
    found = predicted(case, bench)
    assert found[CaseQuantity.TTFT].value == pytest.approx(float(expected.ttft_s))
    assert found[CaseQuantity.TPOT].value == pytest.approx(float(expected.tpot_s))
    # Weights of 8 billion parameters in 2 bytes over 3.35 TB/s are the least that a step takes.
    assert found[CaseQuantity.TPOT].value > 2 * 7.5e9 / 3.35e12


def test_one_request_alone_has_a_latency_and_many_a_range(bench: InferenceBench) -> None:
    one = predicted(served_case(row(measurement=CLOSED, batch_or_concurrency=1)), bench)
    many = predicted(served_case(row(measurement=CLOSED, batch_or_concurrency=32)), bench)
    assert one[CaseQuantity.TTFT].low is None
    assert many[CaseQuantity.TTFT].low == pytest.approx(one[CaseQuantity.TTFT].value, rel=1e-6)
    low, high = many[CaseQuantity.TTFT].low, many[CaseQuantity.TTFT].high
    assert low is not None
    assert high is not None
    assert low <= many[CaseQuantity.TTFT].value <= high
    assert many[CaseQuantity.TPOT].value > one[CaseQuantity.TPOT].value


def test_prompts_of_an_offline_run_have_no_way_in(bench: InferenceBench) -> None:
    case = served_case(row())
    engine = bench.engine(case)
    offline = replace(case.settings, offline=True).on(engine)
    assert (offline.overheads.prompt_s, offline.overheads.prompt_token_s) == (0.0, 0.0)
    assert offline.overheads.step_s == engine.overheads.step_s


def test_ranges_count_as_met_or_missed_and_not_as_errors(bench: InferenceBench, cache: GraphCache) -> None:
    middle = predicted(served_case(row(measurement=CLOSED)), bench)[CaseQuantity.TTFT].value * 1e3
    closed = [row(id="in", measurement=CLOSED, ttft_ms=middle), row(id="out", measurement=CLOSED, ttft_ms=60000)]
    found = judged([*closed, row(id="static")], cache)
    ranges = [o for of in by_range(found).values() for o in of]
    assert [(o.row.id, o.inside, o.has_error) for o in ranges] == [("in", True, False), ("out", False, False)]
    shares = IntervalShares.of(ranges)
    assert (shares.num, shares.inside, shares.above, shares.below) == (2, 0.5, 0.5, 0.0)
    kinds = {key[2] for key in by_kernel(found)}
    assert kinds == {"tpot dense vllm", "ttft dense vllm"}
    text = summary_text(found, 1)
    assert "inside  below  above" in text
    assert '"inside": 0.5' in summary_json(found, 1)
    cells = list(csv.DictReader(rows_csv(found).splitlines()))
    assert {c["low_us"] != "" for c in cells if c["id"] == "in" and c["kind"].startswith("ttft")} == {True}


def test_throughput_is_a_rate_of_all_devices(cache: GraphCache) -> None:
    most = row(measurement="maximum throughput", ttft_ms="", tpot_ms="", output_tokens_per_s_total=9000)
    (found,) = judged([most], cache)
    assert (found.unit, found.kind, found.measured) == ("/s", "throughput dense", 9000.0)
    # No more than the batch allows: 1024 sequences over the least time of a step.
    assert 3000 < found.predicted < 1024 / (2 * 7.5e9 / 3.35e12)
    assert "/s" in summary_text([found], 1)


def test_rows_without_a_prediction_say_why(cache: GraphCache) -> None:
    rows = [row(id="tp", tp=3), row(id="fit", model="Llama-3.1-405B"), row(id="engine", engine="my server"),
            row(id="when", measurement="once upon a time")]  # fmt: skip
    found = judged(rows, cache)
    assert {o.part for o in found} == {Part.SKIPPED}
    reasons = {o.row.id: o.reason for o in found}
    assert "tp=3" in reasons["tp"]
    assert "no memory is left for a KV cache" in reasons["fit"]
    assert "no engine 'my server'" in reasons["engine"]
    assert "'once upon a time' is no measurement" in reasons["when"]


def test_a_row_that_cannot_be_read_is_told_and_the_others_are_judged(cache: GraphCache) -> None:
    faults: list[RowFault] = []
    rows = [row(id="bad", tpot_ms="fast"), row(id="good")]
    assert {o.row.id for o in served_outcomes(table(rows), cache, None, None, faults)} == {"good"}
    assert [fault.row.id for fault in faults] == ["bad"]
    assert "'fast' is not a number" in str(faults[0])


def test_rows_that_share_a_replica_share_its_times(bench: InferenceBench) -> None:
    first, second = (
        served_case(row(batch_or_concurrency=2)),
        served_case(row(batch_or_concurrency=16, input_tokens=900)),
    )
    assert bench.times(first, first.layout.replica.replica) is bench.times(second, second.layout.replica.replica)


FREE = ("overheads.step", "overheads.sequence")
TRUE = {"overheads.step": 2e-3, "overheads.sequence": 50e-6}


@pytest.fixture(scope="module")
def engine_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engines") / "vllm.yaml"
    fit = {"data_sets": ["mine"], "free": list(FREE)}
    path.write_text(yaml.safe_dump({"name": "vllm", "like": "ideal", "fit": fit}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def measured(engine_file: Path, cache: GraphCache) -> Path:
    """Times per token of an engine whose numbers are known."""
    rows = [row(id=f"{p}-{b}", measurement=CLOSED, batch_or_concurrency=b, input_tokens=p)
            for p in (100, 200, 300, 400, 500, 600) for b in (1, 4, 16)]  # fmt: skip
    bench = InferenceBench(EngineRoom(), cache)
    bench.room.put("dgx-h100", engine_moved(load_engine(engine_file, "h100-sxm-80gb"), TRUE))
    path = engine_file.parent / "served.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        for one in rows:
            tpot = predicted(served_case(one), bench)[CaseQuantity.TPOT].value
            writer.writerow({**one.cells, "ttft_ms": "", "tpot_ms": str(tpot * 1e3)})
    return path


@pytest.fixture(scope="module")
def fits(engine_file: Path, measured: Path, cache: GraphCache) -> tuple[ProfileFit, ...]:
    return fit_engine([measured], str(engine_file), lambda _: None, HALF, cache)


@pytest.mark.slow
def test_known_numbers_of_an_engine_are_found_again(fits: tuple[ProfileFit, ...], measured: Path) -> None:
    (fit,) = fits
    assert {n.path: n.value for n in fit.numbers} == pytest.approx(TRUE, rel=0.01)
    groups = [served_case(one).group for one in read_table(measured, []).rows]
    seen = sum(in_first_half("inference", group) for group in groups)
    assert (fit.chip, fit.fit.num, fit.split) == ("h100-sxm-80gb", seen, HALF)
    assert fit.judged is not None
    assert fit.judged.num == len(groups) - seen
    assert fit.judged.worst < 0.01


@pytest.mark.slow
def test_a_fit_is_a_file_that_estimates_take(fits: tuple[ProfileFit, ...], engine_file: Path) -> None:
    tree = tree_of(fits, "slipstick 1", engine_file.parent)
    check(fits, tree)
    written = engine_file.parent / "fitted.yaml"
    written.write_text(yaml.safe_dump(tree), encoding="utf-8")
    on_chip, elsewhere = load_engine(written, "h100-sxm-80gb"), load_engine(written, "a100-sxm-80gb")
    assert on_chip.overheads.step_s == pytest.approx(2e-3, rel=0.01)
    assert elsewhere.overheads.step_s == load_engine("ideal").overheads.step_s
    refuse_other(written)
    with pytest.raises(UsageError, match="is no fit of an engine"):
        refuse_other(engine_file)


def test_fits_refuse_what_they_cannot_do(engine_file: Path, measured: Path, cache: GraphCache) -> None:
    def refused(text: str, tree: dict[str, object], table: Path = measured) -> None:
        path = engine_file.parent / "other.yaml"
        path.write_text(yaml.safe_dump({"name": "other", "like": "ideal", **tree}), encoding="utf-8")
        with pytest.raises((UsageError, SystemFileError), match=text):
            fit_engine([table], str(path), lambda _: None, HALF, cache)

    refused("does not say what is free", {})
    judging: dict[str, object] = {"fit": {"data_sets": ["nvidia_llama2_200_200"], "free": list(FREE)}}
    refused("nvidia_llama2_200_200 only judges", judging, HERE / "inference_latency.csv")
    refused("data set to fit", {"fit": {"data_sets": ["yours"], "free": list(FREE)}})
    refused("number to fit", {"fit": {"data_sets": ["mine"], "free": ["overheads.steps"]}})


def test_data_sets_that_judge_alone_are_in_no_fit_of_the_catalogue() -> None:
    rows = read_table(HERE / "inference_latency.csv", []).rows
    assert {row.dataset for row in rows if row.source.judges_only} == {"nvidia_llama2_200_200"}


Case = Callable[[str], ServedCase]


@pytest.mark.parametrize(("load", "grown"), [({"input_tokens": 400}, "ttft"), ({"batch_or_concurrency": 64}, "tpot")])
def test_more_work_takes_no_less(bench: InferenceBench, load: dict[str, float], grown: str) -> None:
    less, more = predicted(served_case(row()), bench), predicted(served_case(row(**load)), bench)
    assert more[CaseQuantity(grown)].value > less[CaseQuantity(grown)].value
    assert np.isfinite(more[CaseQuantity(grown)].value)
