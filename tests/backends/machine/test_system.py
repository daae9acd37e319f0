"""System files: the catalogue, overrides, faults reported together with their paths, sources."""

import dataclasses
from pathlib import Path

import pytest

from slipstick.backends.machine.files.system_tree import assign, read_tree, split_override
from slipstick.backends.machine.load import load_system, system_names, system_numbers
from slipstick.ir.errors import ParseError, SystemFileError, UnknownNameError, UsageError


@pytest.fixture
def fault(tmp_path: Path) -> "Fault":
    return Fault(tmp_path / "mine.yaml")


@dataclasses.dataclass(frozen=True)
class Fault:
    """Loads a text as a system file and returns the message of the error."""

    path: Path

    def __call__(self, text: str) -> str:
        self.path.write_text(text, encoding="utf-8")
        with pytest.raises(SystemFileError) as caught:
            load_system(self.path)
        return str(caught.value)


@pytest.mark.parametrize("name", system_names())
def test_every_system_of_the_catalogue_loads_with_sources(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    assert system.levels[-1].size is None
    assert all(record.source for record in system_numbers(system))


def test_h100_has_the_figures_of_its_data_sheet() -> None:
    system = load_system("dgx-h100")
    chip, nvlink, infiniband = system.chip, *system.levels
    assert (chip.matmul_flop_per_s("bf16"), chip.matmul_flop_per_s("fp8")) == (989e12, 1979e12)
    assert (chip.vector_flop_per_s, chip.num_sms, chip.hbm_bytes_per_s, chip.power_w) == (
        67e12,
        132,
        3.35e12,
        700,
    )
    assert (nvlink.size, nvlink.bytes_per_s, infiniband.bytes_per_s) == (8, 450e9, 50e9)
    assert system.node_size == 8
    # What nvidia-smi reports, 81559 MiB: neither 80e9 bytes nor 80 GiB.
    assert chip.hbm_bytes == 81559 * 2**20
    # Tensor rate of the white paper: 4 tensor cores an SM, 1024 FLOP each a clock.
    assert chip.num_sms * 4096 * chip.clock_hz == pytest.approx(989e12, rel=1e-3)


def test_a100_has_the_figures_of_its_data_sheet() -> None:
    system = load_system("dgx-a100-80gb")
    assert system.chip.matmul_flop_per_s("bf16") == 312e12 == 16 * system.chip.vector_flop_per_s
    assert system.chip.hbm_bytes == 80 * 2**30
    assert [level.bytes_per_s for level in system.levels] == [300e9, 25e9]


def test_a_dtype_without_a_unit_names_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="allowed: bf16, fp16, fp32, fp64, int4, int8, tf32"):
        load_system("dgx-a100-80gb").chip.matmul_flop_per_s("fp8")


def test_constants_come_from_their_own_files() -> None:
    system = load_system("dgx-h100")
    found = system.kernels.roofline["default"]
    assert (found.matmul_efficiency, found.memory_efficiency) == (0.77, 0.80)
    assert system.stack.launch_s == pytest.approx(3.2e-6)
    paths = [record.path for record in system_numbers(system)]
    assert "calibration.gemm.bf16.sustained" in paths
    assert "stack.memory_reserve" in paths


def test_numbers_are_shown_as_written_and_in_base_units() -> None:
    records = {record.path: record for record in system_numbers(load_system("dgx-h100"))}
    record = records["network.infiniband.bandwidth"]
    assert (record.value, record.unit, record.value_si) == (400, "Gbit/s", 50e9)
    assert record.confidence == "datasheet"
    assert records["network.infiniband.latency"].confidence == "estimated"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'dgx-h100'"):
        load_system("dgx-h10")


