"""Lists and records of what there is, for people and for programs."""

import json

import pytest

from slipstick.backends.machine.load import load_system, system_numbers
from slipstick.ir.errors import UnknownNameError
from slipstick.report.catalogue.catalogue import list_text, show_text
from slipstick.report.columns import in_columns

ORDERED = (
    "adapters", "cables", "d2d", "memories", "nodes", "precisions", "schedules", "switches", "transceivers", "units",
)  # fmt: skip
KINDS = (
    "chips", "metrics", "models", "networks", "ops", "passes", "stacks", "systems", "tp-plans", *ORDERED,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_has_the_names_of_its_json(kind: str) -> None:
    names = [record["name"] for record in json.loads(list_text(kind, as_json=True))]
    table = list_text(kind, as_json=False).splitlines()
    assert [line.split("  ")[0] for line in table] == ["name", *names]
    # What has an order of its own keeps it: nodes run from the oldest, schedules as they were published.
    assert kind in ORDERED or names == sorted(names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [80, 132])
def test_a_list_fits_the_screen(kind: str, columns: int) -> None:
    widest = max(len(line) for line in list_text(kind, as_json=False, columns=columns).splitlines())
    # What cannot be wrapped are the columns before the last, of which the systems have many.
    assert widest <= max(columns, 95)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_listed_can_be_shown(kind: str) -> None:
    for record in json.loads(list_text(kind, as_json=True)):
        assert json.loads(show_text(kind, record["name"], as_json=True))["name"] == record["name"]
        assert record["name"] in show_text(kind, record["name"], as_json=False)


# Of memories many are as near: hbm2 and hbm4.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memories"])
def test_an_unknown_name_is_answered_with_the_nearest(kind: str) -> None:
    name = json.loads(list_text(kind, as_json=True))[0]["name"]
    with pytest.raises(UnknownNameError, match=f"did you mean '{name}'"):
        show_text(kind, name[:-1] + "_", as_json=False)


def test_json_has_raw_numbers() -> None:
    h100 = next(r for r in json.loads(list_text("systems", as_json=True)) if r["name"] == "dgx-h100")
    assert (h100["bf16_peak_flop_per_s"], h100["hbm_bandwidth_bytes_per_s"]) == (989e12, 3.35e12)
    assert "989 TFLOP/s" in list_text("systems", as_json=False)


def test_a_system_shows_every_number_with_unit_and_source() -> None:
    lines = show_text("systems", "dgx-h100", as_json=False, constants=True).splitlines()
    numbers = system_numbers(load_system("dgx-h100"))
    for number in numbers:
        kind, _, constant = number.path.rpartition(".")
        shown = number.path if not number.path.startswith("calibration.") else f"{constant} {number.value:g}"
        assert any(
            shown in line and kind in line and number.source in line and number.unit in line for line in lines
        ), number
    record = json.loads(show_text("systems", "dgx-h100", as_json=True))
    assert [n["path"] for n in record["numbers"]] == [n.path for n in numbers]


def test_parts_of_a_system_stand_apart_and_constants_of_a_kind_together() -> None:
    text = show_text("systems", "dgx-h100", as_json=False)
    title, *parts = text.split("\n\n")
    assert title.startswith("dgx-h100: H100-SXM5-80GB, 8 a node; nvlink (switch, 8), infiniband (switch, any number)")
    assert parts.pop().startswith("calibration: ")
    starts = [part.split(".")[0] for part in parts]
    assert starts == ["chip", "node", "network", "network", "server", "rack", "stack"]
    assert all(line.startswith(start) for start, part in zip(starts, parts, strict=True) for line in part.splitlines())


def test_constants_of_a_kind_with_one_source_stand_in_one_line() -> None:
    text = show_text("systems", "dgx-h100", as_json=False, constants=True)
    lines = [line.split("  ") for line in text.splitlines() if line.startswith("calibration.")]
    rows = [(line[0], line[-1].rpartition(": ")[2]) for line in lines]
    numbers = [n for n in system_numbers(load_system("dgx-h100")) if n.path.startswith("calibration.")]
    assert len(rows) == len({(n.path.rpartition(".")[0], n.confidence, n.source) for n in numbers}) < len(numbers)


def test_a_chip_and_a_network_show_every_number() -> None:
    text = show_text("chips", "v100-sxm2-32gb", as_json=False)
    assert text.startswith("v100-sxm2-32gb: V100-SXM2-32GB\n")
    assert "matmul.fp16" in text
    assert "matmul.bf16" not in text
    network = json.loads(show_text("networks", "ndr-infiniband", as_json=True))
    assert next(n["path"] for n in network["numbers"]) == "levels.infiniband.bandwidth"


def test_what_a_chip_lacks_is_no_zero() -> None:
    chips = {r["name"]: r for r in json.loads(list_text("chips", as_json=True))}
    assert chips["v100-sxm2-32gb"]["bf16_peak_flop_per_s"] is None
    line = next(line for line in list_text("chips", as_json=False).splitlines() if line.startswith("v100"))
    assert line.split()[2:4] == ["-", "-"]


def test_an_override_is_its_own_source() -> None:
    text = show_text("systems", "dgx-h100", False, ["chip.memory.hbm.bandwidth=4.8TB/s"])
    line = next(line for line in text.splitlines() if line.startswith("chip.memory.hbm.bandwidth"))
    assert line.split("  ")[-1] == "--set"
    assert "4.8 TB/s" in line


def test_long_text_wraps_in_the_last_column_or_below() -> None:
    rows = [["a", "word " * 20], ["bc", "short"]]
    wide, narrow = in_columns(rows, 60), in_columns(rows, 20)
    assert wide.splitlines()[1] == "    " + ("word " * 11).strip()
    assert narrow.splitlines()[:2] == ["a", "    word word word"]
    assert len(in_columns(rows).splitlines()) == 2
