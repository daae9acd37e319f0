"""How far parts of an estimate are to be trusted: which measurements are found, and what is said where none are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.report.accuracy import ANY, RowAccuracy, keys_of, nearest, packaged, written
from slipstick.report.bounds import node_seconds, part_of
from slipstick.report.explain.trust import accuracy_of, trust_of_parts
from slipstick.validation.judge import judge_files
from slipstick.validation.kinds import JudgingSettings
from slipstick.validation.results.accuracy import accuracy_csv
from slipstick.validation.results.outcomes import Outcome, Part
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.rows import Row

Traced = Callable[[str], Graph]
TABLES = Path(__file__).parents[2] / "validation"
KERNELS = ("attention", "collectives", "elementwise", "gemm", "moe")
H100 = "H100-SXM5-80GB"


def on(traced: Traced, system: System, tp: int = 2) -> Estimate:
    plan = make_plan(num_gpus=4, tp=tp, seq_len=64, global_batch=8, family=Family(sp=tp > 1))
    return estimate(traced("tiny-llama.train"), system, plan)


def test_the_nearest_rows_are_those_of_the_chip_and_the_library() -> None:
    known = packaged()
    found = nearest("gemm", H100, "pytorch", ["bf16"])
    assert found == known["gemm", H100, "pytorch", "bf16"]
    assert nearest("gemm", H100, "no-such", ["bf16"]) == known["gemm", H100, ANY, "bf16"]
    # Another kind on this chip goes before the same kind on another: what a chip reaches is its own.
    assert nearest("gemm", H100, "pytorch", ["fp64"]) == known["gemm", H100, ANY, ANY]
    assert nearest("gemm", "no-such", "pytorch", ["bf16"]) == known["gemm", ANY, "pytorch", "bf16"]
    assert nearest("no-such", H100, "pytorch", ["bf16"]) is None


def test_the_first_kind_goes_before_the_second_in_each_place() -> None:
    known = packaged()
    assert nearest("attention", H100, "pytorch", ["flash2", "grouped"]) == known["attention", H100, ANY, "flash2"]
    assert nearest("attention", H100, "pytorch", ["no-such", "grouped"]) == known["attention", H100, ANY, "grouped"]


def test_lines_over_all_of_a_column_hold_all_its_rows() -> None:
    known = packaged()
    for (table, chip, library, kind), line in known.items():
        if ANY not in (chip, library, kind):
            below = [known[key] for key in keys_of(table, chip, library, kind)[1:3]]
            assert [a.num_rows >= line.num_rows for a in below] == [True, True]
    chips = {chip for table, chip, library, kind in known if table == "gemm" and chip != ANY}
    assert sum(known["gemm", chip, ANY, ANY].num_rows for chip in chips) == known["gemm", ANY, ANY, ANY].num_rows


def test_only_rows_that_judge_count_by_table_chip_library_and_kind() -> None:
    def one(predicted: float, part: Part, library: str = "lib") -> Outcome:
        row = Row({"id": "a", "dataset": "d"})
        return Outcome(row=row, table="gemm", part=part, predicted=predicted, measured=1.0, system="s", library=library,
                       kind="bf16")  # fmt: skip

    outcomes = [one(1.1, Part.JUDGED), one(0.7, Part.JUDGED), one(1.2, Part.JUDGED, "other"), one(9.0, Part.FIT)]
    lines = accuracy_csv([*outcomes, one(9.0, Part.EXCLUDED)], lambda system: f"chip of {system}").splitlines()
    # Errors of 0.1 and 0.3: median 0.2, p90 0.28; with 0.2 between them the same median.
    assert lines[0] == "table,chip,library,kind,rows,median,p90"
    assert "gemm,chip of s,lib,bf16,2,0.2000,0.2800" in lines
    assert "gemm,chip of s,*,bf16,3,0.2000,0.2800" in lines
    assert "gemm,*,*,*,3,0.2000,0.2800" in lines
    assert lines[1:] == sorted(lines[1:])


@pytest.mark.slow
def test_the_table_of_the_package_is_what_validate_writes() -> None:
    """When this fails, constants or measurements have changed: `make validation` writes the table anew."""
    settings = JudgingSettings(MachineRoom())
    outcomes = judge_files([TABLES / f"{name}.csv" for name in KERNELS], (), settings)
    now = accuracy_csv(outcomes, lambda system: settings.room.system(system).chip.name)
    assert now == written(a for a in packaged().values() if a.table in KERNELS)


def test_parts_have_the_errors_of_their_kernels(traced: Traced) -> None:
    answer = on(traced, load_system("dgx-h100"))
    found = trust_of_parts(answer)
    gemm = packaged()["gemm", H100, "pytorch", "bf16"]
    assert found["compute.matmul"].lines == (gemm,)
    assert (found["compute.matmul"].median, found["compute.matmul"].p90) == pytest.approx((gemm.median, gemm.p90))
    assert [line.kind for line in found["compute.attention"].lines] == ["flash2"]
    assert [line.kind for line in found["comm.tp"].lines] == ["nccl"]
    assert all(t.judged == pytest.approx(1.0) and t.is_of_chip for t in found.values())


def test_a_part_of_several_kinds_has_the_mean_over_its_seconds(traced: Traced) -> None:
    answer = on(traced, load_system("dgx-h100"))
    spent: dict[RowAccuracy | None, float] = {}
    for priced, row, entry, seconds in node_seconds(answer):
        if part_of(entry) == "compute.memory":
            line = accuracy_of(answer, priced, row, entry)
            spent[line] = spent.get(line, 0.0) + seconds
    wanted = sum(line.median * s for line, s in spent.items() if line is not None) / sum(spent.values())
    found = trust_of_parts(answer)["compute.memory"]
    assert len(spent) == 2
    assert found.median == pytest.approx(wanted)
    # The rows of embeddings are among those of all row-wise kernels.
    assert found.num_rows == packaged()["elementwise", H100, ANY, ANY].num_rows


def test_what_was_measured_on_other_chips_only_says_so(traced: Traced) -> None:
    found = trust_of_parts(on(traced, load_system("dgx-h200")))
    assert not found["compute.matmul"].is_of_chip
    assert found["compute.matmul"].lines == (packaged()["gemm", ANY, "pytorch", "bf16"],)


def test_what_no_measurement_judges_has_no_error(traced: Traced, made_up: System) -> None:
    """A roofline rests on no calibrated kernel, and its network on no protocol."""
    assert trust_of_parts(on(traced, made_up)) == {}


def test_messages_over_a_level_without_protocol_are_not_judged(traced: Traced) -> None:
    plan = make_plan(num_gpus=16, seq_len=64, global_batch=16, family=Family())
    answer = estimate(traced("tiny-llama.train"), load_system("dgx-h100"), plan)
    assert answer.breakdown_s["comm.dp"] > 0.0
    assert ("comm.dp" in trust_of_parts(answer)) == bool(load_system("dgx-h100").levels[-1].protocol)


def test_decode_rests_on_the_kernel_over_a_cache(traced: Traced) -> None:
    plan = make_plan(num_gpus=1, seq_len=1, kv_len=64, family=Family(workload=Workload.DECODE))
    answer = estimate(traced("tiny-llama.decode"), load_system("dgx-h100"), plan)
    assert [line.kind for line in trust_of_parts(answer)["compute.attention"].lines] == ["grouped"]