@pytest.mark.parametrize("name", ["DGX-H100", "dgx_h100", " DGX_H100 "])
def test_a_name_may_be_in_capitals_and_with_underscores(name: str) -> None:
    assert load_system(name).name == "dgx-h100"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("H100", "'h100' is a chip, of the systems dgx-h100"),
        ("h100_sxm", "'h100-sxm' is a chip, of the systems dgx-h100"),
        ("h100:8", "'h100' is a chip, .*; --gpus 8 gives the number of GPUs"),
        ("dgx-h100:64", "write 'dgx-h100'; --gpus 64 gives the number of GPUs"),
    ],
)
def test_a_chip_or_a_count_in_the_name_of_a_system_is_explained(given: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown system '{given}': {said}"):
        load_system(given)


@pytest.mark.parametrize("text", ["system.chip.memory.hbm.bandwidth=4.8TB/s", "chip.memory.hbm.bandwidth = 4.8e12"])
def test_an_override_changes_one_number_and_its_source(text: str) -> None:
    plain, changed = load_system("dgx-h100"), load_system("dgx-h100", [text])
    assert changed.chip == dataclasses.replace(plain.chip, hbm_bytes_per_s=4.8e12)
    differ = [b for a, b in zip(plain.sources, changed.sources, strict=True) if a != b]
    assert [(r.path, r.source) for r in differ] == [("chip.memory.hbm.bandwidth", "--set")]


def test_the_last_override_of_a_number_counts() -> None:
    system = load_system("dgx-h100", ["chip.power=1 kW", "chip.power=350 W", "name=small"])
    assert (system.chip.power_w, system.name) == (350, "small")


def test_an_override_may_give_a_number_the_file_leaves_out() -> None:
    system = load_system("dgx-a100-80gb", ["chip.matmul.fp8=624 TFLOP/s", "network.infiniband.size=64"])
    assert system.chip.matmul_flop_per_s("fp8") == 624e12
    assert system.levels[1].size == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chip.memry.hbm.bandwidth=1TB/s", "unknown key of chip 'memry'; did you mean 'memory'?"),
        ("network.nvlnk.latency=1us", "unknown level of network 'nvlnk'; did you mean 'nvlink'?"),
        ("chip.memory=1TB/s", "chip.memory=1tb/s: stacks, as in 8xhbm3e; kinds: hbm2"),
        ("network=1", "continue with one of: nvlink, infiniband"),
        ("network.nvlink=1", "set one of its keys: name, topology"),
        ("chip.power.value=1", "'chip.power' has no parts"),
        ("stack.launch_overhed=1us", "did you mean 'launch_overhead'?"),
        ("chip.power", "write path=value"),
        ("=3", "write path=value"),
        ("chip.power=", "write path=value"),
        ("chip.power=much", "chip.power: 'much' is not a quantity"),
        ("chip.power=3 GB", "chip.power: wrong unit 'GB' in '3.0 GB': allowed: W, kW, MW"),
        ("chip.power=-3 W", "chip.power: '-3.0' must be more than zero"),
        ("network.nvlink.topology=torus", "network.nvlink: a torus needs dims"),
        ("network.nvlink.topology=star", "network.nvlink.topology: input should be 'switch', 'crossbar', "),
        ("network.nvlink.efficiency=120%", "must be at most 1"),
        ("node.num_chips=1.5", "must be a whole number"),
    ],
)
def test_a_wrong_override_says_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_system("dgx-h100", [text])
    assert message in str(caught.value)


def test_the_short_form_says_the_same(h100_text: str, tmp_path: Path) -> None:
    short, long = tmp_path / "short.yaml", tmp_path / "long.yaml"
    short.write_text(h100_text.replace("{value: 3350, unit: GB/s,", '{value: "3350 GB/s",'), encoding="utf-8")
    long.write_text(h100_text, encoding="utf-8")
    assert load_system(short) == load_system(str(short)) == load_system(long)


def test_what_is_written_out_is_what_is_named(h100_text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(h100_text, encoding="utf-8")
    written, named = load_system(path), load_system("dgx-h100", calibration="default")
    # Only a chip with a name of the catalogue has constants of its own.
    assert written == named


def test_a_library_that_no_calibration_knows_is_a_fault() -> None:
    with pytest.raises(SystemFileError, match=r"stack\.library: unknown 'trtlm'; did you mean 'trtllm'\?"):
        load_system("dgx-h100", ["stack.library=trtlm"])


def test_all_faults_come_at_once_with_their_paths(h100_text: str, fault: Fault) -> None:
    text = (
        h100_text.replace("unit: GHz", "unit: GB")
        .replace("{value: 450, unit: GB/s,", "{value: 450,")
        .replace("num_chips: {value: 8, source", "num_chips: {value: 8, sorce")
        .replace("bandwidth: {value: 3350, unit: GB/s, source", "bandwidth: {value: -3350, unit: GB/s, source")
        .replace("power: {value: 700", "power: {value: .nan")
        .replace("num_sms: {value: 132", "num_sms: {value: true")
    )
    lines = fault(text).splitlines()
    assert lines[0] == "system 'mine.yaml' has 7 faults:"
    # What stands in the line of each fault; a number written over several lines has the fault in that of its value.
    assert {_placed(line.strip(), str(fault.path), text) for line in lines[1:]} == {
        ("value: 1.83", "chip.clock: wrong unit 'GB' in '1.83 GB': allowed: Hz, MHz, GHz"),
        (
            "bandwidth: {value: 450,",
            "network.nvlink.bandwidth: missing unit of '450': allowed: B/s, GB/s, TB/s, GiB/s, Gbit/s",
        ),
        ("num_chips: {value: 8,", "node.num_chips: missing source"),
        (
            "num_chips: {value: 8,",
            "node.num_chips: unknown key 'sorce'; did you mean 'source'? "
            "allowed: as_of, confidence, source, unit, value",
        ),
        ("bandwidth: {value: -3350,", "chip.memory.hbm.bandwidth: '-3350' must be more than zero"),
        (
            "power: {value: .nan,",
            "chip.power: '.nan' is not a quantity: write a number and a unit, allowed: W, kW, MW",
        ),
        ("num_sms: {value: true,", "chip.num_sms: expected a number, not True"),
    }


def _placed(fault: str, path: str, text: str) -> tuple[str, str]:
    """Return the start of the line that a fault names, and its message."""
    number, message = fault.removeprefix(f"{path}:").split(": ", 1)
    line = text.splitlines()[int(number) - 1].strip()
    return line.partition(" unit")[0].partition(" sorce")[0].partition(" source")[0], message


def test_faults_of_chip_stack_network_and_calibration_come_together(h100_text: str, tmp_path: Path) -> None:
    stack = "stack:\n  name: mine\n  launch_overhead: {value: 3, unit: us, source: s}\n  colective_overhead: 1\n"
    constants = (
        "calibration:\n  name: mine\n  kernels:\n    gemm:\n      bf16:\n        overhead: 7\n        source: s\n"
    )
    (tmp_path / "chip.yaml").write_text("name: mine\nnum_sms: [3]\n", encoding="utf-8")
    network = "name: wide\nlevels:\n  - name: wide\n    topology: switch\n    bandwidth: {value: 4, source: s}\n"
    (tmp_path / "wide.yaml").write_text(network, encoding="utf-8")
    path = tmp_path / "mine.yaml"
    head, tail = h100_text.partition("chip:\n")[0], h100_text[h100_text.index("node:\n") :]
    path.write_text(f"{head}chip: chip.yaml\n{tail}  - wide.yaml\n{stack}{constants}", encoding="utf-8")
    with pytest.raises(SystemFileError) as caught:
        load_system(path)
    faults = [line.strip().split(": ", 2) for line in str(caught.value).splitlines()[1:]]
    places = {(Path(where.rpartition(":")[0]).name, int(where.rpartition(":")[2]), what) for where, what, _ in faults}
    lines = path.read_text(encoding="utf-8").splitlines()
    assert {
        ("chip.yaml", 2, "chip.num_sms"),
        ("chip.yaml", 1, "chip"),
        ("wide.yaml", 5, "network.wide.bandwidth"),
        ("mine.yaml", lines.index("  colective_overhead: 1") + 1, "stack"),
        ("mine.yaml", lines.index("        overhead: 7") + 1, "kernels.gemm.bf16.overhead"),
        ("mine.yaml", lines.index("      bf16:") + 1, "kernels.gemm.bf16.confidence"),
    } <= places


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chip.memory.hbm.bandwidth=3350 EB/s", "'3350.0 EB/s' is beyond any machine: from 1 MB/s to 100 PB/s"),
        ("chip.clock=1.83 Hz", "'1.83 Hz' is beyond any machine: from 1 MHz to 100 GHz"),
        ("stack.launch_overhead=3 h", "beyond any machine: from 1 ps to 10 s"),
        ("chip.matmul.bf16=989 GFLOP/s", ""),
        ("network.nvlink.latency=0 s", ""),
    ],
)
def test_what_no_machine_has_is_refused(text: str, message: str) -> None:
    if not message:
        assert load_system("dgx-h100", [text]).name == "dgx-h100"
        return
    with pytest.raises(SystemFileError, match=f"--set: {text.partition('=')[0]}") as caught:
        load_system("dgx-h100", [text])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{value: 400, unit: Gbit/s,", "{value: 400, unit: Gb/s,", "Gbit/s counts bits, GB/s bytes"),
        ("{value: 400, unit: Gbit/s,", '{value: "400 Gbit/s", unit: Gbit/s,', "unit given twice"),
        ("size: {value: 8, source:", "other: {value: 8, source:", "unknown key 'other'"),
        ("num_sms: {value: 132, source", "num_sms: [132] #", "chip.num_sms: expected a quantity such as"),
        ("num_sms: {value: 132, source", "num_sms: 132 GB/s #", "chip.num_sms"),
        ("num_sms: {value: 132, source", "num_sms: many #", "chip.num_sms"),
        ("name: infiniband", "name: nvlink", "level named twice: nvlink"),
        ("name: infiniband", "name: infini.band", "network.infini.band.name"),
        (
            "confidence: estimated",
            "confidence: guessed",
            "'datasheet', 'measured' or 'estimated', not 'guessed'",
        ),
        ("chip:", "chop:", "unknown key 'chop'; did you mean 'chip'?"),
    ],
)
def test_a_faulty_file_says_where(h100_text: str, fault: Fault, old: str, new: str, message: str) -> None:
    assert old in h100_text
    assert message in fault(h100_text.replace(old, new))


@pytest.mark.parametrize(
    ("new", "message"), [("name: dgx-h100\nname: again\n", "key given twice: name"), ("name: [\n", "is not YAML")]
)
def test_a_text_that_is_no_yaml_is_not_understood(h100_text: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=rf"^mine.yaml:\d+: {message}"):
        read_tree(h100_text.replace("name: dgx-h100\n", new), "mine.yaml")


def test_an_inner_level_must_have_a_size_and_sizes_must_nest(h100_text: str, fault: Fault) -> None:
    size = next(line for line in h100_text.splitlines() if line.startswith("    size:"))
    assert "only the last level may leave out its size, not 'nvlink'" in fault(h100_text.replace(size, ""))
    outer = size.replace("8", "12", 1)
    nested = h100_text.replace("  - name: infiniband", f"  - name: infiniband\n{outer}")
    assert "'infiniband' must be a larger multiple of the size of 'nvlink'" in fault(nested)


@pytest.mark.parametrize("text", ["", "3", "- a", "1: 2"])
def test_the_top_must_be_a_mapping(fault: Fault, text: str) -> None:
    assert "expected a mapping of names at the top" in fault(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SystemFileError, match="No such file"):
        load_system(tmp_path / "none.yaml")


def test_an_unknown_stack_profile(h100_text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(h100_text + "stack: defalt\n", encoding="utf-8")
    with pytest.raises(UnknownNameError, match="unknown stack 'defalt'; did you mean 'default'"):
        load_system(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("989e12", 989e12),
        ("9.89e+14", 9.89e14),
        ("no", "no"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("2024-05-01", "2024-05-01"),
        ("010", 10.0),
        ("0x10", "0x10"),
        ("true", True),
        ("~", None),
        ("-3", -3),
        (".5", 0.5),
    ],
)
def test_yaml_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    read = read_tree(f"key: {text}", "demo")["key"]
    assert (read, type(read)) == (value, type(value))


def test_assigning_leaves_the_tree_as_it_was() -> None:
    tree = read_tree("{a: {b: 1}, network: [{name: x, size: 1}, {name: y, size: 2}]}", "demo")
    keys, value = split_override("network.y.size=3")
    assert assign(tree, keys, value)["network"] == [{"name": "x", "size": 1}, {"name": "y", "size": "3"}]
    assert assign(tree, ("a", "c"), 2)["a"] == {"b": 1, "c": 2}
    assert tree["a"] == {"b": 1}


def test_a_quantity_alone_is_an_estimate_of_its_file(h100_text: str, tmp_path: Path) -> None:
    full = "clock: {value: 1.6, unit: GHz, confidence: estimated, source: this file}"
    start = h100_text.index("clock:")
    text = h100_text.replace(h100_text[start : h100_text.index("power:")].rstrip(), full)
    found = []
    for written in (full, "clock: 1.6 GHz"):
        path = tmp_path / "mine.yaml"
        path.write_text(text.replace(full, written), encoding="utf-8")
        found.append(load_system(path))
    assert found[0].chip == found[1].chip
    [clock] = [record for record in system_numbers(load_system(path)) if record.path == "chip.clock"]
    assert (clock.value, clock.unit, clock.confidence, clock.source) == (1.6, "GHz", "estimated", "this file")


@pytest.mark.parametrize("name", system_names())
def test_numbers_of_the_catalogue_say_where_they_come_from(name: str) -> None:
    assert [record.path for record in system_numbers(load_system(name)) if record.source == "this file"] == []


def test_a_chip_is_of_the_silicon_of_a_calibration_that_there_is() -> None:
    with pytest.raises(SystemFileError, match=r"chip\.measured_as: unknown 'banana'; allowed: a100"):
        load_system("dgx-h100", ["chip.name=foo", "chip.measured_as=banana"])
